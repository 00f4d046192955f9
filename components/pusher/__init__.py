"""Pushes a blessed model as a new version to the serving folder."""
