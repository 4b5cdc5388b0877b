"""Settings of a command: which are refused, and with which advice; and what the bridge declares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.bridges.base import DescribesIsolation
from ambient_runner.bridges.registry import load_agent
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.lines import LinesBridge

COMMAND = [sys.executable]


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, "needs a command"),
        ({"command": "my-cli --json"}, "a list of words"),
        ({"command": ["no-such-program-4711"]}, "no-such-program-4711 was not found"),
        ({"command": COMMAND, "env": {"PATH": "/nowhere"}, "resume_command": ["python3", "{session}"]}, "not found"),
        ({"command": COMMAND, "comand": COMMAND}, "Did you mean command"),
        ({"command": COMMAND, "idle_second": 1}, "Did you mean idle_seconds"),
        ({"command": COMMAND, "xyz": 1}, "The options are"),
        ({"command": COMMAND, "format": "xml"}, "'text', 'json', 'auto'"),
        ({"command": COMMAND, "end": "never"}, "'exit', 'notify', 'idle'"),
        ({"command": COMMAND, "notify": "socket"}, "'file', 'fifo'"),
        ({"command": COMMAND, "home": "none"}, "'auto', 'user', 'thread'"),
        ({"command": COMMAND, "resume_command": COMMAND}, "{session}"),
        ({"command": COMMAND, "resume_command": [*COMMAND, "{session}"], "format": "text"}, 'format = "json"'),
        ({"command": ["sh", "-c", "echo {prompt}"]}, "shell script"),
        ({"command": ["env", "/bin/bash", "-lc", "{prompt}"]}, "shell script"),
        ({"command": COMMAND, "cwd": "relative"}, "absolute path"),
        ({"command": COMMAND, "idle_seconds": 0}, "more than 0"),
        ({"command": COMMAND, "turn_timeout": -1}, "more than 0"),
        ({"command": COMMAND, "processes": 0}, "at least 1"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_advice(settings: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LinesBridge(**settings)
    assert advice in refused.value.message


def test_a_prompt_can_be_a_word_for_a_shell_script() -> None:
    LinesBridge(["sh", "-c", 'echo "$1"', "sh", "{prompt}"])


def test_a_table_of_the_settings_file_makes_a_bridge(tmp_path: Path) -> None:
    file = tmp_path / "ambient.toml"
    file.write_text(
        f"""
        [agents.mine]
        bridge = "lines"
        command = ["{sys.executable}", "-c", "print('hi')"]
        format = "text"
        idle_seconds = 3
        env = {{ A = "b" }}
        """
    )
    [agent] = read_settings(config=file, environ={}).agents
    name, bridge = load_agent(agent)
    assert name == "mine"
    assert isinstance(bridge, LinesBridge)
    assert (bridge.config.format, bridge.config.idle_seconds, bridge.config.env) == ("text", 3.0, {"A": "b"})


@pytest.mark.parametrize(("output_format", "has_tools"), [("text", False), ("json", True)])
def test_capabilities_follow_the_settings(output_format: str, *, has_tools: bool) -> None:
    resume = [*COMMAND, "{session}"] if has_tools else []
    declared = LinesBridge(COMMAND, format=output_format, resume_command=resume).capabilities()
    assert (declared.tool_use, declared.thinking, declared.session_persistence) == (has_tools,) * 3
    assert not declared.mcp


def test_nobody_limits_the_command_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    bridge = LinesBridge(COMMAND)
    assert isinstance(bridge, DescribesIsolation)
    assert bridge.describe_isolation()["enforcedBy"] == "nobody"
    assert "Nobody limits" in caplog.text
