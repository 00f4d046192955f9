"""Models: BERT, related encoders, and task models."""
