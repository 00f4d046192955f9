"""Fine-tuning tasks: one row of `table.TASKS` per task, one module per task type."""
