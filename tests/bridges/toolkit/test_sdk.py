"""Errors about a private name that an SDK no longer has: the message says which version to install."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pytest

from ambient_runner.bridges.toolkit.sdk import Sdk
from ambient_runner.errors import BridgeUnavailable

SDK = Sdk(package="pytest", lowest="7.0", newest="8.0")


class Client:
    """An object of an SDK."""


def _read_attribute() -> None:
    with SDK.private_names():
        getattr(Client(), "_session")  # noqa: B009  as a private read


def _import_name() -> None:
    with SDK.private_names():
        import pytest._internal  # type: ignore[import-not-found]  # noqa: F401


def _check_names() -> None:
    SDK.check_names(Client(), ["__class__", "_session"])


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (_read_attribute, "Client._session"),
        (_import_name, "pytest._internal"),
        (_check_names, "Client._session"),
    ],
)
def test_a_private_name_that_is_gone_names_the_version_to_install(read: Callable[[], None], name: str) -> None:
    with pytest.raises(BridgeUnavailable) as raised:
        read()
    installed = importlib.metadata.version("pytest")
    assert raised.value.message == (
        f"pytest {installed} has no {name} as this bridge knows it. Install a version that it is tested with: "
        "pip install 'pytest>=7.0,<=8.0'"
    )


def test_names_that_exist_raise_nothing() -> None:
    SDK.check_names("text", ["upper", "__len__"])


def _strands_agent_without(name: str) -> Any:
    from strands import Agent

    from tests.bridges.strands.scripted import ScriptedModel

    agent: Any = Agent(model=ScriptedModel([]), callback_handler=None)
    delattr(agent, name)
    return agent


@pytest.mark.parametrize(
    "name", ["_session_manager", "_middleware_registry", "_plugin_registry", "_model_router", "_retry_strategy"]
)
def test_a_strands_agent_without_a_private_attribute_is_refused_when_it_is_copied(name: str) -> None:
    from ambient_runner.bridges.strands.agent_clone import clone_agent

    with pytest.raises(BridgeUnavailable, match=f"strands-agents .* has no Agent.{name}"):
        clone_agent(_strands_agent_without(name))


def test_a_claude_transport_without_a_private_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from claude_agent_sdk import ClaudeAgentOptions

    from ambient_runner.bridges.claude.process import ManagedCli
    from ambient_runner.bridges.claude.sdk import SubprocessCLITransport

    monkeypatch.delattr(SubprocessCLITransport, "_build_command")
    with pytest.raises(BridgeUnavailable, match=r"claude-agent-sdk .* has no ManagedCli._build_command"):
        ManagedCli(ClaudeAgentOptions(), {})
