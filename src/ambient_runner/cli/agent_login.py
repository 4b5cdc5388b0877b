"""`ambient agents login`: sign a command-line agent in on this machine, in the ways that it offers itself."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import anyio
import typer

from ambient_runner.bridges.acp.errors import ACPError
from ambient_runner.bridges.acp.messages import as_list
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.cli.agent_process import load_command_line_agent, open_agent
from ambient_runner.cli.text_format import strip_control_chars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.bridge import ACPBridge
    from ambient_runner.config import Settings

__all__ = ["login_agent"]

_LOGIN_TIMEOUT = 900.0
"""Seconds for a login that a person completes elsewhere, such as in a browser."""


def login_agent(settings: Settings, name: str) -> None:
    """Let the user choose how to sign in, and do it. Raises: ConfigError, ACPError."""
    bridge = load_command_line_agent(settings, name)
    methods = anyio.run(_list_methods, bridge, name)
    if not methods:
        typer.echo(f"{name} offers no login, or is signed in. {_key_advice(bridge)}")
        return
    method = _choose_method(methods)
    if method.get("type") == "terminal":
        _run_in_terminal(bridge, method)
    else:
        anyio.run(_authenticate, bridge, name, str(method["id"]))
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
    """Run the agent's own login with the terminal. Raises: ACPError if it fails."""
    arguments = [str(argument) for argument in as_list(method.get("args"))]
    variables = {str(name): str(value) for name, value in as_object(method.get("env")).items()}
    command = [*bridge.config.base_command, *arguments]
    done = subprocess.run(command, env={**bridge.variables, **variables}, check=False)  # noqa: S603  the agent's own command
    if done.returncode:
        raise ACPError(f"The login ended with code {done.returncode}. Try again, or use a key. {_key_advice(bridge)}")


async def _list_methods(bridge: ACPBridge, name: str) -> list[dict[str, Any]]:
    async with open_agent(bridge, name) as agent:
        methods = [as_object(method) for method in as_list(agent.answer.get("authMethods"))]
        return [method for method in methods if isinstance(method.get("id"), str)]


async def _authenticate(bridge: ACPBridge, name: str, method_id: str) -> None:
    """Let the agent sign in by itself; what it prints is shown. Raises: ACPError."""
    async with open_agent(bridge, name) as agent:
        typer.echo("Follow what the agent says. Ctrl-C gives up.")
        await agent.call("authenticate", {"methodId": method_id}, timeout=_LOGIN_TIMEOUT)
