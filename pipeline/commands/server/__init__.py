"""Commands that start, query or manage a server."""
