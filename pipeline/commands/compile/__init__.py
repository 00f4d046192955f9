"""`bert-tfx compile`, and the commands that orchestrators call."""
