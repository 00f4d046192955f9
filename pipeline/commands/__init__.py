"""Commands of `bert-tfx`, one per file."""
