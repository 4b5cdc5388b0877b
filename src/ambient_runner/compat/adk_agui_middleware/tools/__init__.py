"""Tools and helpers."""
