"""Models and versions: configuration, loading, execution."""
