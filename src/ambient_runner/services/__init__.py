"""What a run stands on: a workspace with its repositories and its workflow, credentials, MCP servers, the set-up that makes them ready, and
feedback on what came of it. There is no server here, and no bridge sees this room."""
