"""Where a pipeline runs: paths and Beam arguments only."""
