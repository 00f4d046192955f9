"""gRPC and REST services."""
