"""Selects the baseline: the earlier model that a new one is compared with."""
