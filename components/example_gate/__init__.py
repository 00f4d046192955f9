"""Stops a run whose examples violate their schema or limits."""
