"""Metrics of the quality gate."""
