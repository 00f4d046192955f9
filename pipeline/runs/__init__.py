"""A run: its directory, request, exit codes and records."""
