"""Where the MCP server of the tests is: it is started as a script of its own."""

from pathlib import Path

MCP_SERVER = str(Path(__file__).with_name("mcp_server.py"))
