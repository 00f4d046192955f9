"""Learns a vocabulary from documents."""
