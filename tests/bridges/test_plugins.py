"""Bridges of other packages, found by entry points: what is refused when one is wrong, and by which name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.bridges.registry import BRIDGE_GROUP, OBJECT_GROUP, load_agent, load_agents
from ambient_runner.config import AgentSettings
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = "tests.bridges.test_plugins"


class Installed(PlatformBridge):
    """A bridge that takes no agent."""

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Any:
        raise NotImplementedError


class RefusesAgent(Installed):
    def __init__(self, agent: object) -> None:
        raise LookupError("no such model")


class NeedsModel(Installed):
    def __init__(self, agent: object, model: str) -> None:
        self.model = model


class RaisingCapabilities(Installed):
    def capabilities(self) -> FrameworkCapabilities:
        raise LookupError("no license")


class NoCapabilities(Installed):
    def capabilities(self) -> Any:
        return None


class FrameworkAgent:
    """An agent of a framework that another package has a bridge for."""


an_agent = FrameworkAgent()
not_callable = 3


def raises(agent: object) -> PlatformBridge:
    raise LookupError("no such model")


def returns_no_bridge(agent: object) -> object:
    return agent


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Registers entry points of a group next to the installed ones."""
    added: list[EntryPoint] = []

    def find(group: str) -> list[EntryPoint]:
        return [*entry_points(group=group), *(point for point in added if point.group == group)]

    monkeypatch.setattr("ambient_runner.bridges.registry.entry_points", find)

    def register(group: str, name: str, target: str) -> None:
        added.append(EntryPoint(name, f"{HERE}:{target}", group))

    return register


def refusal(agent: str | AgentSettings) -> str:
    with pytest.raises(ConfigError) as caught:
        load_agents([agent])
    return caught.value.message


@pytest.mark.parametrize("bridge", ["demo", "claude", "installed"])
def test_an_agent_for_a_bridge_that_takes_none_is_refused(install: Callable[..., None], bridge: str) -> None:
    """`use` was the ids of the demo, and a TypeError of the others."""
    install(BRIDGE_GROUP, "installed", "Installed")
    message = refusal(AgentSettings(name="mine", bridge=bridge, use="os:sep"))
    assert ("agents.mine in ambient.toml" in message, "takes no agent" in message, "`use`" in message) == (True,) * 3


@pytest.mark.parametrize(
    ("bridge", "reason"),
    [
        ("adk", "with a str"),
        ("refuses", "LookupError: no such model"),
        ("needs-model", "requires model"),
    ],
)
def test_a_bridge_that_cannot_use_the_agent_is_reported_with_its_table(
    install: Callable[..., None], bridge: str, reason: str
) -> None:
    install(BRIDGE_GROUP, "refuses", "RefusesAgent")
    install(BRIDGE_GROUP, "needs-model", "NeedsModel")
    message = refusal(AgentSettings(name="mine", bridge=bridge, use="os:sep"))
    assert ("agents.mine in ambient.toml" in message, reason in message) == (True, True)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("not_callable", "int"),
        ("raises", "LookupError: no such model"),
        ("returns_no_bridge", "FrameworkAgent"),
        ("absent", "has no absent"),
    ],
)
def test_a_bridge_for_agents_of_a_package_that_fails_is_reported_by_its_entry_point(
    install: Callable[..., None], target: str, reason: str
) -> None:
    install(OBJECT_GROUP, HERE, target)
    message = refusal(f"mine={HERE}:an_agent")
    assert (target in message, reason in message) == (True, True)


@pytest.mark.parametrize(
    ("target", "reason"),
    [("RaisingCapabilities", "LookupError: no license"), ("NoCapabilities", "NoneType")],
)
@pytest.mark.parametrize("make", [lambda: "broken", lambda: AgentSettings(name="broken", bridge="broken")])
def test_wrong_capabilities_are_reported_with_the_agent(
    install: Callable[..., None], target: str, reason: str, make: Callable[[], str | AgentSettings]
) -> None:
    install(BRIDGE_GROUP, "broken", target)
    message = refusal(make())
    assert ("broken" in message, "capabilities()" in message, reason in message) == (True, True, True)


def test_two_packages_with_a_bridge_of_one_name_are_refused(install: Callable[..., None]) -> None:
    """One of them was chosen, depending on the order of installation."""
    install(BRIDGE_GROUP, "twice", "Installed")
    install(BRIDGE_GROUP, "twice", "NeedsModel")
    message = refusal("twice")
    assert (f"{HERE}:Installed" in message, f"{HERE}:NeedsModel" in message) == (True, True)


def test_a_package_cannot_replace_the_demo(install: Callable[..., None]) -> None:
    install(BRIDGE_GROUP, "demo", "Installed")
    assert f"{HERE}:Installed" in refusal("demo")


def test_one_bridge_that_is_registered_twice_is_one(install: Callable[..., None]) -> None:
    """An editable install next to a wheel registers every bridge twice."""
    install(BRIDGE_GROUP, "same", "Installed")
    install(BRIDGE_GROUP, "same", "Installed")
    assert [type(load_agent(name)[1]) for name in ("same", "demo")] == [Installed, DemoBridge]


def test_two_bridges_for_the_agents_of_one_package_are_refused(install: Callable[..., None]) -> None:
    install(OBJECT_GROUP, HERE, "raises")
    install(OBJECT_GROUP, HERE, "RefusesAgent")
    message = refusal(f"mine={HERE}:an_agent")
    assert (f"{HERE}:raises" in message, f"{HERE}:RefusesAgent" in message) == (True, True)
