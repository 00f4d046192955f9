"""The two workflows: pre-training and fine-tuning, each from its inputs to its report."""
