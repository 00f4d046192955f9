"""Whether a server answers with a model as the trainer did, fast enough and in little enough memory."""
