"""Figures of the report: curves, tables, wrong answers."""
