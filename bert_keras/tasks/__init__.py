"""Fine-tuning tasks: a row of `table.TASKS` each, one file a kind of task."""
