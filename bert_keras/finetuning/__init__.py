"""Fine-tuning on a task: initial checkpoint, training, restarts, search."""
