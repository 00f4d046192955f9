"""A task's official files -> rows: one record a row, its raw text and what is right."""
