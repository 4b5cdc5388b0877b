"""Services around a run: workspaces with repositories and a workflow, credentials, MCP servers, the set-up that prepares them, and
feedback. There is no HTTP server code here, and bridges do not import this package."""
