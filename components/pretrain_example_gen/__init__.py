"""Tokenized documents -> pre-training examples."""
