"""Extractive question answering (spans)."""
