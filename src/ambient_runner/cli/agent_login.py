"""`ambient agents login`: sign a command-line agent in on this machine, in the ways that it offers itself."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, cast

import anyio
import typer

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.bridges.registry import load_agent
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.cli.text_format import strip_control_chars
from ambient_runner.errors import ConfigError
from ambient_runner.processes.child import ChildProcess
from ambient_runner.processes.json_rpc import JsonRpcError, JsonRpcPeer, PeerClosed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.config import Settings

__all__ = ["login_agent"]

_START_TIMEOUT = 60.0  # seconds
_LOGIN_TIMEOUT = 900.0
"""Seconds for a login that a person completes elsewhere, such as in a browser."""


def login_agent(settings: Settings, name: str) -> None:
    """Let the user choose how to sign in, and do it. Raises: ConfigError."""
    bridge = load_agent(name, settings.configured_agents)[1]
    if not isinstance(bridge, ACPBridge):
        raise ConfigError(f"{name} is not a command-line agent. It has no login of its own.")
    methods = anyio.run(_list_methods, bridge)
    if not methods:
        typer.echo(f"{name} offers no login, or is signed in. {_key_advice(bridge)}")
        return
    method = _choose_method(methods)
    if method.get("type") == "terminal":
        _run_in_terminal(bridge, method)
    else:
        anyio.run(_authenticate, bridge, str(method["id"]))
    typer.echo(f"{name} is signed in.")


def _key_advice(bridge: ACPBridge) -> str:
    variable = bridge.config.known_agent.key_variable
    return f"Set {variable} to give it a key." if variable else ""


def _choose_method(methods: list[dict[str, Any]]) -> dict[str, Any]:
    for number, method in enumerate(methods, 1):
        description = f": {method['description']}" if method.get("description") else ""
        typer.echo(strip_control_chars(f"  {number}  {method.get('name') or method['id']}{description}"))
    return methods[_read_number(len(methods)) - 1] if len(methods) > 1 else methods[0]


def _read_number(highest: int) -> int:
    while True:
        number: int = typer.prompt("number", type=int)
        if 1 <= number <= highest:
            return number
        typer.echo(f"Choose a number from 1 to {highest}.")


def _run_in_terminal(bridge: ACPBridge, method: Mapping[str, Any]) -> None:
    """Run the agent's own login with the terminal. Raises: ConfigError if it fails."""
    arguments = [str(argument) for argument in cast("list[Any]", method.get("args") or [])]
    variables = {str(name): str(value) for name, value in as_object(method.get("env")).items()}
    command = [*bridge.config.base_command, *arguments]
    done = subprocess.run(command, env={**bridge.variables, **variables}, check=False)  # noqa: S603  the agent's own command
    if done.returncode:
        raise ConfigError(
            f"The login ended with code {done.returncode}. Try again, or use a key. {_key_advice(bridge)}"
        )


async def _list_methods(bridge: ACPBridge) -> list[dict[str, Any]]:
    agent = _Agent()
    try:
        await agent.start(bridge)
        return [method for method in agent.methods if isinstance(method.get("id"), str)]
    finally:
        await agent.aclose()


async def _authenticate(bridge: ACPBridge, method_id: str) -> None:
    """Let the agent sign in by itself; what it prints is shown. Raises: ConfigError."""
    agent = _Agent()
    try:
        await agent.start(bridge)
        typer.echo("Follow what the agent says. Ctrl-C gives up.")
        await agent.call("authenticate", {"methodId": method_id}, timeout=_LOGIN_TIMEOUT)
    finally:
        await agent.aclose()


class _Agent:
    """A process of the agent that only answers about its login."""

    def __init__(self) -> None:
        self.methods: list[dict[str, Any]] = []
        self._child: ChildProcess | None = None
        self._peer = JsonRpcPeer(self._write, on_message=lambda message: None)

    async def start(self, bridge: ACPBridge) -> None:
        """Start the process. Raises: ConfigError."""
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
        capabilities = {"auth": {"terminal": True}}
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        answer = as_object(await self.call("initialize", params, timeout=_START_TIMEOUT))
        self.methods = [as_object(method) for method in cast("list[Any]", answer.get("authMethods") or [])]

    async def call(self, method: str, params: dict[str, Any], *, timeout: float) -> Any:
        """Send a request and return its result. Raises: ConfigError."""
        try:
            return await self._peer.call(method, params, timeout=timeout)
        except (JsonRpcError, PeerClosed, TimeoutError) as error:
            lines = "\n".join(self._child.stderr if self._child else ())
            raise ConfigError(
                f"The agent did not sign in: {error or type(error).__name__}.\n{lines}".rstrip()
            ) from error

    async def aclose(self) -> None:
        if self._child is not None:
            await self._child.aclose()

    def _write(self, data: bytes) -> None:
        if self._child is not None:
            self._child.write(data)
