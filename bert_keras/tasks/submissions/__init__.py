"""Prediction files in the tasks' official formats."""
