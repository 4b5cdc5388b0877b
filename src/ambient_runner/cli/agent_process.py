"""A process of a command-line agent that only answers questions of the commands `ambient agents …`: it gets no session and no prompt."""

from __future__ import annotations

import shlex
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.bridges.acp.connection import AUTH_REQUIRED
from ambient_runner.bridges.acp.errors import ACPAuthRequired, ACPError
from ambient_runner.bridges.acp.session_start import PROTOCOL_VERSION, check_version
from ambient_runner.bridges.registry import load_agent
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import ConfigError
from ambient_runner.processes.child import ChildProcess
from ambient_runner.processes.json_rpc import JsonRpcPeer, PeerClosed
from ambient_runner.processes.json_rpc_messages import JsonRpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from ambient_runner.config import Settings

__all__ = ["AgentProcess", "load_command_line_agent", "open_agent"]

_START_TIMEOUT = 60.0  # seconds
_CAPABILITIES: dict[str, Any] = {"auth": {"terminal": True}}
_FAILURES = {"initialize": "start", "authenticate": "sign in", "session/list": "list its sessions"}
"""The action that failed if an agent does not answer a method."""


def load_command_line_agent(settings: Settings, name: str) -> ACPBridge:
    """Return the bridge of the agent. Raises: ConfigError, also for an agent of another kind."""
    bridge = load_agent(name, settings.configured_agents)[1]
    if not isinstance(bridge, ACPBridge):
        raise ConfigError(f"{name} is not a command-line agent. It has no login and no sessions of its own.")
    return bridge


@asynccontextmanager
async def open_agent(bridge: ACPBridge, name: str) -> AsyncGenerator[AgentProcess]:
    """Start the agent in the user's own home, and end it on exit. `name` is what the user calls it. Raises: ConfigError, ACPError."""
    agent = AgentProcess(name)
    try:
        await agent.start(bridge)
        yield agent
    finally:
        await agent.aclose()


class AgentProcess:
    """A running agent. `answer` is its response to `initialize`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.answer: Mapping[str, Any] = {}
        self._child: ChildProcess | None = None
        self._peer = JsonRpcPeer(self._write, on_message=lambda message: None)

    async def start(self, bridge: ACPBridge) -> None:
        """Start the process. Raises: ConfigError if there is no such command, ACPError."""
        try:
            self._child = await ChildProcess.start(
                bridge.config.base_command,
                env=bridge.variables,
                cwd=None,
                on_output=self._peer.feed,
                on_exit=self._peer.close,
            )
        except OSError as error:
            raise ConfigError(f"{bridge.config.base_command[0]} cannot be started: {error.strerror}.") from error
        params = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": _CAPABILITIES}
        self.answer = as_object(await self.call("initialize", params, timeout=_START_TIMEOUT))
        check_version(self.answer, self._name)

    async def call(self, method: str, params: dict[str, Any], *, timeout: float) -> Any:
        """Send a request and return its result. Raises: ACPError, with the last lines that the agent wrote to standard error."""
        try:
            return await self._peer.call(method, params, timeout=timeout)
        except (JsonRpcError, PeerClosed, TimeoutError) as error:
            raise self._to_error(method, error) from error

    def _to_error(self, method: str, error: JsonRpcError | PeerClosed | TimeoutError) -> ACPError:
        lines = "\n".join(self._child.stderr if self._child else ())
        message = f"The agent did not {_FAILURES[method]}: {_describe_failure(error)}."
        if isinstance(error, JsonRpcError) and error.code == AUTH_REQUIRED and method != "authenticate":
            return ACPAuthRequired(
                f"{message} Sign it in: ambient agents login {shlex.quote(self._name)}\n{lines}".rstrip()
            )
        return ACPError(f"{message}\n{lines}".rstrip())

    async def aclose(self) -> None:
        if self._child is not None:
            await self._child.aclose()

    def _write(self, data: bytes) -> None:
        if self._child is not None:
            self._child.write(data)


def _describe_failure(error: JsonRpcError | PeerClosed | TimeoutError) -> str:
    match error:
        case PeerClosed():
            return "it has ended"
        case TimeoutError():
            return "it does not answer"
        case _:
            return str(error)
