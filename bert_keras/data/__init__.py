"""Examples: format, masking, batches."""
