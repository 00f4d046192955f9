"""Splits text files into documents: one record per document, with its sentences in order."""
