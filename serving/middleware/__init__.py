"""Request path before the services: connections, security, limits, logs, metrics."""
