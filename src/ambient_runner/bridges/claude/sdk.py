"""Private names of the Claude Agent SDK that the bridge uses: its transport to the CLI, and the schemas of its tools.

The SDK's own transport starts the CLI with the server's whole environment, and its public `Transport` has no command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import claude_agent_sdk

from ambient_runner.bridges.toolkit.sdk import Sdk

if TYPE_CHECKING:
    from claude_agent_sdk import SdkMcpTool

SDK = Sdk(package="claude-agent-sdk", lowest="0.2.158", newest="0.2.182")

with SDK.private_names():
    from claude_agent_sdk._internal._task_compat import spawn_detached
    from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

__all__ = ["SDK", "SubprocessCLITransport", "check_transport", "input_schema", "spawn_detached"]

_METHODS = ("_build_command", "_find_cli", "_handle_stderr")
_ATTRIBUTES = ("_cli_path", "_cwd", "_options", "_process", "_ready", "_stderr_task", "_stdin_stream", "_stdout_stream")


def check_transport(transport: SubprocessCLITransport) -> None:
    """Check that the transport has everything a subclass uses. Raises: BridgeUnavailable."""
    SDK.check_names(transport, (*_METHODS, *_ATTRIBUTES))


def input_schema(tool: SdkMcpTool[Any]) -> Any:
    """Return the JSON Schema of a tool's arguments, which it may declare as Python types; None if this SDK does not convert them."""
    convert: Any = getattr(claude_agent_sdk, "_build_input_schema", None)
    return None if convert is None else convert(tool)
