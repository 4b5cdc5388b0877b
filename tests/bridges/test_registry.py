from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.base import PlatformBridge, PlatformContext
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.bridges.registry import GROUP, load_agent, load_agents
from ambient_runner.bridges.remote import RemoteBridge
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui import input_to_agui
from ambient_runner.protocol.events import RunAgentInput

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
from ambient_runner import errors
from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge

class Mine(PlatformBridge):
    def __init__(self, name="plain"):
        self.name = name
    def capabilities(self):
        return FrameworkCapabilities()
    def create_adapter(self, ctx):
        raise NotImplementedError

class Running(Mine):
    async def run(self, input):
        yield input

class Unfinished(PlatformBridge):
    pass

class Rooms:
    inner = Mine("inner")

instance = Mine("instance")
number = 7

def make():
    return Mine("made")

def make_number():
    return 7

def needs_argument(value):
    return Mine(value)

class Speaks:
    async def run(self, input):
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "hi"}

async def speaks(input):
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "hi"}

def make_speaking():
    return Speaks()

class Answers:
    async def run(self, prompt):
        return prompt

speaking, answering = Speaks(), Answers()

def needs_extra():
    raise errors.BridgeUnavailable('Type: pip install "ambient-runner[x]"')
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project in the current directory, which is importable because it is the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("registry_project", "broken_project", "failing_project"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "registry_project.py").write_text(MODULE)
    (tmp_path / "broken_project.py").write_text("import a_package_that_is_not_there")
    (tmp_path / "failing_project.py").write_text("raise KeyError('SOME_API_KEY')")


def refusal(*specs: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_agents(specs)
    return caught.value.message


def test_the_demo_is_known_by_name() -> None:
    name, bridge = load_agent("demo")
    assert (name, type(bridge)) == ("demo", DemoBridge)


def test_every_registered_bridge_loads_that_needs_no_graph() -> None:
    names = [point.name for point in entry_points(group=GROUP) if point.name != "langgraph"]
    assert list(load_agents(names)) == names
    with pytest.raises(ConfigError):
        load_agent("langgraph")


@pytest.mark.parametrize(
    ("target", "made"),
    [("instance", "instance"), ("Mine", "plain"), ("Running", "plain"), ("make", "made"), ("Rooms.inner", "inner")],
)
def test_a_bridge_its_class_and_its_factory_can_all_be_named(target: str, made: str) -> None:
    name, bridge = load_agent(f"mine=registry_project:{target}")
    assert isinstance(bridge, PlatformBridge)
    assert (name, vars(bridge)) == ("mine", {"name": made})


@pytest.mark.parametrize("target", ["speaking", "Speaks", "speaks", "make_speaking"])
async def test_an_agui_agent_is_taken_as_it_is(target: str) -> None:
    _, bridge = load_agent(f"mine=registry_project:{target}")
    assert isinstance(bridge, AGUIBridge)
    asked = input_to_agui(RunAgentInput(thread_id="t", run_id="r", messages=[]))
    said = [event async for event in bridge.create_adapter(PlatformContext()).run(asked)]
    assert said == [{"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "hi"}]


@pytest.mark.parametrize(
    "spec",
    ["front=http://127.0.0.1:9000/", "front=https://host/agents/a?b=c=d", "front = remote+http://127.0.0.1:9000/"],
)
def test_a_url_is_an_agent_of_another_server(spec: str) -> None:
    name, bridge = load_agent(spec)
    assert (name, type(bridge)) == ("front", RemoteBridge)


def test_a_registered_bridge_can_go_by_another_name() -> None:
    agents = load_agents(["demo", "second=demo"])
    assert {name: type(bridge) for name, bridge in agents.items()} == {"demo": DemoBridge, "second": DemoBridge}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("dmeo", "demo"),
        ("mine=dmeo", "demo"),
        ("registry_project:instance", "mine=registry_project:instance"),
        ("a b=demo", "'a b'"),
        ("=demo", "''"),
        (f"{'x' * 65}=demo", "64"),
        ("mine=:instance", "package.module:attribute"),
        ("mine=registry_project:", "package.module:attribute"),
        ("mine=not_a_project:x", "not_a_project"),
        ("mine=broken_project:x", "ModuleNotFoundError"),
        ("mine=failing_project:x", "KeyError"),
        ("mine=registry_project:absent", "absent"),
        ("mine=registry_project:number", "int"),
        ("mine=registry_project:answering", "AGUIBridge(agent)"),
        ("http://127.0.0.1:9000/?a=b", "mine=http://127.0.0.1:9000/?a=b"),
        ("front=http://user:password@host/", "headers"),
        ("front=http://", "http://host:port/path"),
        ("mine=registry_project:make_number", "int"),
        ("mine=registry_project:Unfinished", "TypeError"),
        ("mine=registry_project:needs_argument", "TypeError"),
        ("mine=registry_project:needs_extra", 'pip install "ambient-runner[x]"'),
    ],
)
def test_a_wrong_spec_is_refused_with_what_is_wrong(spec: str, told: str) -> None:
    assert told in refusal(spec)


def test_two_agents_of_one_name_are_refused() -> None:
    assert "demo" in refusal("demo", "demo")
