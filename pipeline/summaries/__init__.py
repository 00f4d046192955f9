"""Summary of a run: `summary.json` and the screen at its end."""
