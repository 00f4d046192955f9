"""Export of SavedModels that take raw text."""
