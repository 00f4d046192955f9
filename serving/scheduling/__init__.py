"""Queueing and batching."""
