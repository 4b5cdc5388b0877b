"""Bridge to command-line agents that speak the Agent Client Protocol."""
