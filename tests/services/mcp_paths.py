"""Path of the MCP server that tests start as a script. It is not in this directory: `mcp/` here would shadow the `mcp` package."""

from pathlib import Path

MCP_SERVER = str(Path(__file__).parent / "mcp" / "echo_server.py")
