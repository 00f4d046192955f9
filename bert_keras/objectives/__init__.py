"""Pre-training objectives: from model outputs and labels to per-example sums, weights and losses."""
