"""Hugging Face's folder of a model."""
