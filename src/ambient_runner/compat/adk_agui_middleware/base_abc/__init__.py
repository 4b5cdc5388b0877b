"""Base classes of handlers and services."""
