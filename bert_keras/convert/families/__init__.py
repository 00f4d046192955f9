"""Families of encoders, as data: a file for each, and the table of all (`table`)."""
