"""`ambient run` with a command-line agent: its questions in the terminal, and why it did not start. With the fake agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.bridges.acp.world import fake_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(ambient: Callable[..., Any], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Runs the fake agent with a message, the lines of standard input, and its options."""

    def call(message: str, stdin: str = "", **options: str) -> tuple[int, str, str]:
        command = json.dumps(fake_command(**options))
        (tmp_path / "ambient.toml").write_text(f'[agents.mine]\nbridge = "acp"\ncommand = {command}\nsandbox = "off"\n')
        return ambient("run", "mine", message, "--thread", "t1", stdin=stdin)

    return call


def test_a_url_is_shown_and_answered_with_y(run: Callable[..., tuple[int, str, str]]) -> None:
    """The address was not shown, and a JSON object was asked for."""
    code, out, _ = run("elicit url", "y\n")
    assert (code, "Open in your browser: https://example.com/sign-in\ndone [y/n]: " in out) == (0, True)
    assert '"accept"' in out


def test_one_line_allows_a_call_once(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("ask echo one", "y\n")
    assert (code, '"decision": "allow"' in out) == (0, True)


@pytest.mark.parametrize("style", ["claude", "codex", "gemini", "opencode"])
def test_each_of_several_questions_names_its_call(run: Callable[..., tuple[int, str, str]], style: str) -> None:
    code, out, _ = run("ask2 0", "y\ny\n", style=style)
    questions = [part for part in out.split("wants to use")[1:] if "number [" in part]
    assert (code, len(questions)) == (0, 2)
    assert [
        "echo one" in questions[0].partition("number [")[0],
        "echo two" in questions[1].partition("number [")[0],
    ] == [
        True,
        True,
    ]


def test_the_questions_of_a_process_that_ends_with_the_command_lapse(run: Callable[..., tuple[int, str, str]]) -> None:
    """It said that the thread waits for an answer."""
    code, _, err = run("ask echo one then ask echo two", "")
    assert (code, "The thread waits" in err, "lapse" in err, "--thread t1" in err) == (3, False, True, True)


def test_an_agent_that_does_not_start_says_what_it_wrote(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("say hi", exit="3")
    assert (code, "[error]" in out) == (1, True)
    assert (err.count("fatal: the fake agent does not start"), "PeerClosed" in err) == (1, False)
