"""Helpers for translate handlers."""
