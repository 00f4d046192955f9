"""`bert-tfx apply`: a signature of a model over the rows of whole files, on any Beam runner.

    files -> ranges -> rows (rows.py) -> answers (row_model.py) -> a shard per range (handler.py)

`run.py` plans, resumes and sums up. RunInference (apache_beam/ml/inference/base.py) gets a range as its element, not a
row: so a shard is written by the call that computes it, and nothing passes through a shuffle, which Beam's local
runners hold in memory.
"""
