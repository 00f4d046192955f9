"""Text files -> documents: one record a document, its sentences in order."""
