"""Recipes: named settings of pre-training and fine-tuning."""
