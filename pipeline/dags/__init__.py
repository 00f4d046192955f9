"""TFX pipelines of pre-training and fine-tuning."""
