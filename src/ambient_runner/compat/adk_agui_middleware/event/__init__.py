"""AG-UI events and messages."""
