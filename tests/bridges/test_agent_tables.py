"""Agents as tables in `ambient.toml`, from the file to the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, Timeouts, create_app
from ambient_runner.bridges.registry import load_agent, load_agents
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from tests.server.demo_server import client_of, frames, run_body


@dataclass(frozen=True, kw_only=True)
class Style:
    color: str = "black"
    width: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    steps: int = 10
    styles: list[Style] | None = None


class OptionBridge(PlatformBridge):
    """Answers with its options."""

    settings_types = {"limits": Limits}

    def __init__(
        self,
        agent: Any = None,
        *,
        greeting: str = "hello",
        loud: bool = False,
        wait: float = 0.0,
        names: tuple[str, ...] = (),
        hook: Any = None,
        limits: Limits | None = None,
    ) -> None:
        self.options = {
            "agent": getattr(agent, "__name__", agent),
            "greeting": greeting,
            "loud": loud,
            "wait": wait,
            "names": list(names),
            "limits": limits,
        }

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Any:
        raise NotImplementedError


def an_agent() -> None:
    raise NotImplementedError


EXISTING = OptionBridge()
HERE = "tests.bridges.test_agent_tables"


def settings_of(directory: Path, text: str) -> Any:
    file = directory / "ambient.toml"
    file.write_text(f'store = "memory://"\n{text}')
    return read_settings(file, {})


def options_of(directory: Path, text: str) -> dict[str, Any]:
    bridge = load_agents(settings_of(directory, f"[agents.mine]\n{text}").agents)["mine"]
    assert isinstance(bridge, OptionBridge)
    return bridge.options


def refusal(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_agents(settings_of(directory, text).agents)
    return caught.value.message


async def test_tables_and_lines_are_served_together_in_their_order(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '[agents]\nfirst = "demo"\n[agents.second]\nbridge = "demo"\n')
    bridges = load_agents(settings.agents)
    assert list(bridges) == ["first", "second"]
    async with client_of(create_app(settings, bridges)) as client:
        for name in ("first", "second"):
            events = [
                event for _, event in frames(await client.post(f"/agents/{name}", json=run_body("say hi", thread=name)))
            ]
            assert events[-1]["type"] == "RUN_FINISHED"


def test_the_options_of_a_bridge_are_its_keywords_and_the_fields_of_its_settings_types(tmp_path: Path) -> None:
    options = options_of(
        tmp_path,
        f'use = "{HERE}:OptionBridge"\n'
        'greeting = "hi"\nloud = true\nwait = "2m"\nnames = ["a", "b"]\nsteps = 3\nstyles = [{ color = "red", width = 2 }]\n',
    )
    limits = Limits(steps=3, styles=[Style(color="red", width=2)])
    assert options == {
        "agent": None,
        "greeting": "hi",
        "loud": True,
        "wait": 120.0,
        "names": ["a", "b"],
        "limits": limits,
    }


def test_a_bridge_is_called_with_the_object_at_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_option_bridge(_name: str, *, is_table: bool) -> object:
        assert is_table
        return OptionBridge

    monkeypatch.setattr("ambient_runner.bridges.registry._registered_object", find_option_bridge)
    options = options_of(tmp_path, f'bridge = "option"\nuse = "{HERE}:an_agent"\ngreeting = "hi"\n')
    assert (options["agent"], options["greeting"]) == ("an_agent", "hi")


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        (f'use = "{HERE}:OptionBridge"\ngreting = "hi"', "unknown key greting. Did you mean greeting?"),
        (f'use = "{HERE}:OptionBridge"\nsteeps = 3', "unknown key steeps. Did you mean steps?"),
        (f'use = "{HERE}:OptionBridge"\nstyles = [{{ colour = "red" }}]', "unknown key colour. Did you mean color?"),
        (f'use = "{HERE}:OptionBridge"\nzzz = 3', "Known are"),
        (f'use = "{HERE}:OptionBridge"\nloud = 3', "loud must be true or false"),
        (f'use = "{HERE}:OptionBridge"\nsteps = "many"', "steps must be a whole number"),
        (f'use = "{HERE}:OptionBridge"\nwait = "soon"', "wait must be a number, or a duration"),
        (f'use = "{HERE}:EXISTING"\ngreeting = "hi"', "Set them where it is created, or use its class."),
        ('greeting = "hi"', "neither bridge nor use"),
        ('bridge = "dmeo"', "Did you mean demo?"),
        ('use = "demo"', "bridge = 'demo'"),
        ('use = "my_project/agent.py:graph"', "use = 'my_project.agent:graph'"),
        ('bridge = "demo"\ntimeouts = { idl = "30m" }', "Did you mean idle?"),
        ('bridge = "demo"\ntimeouts = { idle = "soon" }', "agents.mine.timeouts.idle"),
        ('bridge = "demo"\ntimeouts = "30m"', "must be a table"),
        ("bridge = 3", "agents.mine.bridge"),
    ],
)
def test_a_wrong_table_is_refused_with_what_to_write(tmp_path: Path, table: str, hint: str) -> None:
    message = refusal(tmp_path, f"[agents.mine]\n{table}\n")
    assert hint in message
    assert "mine" in message


@pytest.mark.parametrize(
    ("bridge", "options", "wrong", "nearest"),
    [
        ("adk", 'app_name = "shop"\nuse_in_memory_services = true', "app_nam", "app_name"),
        ("claude", 'permission_mode = "plan"\nturn_timeout = "5m"', "permision_mode", "permission_mode"),
        ("demo", "", "new_di", "new_id"),
        (
            "langgraph",
            'url = "http://127.0.0.1:9"\nrecursion_limit = 5\ninterrupt_timeout = "1h"',
            "recursion_limt",
            "recursion_limit",
        ),
        (
            "strands",
            f'use = "{HERE}:an_agent"\nmax_turns = 5\ntool_behaviors = {{ pay = {{ interrupt_on_call = true }} }}',
            "max_turn",
            "max_turns",
        ),
    ],
)
def test_every_registered_bridge_takes_a_table(
    tmp_path: Path, bridge: str, options: str, wrong: str, nearest: str
) -> None:
    pytest.importorskip({"adk": "google.adk", "claude": "claude_agent_sdk", "demo": "json"}.get(bridge, bridge))
    table = f'[agents.mine]\nbridge = "{bridge}"\n{options}\n'
    assert list(load_agents(settings_of(tmp_path, table).agents)) == ["mine"]
    assert f"Did you mean {nearest}?" in refusal(tmp_path, f"{table}{wrong} = 1\n")


def test_a_url_takes_options_of_the_remote_bridge(tmp_path: Path) -> None:
    table = '[agents.far]\nuse = "https://agents.example.com/"\nheaders = { X-Team = "red" }\nlimits = { run = 1000 }\n'
    assert list(load_agents(settings_of(tmp_path, table).agents)) == ["far"]
    assert "Did you mean headers?" in refusal(tmp_path, f"{table}header = 1\n")


def test_an_agent_has_its_own_timeouts(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        '[timeouts]\nidle = "1m"\ntotal = "2m"\n[agents]\nplain = "demo"\n'
        '[agents.slow]\nbridge = "demo"\ntimeouts = { idle = "30m", total = "12h" }\n',
    )
    assert settings.timeouts_for("slow") == Timeouts(idle=1800.0, total=43200.0)
    assert settings.timeouts_for("plain") == Timeouts(idle=60.0, total=120.0)


async def test_a_run_ends_at_the_timeout_of_its_agent(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '[agents.quick]\nbridge = "demo"\ntimeouts = { total = "200ms" }\n')
    async with client_of(create_app(settings, load_agents(settings.agents))) as client:
        events = [event for _, event in frames(await client.post("/", json=run_body("hang")))]
    assert (events[-1]["type"], "0.2 seconds" in events[-1]["message"]) == ("RUN_ERROR", True)


def test_a_configured_agent_is_found_by_its_name(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f'[agents.mine]\nuse = "{HERE}:OptionBridge"\ngreeting = "hi"\n')
    name, bridge = load_agent("mine", settings.agents)
    assert (name, isinstance(bridge, OptionBridge)) == ("mine", True)


def test_credentials_in_a_table_are_secrets_and_do_not_show(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        '[agents.far]\nuse = "https://agents.example.com/"\nheaders = { Authorization = "Bearer abcdefgh12345" }\n'
        '[agents.graph]\nbridge = "langgraph"\nurl = "http://127.0.0.1:9"\napi_key = "key-abcdefgh"\n',
    )
    assert {"Bearer abcdefgh12345", "abcdefgh12345", "key-abcdefgh"} <= set(settings.secrets)
    assert "abcdefgh" not in repr(settings)


def test_the_command_line_chooses_configured_agents_by_name(tmp_path: Path) -> None:
    file = tmp_path / "ambient.toml"
    file.write_text('[agents]\nline = "demo"\n[agents.table]\nbridge = "demo"\ntimeouts = { idle = "5m" }\n')
    settings = read_settings(file, {}, agents=["table", "other=demo", "line"])
    assert list(load_agents(settings.agents)) == ["table", "other", "line"]
    assert settings.timeouts_for("table").idle == 300.0


def test_a_misspelt_configured_agent_is_suggested(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '[agents.support]\nbridge = "demo"\n')
    with pytest.raises(ConfigError, match="Did you mean support"):
        load_agent("suport", settings.agents)
    chosen = read_settings(tmp_path / "ambient.toml", {}, agents=["suport"])
    with pytest.raises(ConfigError, match="Did you mean support"):
        load_agents(chosen.agents, chosen.configured_agents)


@pytest.mark.parametrize(
    ("table", "words", "absent"),
    [
        ('bridge = "demo"\ntimeouts = { grace = 5 }', "Only idle and total can be set per agent.", "Did you mean"),
        ('bridge = "nothing-like-it"', 'use = "package.module:attribute"', "name=package.module:attribute"),
        ('brige = "demo"', "unknown key brige. Did you mean bridge?", "neither"),
        ("greeting = 1", "neither bridge nor use", "Did you mean"),
    ],
)
def test_advice_about_a_table_is_in_the_syntax_of_tables(tmp_path: Path, table: str, words: str, absent: str) -> None:
    message = refusal(tmp_path, f"[agents.mine]\n{table}\n")
    assert (words in message, absent in message) == (True, False)


def test_agents_of_the_file_can_be_chosen_by_variable_and_by_the_command_line(tmp_path: Path) -> None:
    """`AMBIENT_AGENTS` hid the tables, so that their names were taken for bridges."""
    file = tmp_path / "ambient.toml"
    file.write_text('[agents.helper]\nbridge = "demo"\ntimeouts = { idle = "5m" }\n[agents.other]\nbridge = "demo"\n')
    by_variable = read_settings(file, {"AMBIENT_AGENTS": "helper"})
    assert (list(load_agents(by_variable.agents)), by_variable.timeouts_for("helper").idle) == (["helper"], 300.0)
    both = read_settings(file, {"AMBIENT_AGENTS": "x=demo"}, agents=["helper", "x"])
    assert (list(load_agents(both.agents)), both.timeouts_for("helper").idle) == (["helper", "x"], 300.0)
    hidden = read_settings(file, {"AMBIENT_AGENTS": "x=demo"})
    assert list(load_agents(hidden.agents)) == ["x"]
    assert {load_agent(name, hidden.configured_agents)[0] for name in ("x", "helper", "other")} == {
        "x",
        "helper",
        "other",
    }


def test_an_agent_that_the_variable_redefines_has_no_timeouts_of_the_table(tmp_path: Path) -> None:
    file = tmp_path / "ambient.toml"
    file.write_text('[agents.helper]\nbridge = "demo"\ntimeouts = { idle = "5m" }\n')
    settings = read_settings(file, {"AMBIENT_AGENTS": "helper=demo"}, agents=["helper"])
    assert settings.agents == ("helper=demo",)


@pytest.mark.parametrize("timeout", ["-5", "'-5'", "0", "nan", "inf"])
def test_a_duration_of_a_bridge_is_above_zero_however_it_is_written(tmp_path: Path, timeout: str) -> None:
    """`interrupt_timeout = -5` was accepted, and `"-5"` refused."""
    pytest.importorskip("claude_agent_sdk")
    table = f'[agents.mine]\nbridge = "claude"\ninterrupt_timeout = {timeout}\n'
    assert "interrupt_timeout" in refusal(tmp_path, table)
