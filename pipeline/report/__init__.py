"""`report.html`: one self-contained page a run.

Everywhere `run` is from `pipeline.runs.lineage.latest_run`, `summary` the content of `summary.json`, and `baseline` the
metrics of the last comparable blessed model on the same data, None without one. No page shows a path above `run_dir`.
"""
