from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.base import PlatformBridge, PlatformContext
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.bridges.registry import BRIDGE_GROUP, load_agent, load_agents
from ambient_runner.bridges.remote import RemoteBridge
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.events import RunAgentInput

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
from fastapi import FastAPI

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

def fails():
    return int("seven")

class Fails(Mine):
    def __init__(self):
        raise LookupError("no model")

class NeedsModel(Mine):
    def __init__(self, model):
        raise NotImplementedError

class Callable:
    def __call__(self, prompt):
        return prompt

called = Callable()

def make_web_app():
    return FastAPI()

web_app = FastAPI()

def needs_extra():
    raise errors.BridgeUnavailable('Run: pip install "ambient-runner[x]"')
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project in the current directory, which is importable because it is the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("registry_project", "broken_project", "failing_project", "wrong_project", "inner_project"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "registry_project.py").write_text(MODULE)
    (tmp_path / "broken_project.py").write_text("import a_package_that_is_not_there")
    (tmp_path / "failing_project.py").write_text("import os\n\nkey = os.environ['SOME_API_KEY_OF_NOBODY']")
    (tmp_path / "wrong_project.py").write_text("agent = = 1")
    (tmp_path / "inner_project").mkdir()
    (tmp_path / "inner_project" / "agent.py").write_text(MODULE)


def refusal(*specs: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_agents(specs)
    return caught.value.message


def test_the_demo_is_known_by_name() -> None:
    name, bridge = load_agent("demo")
    assert (name, type(bridge)) == ("demo", DemoBridge)


COMMANDS = {"acp", "claude-acp", "codex", "gemini", "lines", "opencode"}
"""Bridges to programs, which may not be installed."""


def test_every_registered_bridge_loads_that_needs_no_graph_and_no_program() -> None:
    names = [point.name for point in entry_points(group=BRIDGE_GROUP) if point.name not in {"langgraph", *COMMANDS}]
    assert list(load_agents(names)) == names
    with pytest.raises(ConfigError):
        load_agent("langgraph")


def test_an_agent_that_is_not_installed_is_refused_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in COMMANDS - {"acp", "lines"}:
        with pytest.raises(ConfigError, match=r"npm install -g .*Node\.js"):
            load_agent(name)
    with pytest.raises(ConfigError, match="needs a profile or a command"):
        load_agent("acp")


def test_a_command_is_an_agent() -> None:
    name, bridge = load_agent(f"mine=acp:{sys.executable} 'my agent.py' --level=2")
    assert isinstance(bridge, ACPBridge)
    assert (name, bridge.config.command) == ("mine", (sys.executable, "my agent.py", "--level=2"))


@pytest.mark.parametrize(
    "spec", ["acp:agent --acp", "mine=acp:", "mine=acp:agent 'open", "mine=acp:no-such-agent-4711"]
)
def test_a_command_without_a_name_or_that_cannot_be_started_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        load_agent(spec)


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
        ("mine=registry_project:needs_argument", "bridge = LangGraphBridge(needs_argument)"),
        ("mine=registry_project:NeedsModel", "bridge = NeedsModel(...)"),
        ("mine=registry_project:called", "Callable"),
        ("mine=registry_project:web_app", "add_ambient_endpoints"),
        ("mine=registry_project:make_web_app", "add_ambient_endpoints"),
        ("mine=registry_project:needs_extra", 'pip install "ambient-runner[x]"'),
    ],
)
def test_a_wrong_spec_is_refused_with_the_reason(spec: str, told: str) -> None:
    assert told in refusal(spec)


def test_two_agents_of_one_name_are_refused() -> None:
    assert "demo" in refusal("demo", "demo")


