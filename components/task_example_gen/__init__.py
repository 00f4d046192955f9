"""Reads a task's official files into rows: one record per row, with its raw text and its label."""
