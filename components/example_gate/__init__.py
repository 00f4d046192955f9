"""Stops a run whose examples are not what their schema says."""
