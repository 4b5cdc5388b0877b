"""Configuration and data."""
