"""Filters: what stays of a document, and which rule drops it; `chain` runs those that are on."""
