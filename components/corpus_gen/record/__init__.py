"""The record of a corpus: what was kept and dropped, by which rule, of which source and language."""
