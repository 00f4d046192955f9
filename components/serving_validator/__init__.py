"""Checks that a server answers with a model as the trainer did, within limits of latency and memory."""
