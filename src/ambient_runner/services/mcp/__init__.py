"""MCP servers: their configuration and whether they answer."""
