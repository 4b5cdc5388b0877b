"""The tools Claude has, as far as they are known without a CLI process: their declarations for clients.

The CLI's own are known by name only. Those of external MCP servers are the platform's to list: it has their credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import ClaudeAgentOptions

from ambient_runner.bridges.claude.client_tools import CLI_TOOLS, mcp_tool_name
from ambient_runner.bridges.claude.sdk import input_schema
from ambient_runner.bridges.claude.state_tool import STATE_TOOL, create_state_tool
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.tools import declare_mcp_tool, declare_tool
from ambient_runner.errors import BridgeUnavailable, optional_dependency
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from claude_agent_sdk import SdkMcpTool

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.protocol.events import Tool

__all__ = ["list_tools"]


async def list_tools(config: ClaudeConfig, ctx: PlatformContext) -> list[Tool]:
    """Return the declarations of the CLI's own tools, the developer's, the state tool, and of the MCP servers in this process."""
    options = config.options or ClaudeAgentOptions()
    disallowed = {*options.disallowed_tools, *config.disallowed_tools}
    tools = [*_cli_tools(config, options), *_custom_tools(config, ctx), *await _in_process_tools(options)]
    return [tool for tool in tools if tool.name not in disallowed]


def _cli_tools(config: ClaudeConfig, options: ClaudeAgentOptions) -> list[Tool]:
    configured = options.tools if config.tools is None else config.tools
    return [declare_tool(name) for name in (configured if isinstance(configured, list) else sorted(CLI_TOOLS))]


def _custom_tools(config: ClaudeConfig, ctx: PlatformContext) -> list[Tool]:
    custom = cast("list[SdkMcpTool[Any]]", ctx.custom_tools)
    has_state_tool = config.state_tool != "never" and all(tool.name != STATE_TOOL for tool in custom)
    tools = [*custom, *([create_state_tool(lambda update: None)] if has_state_tool else [])]
    return [declare_tool(tool.name, tool.description, input_schema(tool)) for tool in tools]


async def _in_process_tools(options: ClaudeAgentOptions) -> list[Tool]:
    """Return the tools of the MCP servers in this process. One that fails is logged and left out."""
    servers: dict[str, Any] = as_object(options.mcp_servers)
    tools: list[Tool] = []
    for name, server in servers.items():
        instance: Any = as_object(server).get("instance")
        if instance is not None:
            with isolate(f"listing the tools of the MCP server {name!r}"):
                tools += [_declare_mcp(name, tool) for tool in await _list_server_tools(instance)]
    return tools


def _declare_mcp(server: str, tool: dict[str, Any]) -> Tool:
    name = mcp_tool_name(server, tool["name"])
    return declare_mcp_tool(name, tool.get("description"), tool.get("inputSchema"), server=server)


async def _list_server_tools(instance: Any) -> list[dict[str, Any]]:
    """Return the tools of an MCP server in this process, over a connection in memory."""
    with optional_dependency("mcp", install="ambient-runner[mcp]", refusal=BridgeUnavailable):
        import mcp
    sdk: Any = mcp
    if hasattr(sdk, "Client"):
        connection: Any = sdk.Client(instance)
    else:  # 1.x
        from mcp.shared import memory

        connection = cast("Any", memory).create_connected_server_and_client_session(instance)
    async with connection as session:
        page = await session.list_tools()
    return [tool.model_dump(mode="json", by_alias=True) for tool in page.tools]
