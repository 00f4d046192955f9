"""Makes pre-training examples from tokenized documents."""
