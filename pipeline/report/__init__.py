"""`report.html`: one self-contained page a run."""
