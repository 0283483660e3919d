"""The HTTP door: REST, health and metrics."""