def line_of(text: str, words: str) -> int:
    return next(at for at, line in enumerate(text.splitlines(), 1) if words in line)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("failing_project:x", "KeyError: 'SOME_API_KEY_OF_NOBODY' (failing_project.py, line 3)"),
        ("wrong_project:x", "SyntaxError: invalid syntax (wrong_project.py, line 1)"),
        (
            "registry_project:fails",
            f"ValueError: invalid literal for int() with base 10: 'seven' (registry_project.py, line {line_of(MODULE, 'seven')})",
        ),
        (
            "registry_project:Fails",
            f"LookupError: no model (registry_project.py, line {line_of(MODULE, 'no model')})",
        ),
    ],
)
def test_an_error_of_user_code_is_reported_with_its_line_and_logged_with_its_traceback(
    target: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", "ambient_runner"):
        said = refusal(f"mine={target}")
    assert (told in said, "without arguments" in said) == (True, False)
    assert [record.levelname for record in caplog.records if record.exc_info] == ["DEBUG"]


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("mine=inner_project/agent.py:instance", "mine=inner_project.agent:instance"),
        ("inner_project/agent.py:instance", "mine=inner_project.agent:instance"),
        ("mine=./registry_project.py:make", "mine=registry_project:make"),
        ("registry_project.py", "mine=registry_project:attribute"),
        ("mine=inner_project/agent:instance", "mine=inner_project.agent:instance"),
        ("mine=127.0.0.1:9000", "mine=http://127.0.0.1:9000/"),
        ("127.0.0.1:9000", "mine=http://127.0.0.1:9000/"),
        ("front=localhost:9000/agents/a", "front=http://localhost:9000/agents/a"),
        ("mine=registry_project:instanc", "Did you mean instance?"),
        ("mine=registry_project:Rooms.iner", "Did you mean Rooms.inner?"),
        ("mine=registry_projct:instance", "Did you mean registry_project?"),
        ("mine=inner_project.agnt:instance", "Did you mean inner_project.agent?"),
        ("dmeo", "Did you mean demo?"),
    ],
)
def test_a_misspelt_target_gets_a_suggestion(spec: str, meant: str) -> None:
    assert meant in refusal(spec)


def test_a_path_above_all_directories_is_still_answered(tmp_path: Path) -> None:
    assert "mine=registry_project:make" in refusal(f"mine={tmp_path / 'registry_project.py'}:make")
    assert "mine=agent:make" in refusal("mine=../elsewhere/agent.py:make")


def test_a_missing_module_is_reported_with_the_directories_that_were_searched(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal("mine=zebra:x")


@pytest.mark.parametrize(
    ("missing", "install"),
    [
        ("langgraph", "ambient-runner[langgraph]"),
        ("langchain_core", "ambient-runner[langgraph]"),
        ("strands", "ambient-runner[strands]"),
        ("google.adk", "ambient-runner[adk]"),
        ("claude_agent_sdk", "ambient-runner[claude]"),
        ("pydantic_ai", "pydantic-ai-slim[ag-ui]"),
    ],
)
def test_a_missing_framework_is_reported_with_its_install_command(
    missing: str, install: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_project.py").write_text(f"import {missing}")
    monkeypatch.setitem(sys.modules, missing, None)  # what makes an import fail as if it were not there
    assert f"pip install '{install}'" in refusal("mine=broken_project:x")


@pytest.mark.parametrize(
    ("line", "is_adk"), [("from google.adk import agents", True), ("from google.cloud import storage", False)]
)
def test_a_missing_namespace_is_adks_only_if_the_line_imports_adk(
    line: str, is_adk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_project.py").write_text(line)
    for name in [name for name in sys.modules if f"{name}.".startswith("google.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google", None)
    said = refusal("mine=broken_project:x")
    assert ("pip install 'ambient-runner[adk]'" in said, "pip install" in said) == (is_adk, is_adk)


def test_a_framework_that_a_factory_misses_is_reported_with_its_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_project.py").write_text("def make():\n    import claude_agent_sdk")
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    assert "(broken_project.py, line 2). Run: pip install 'ambient-runner[claude]'" in refusal(
        "mine=broken_project:make"
    )


def test_a_part_that_an_installed_framework_lacks_is_not_mended_by_installing_it(tmp_path: Path) -> None:
    (tmp_path / "broken_project.py").write_text("import langgraph.checkpoint.of_nobody")
    said = refusal("mine=broken_project:x")
    assert ("No module named 'langgraph.checkpoint.of_nobody'" in said, "pip install" in said) == (True, False)


def test_a_file_of_the_current_directory_replaces_no_installed_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that works in this directory could have written it."""
    (tmp_path / "h11.py").write_text("raise RuntimeError('executed')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    load_agent("demo")
    assert str(tmp_path) not in sys.path
    (tmp_path / "own_agent_4711.py").write_text(
        "from ambient_runner.bridges.demo import DemoBridge\nbridge = DemoBridge()\n"
    )
    load_agent("mine=own_agent_4711:bridge")
    assert sys.path[-1] == str(tmp_path)
