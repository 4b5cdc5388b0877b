"""Permission rules in `ambient.toml`: what is accepted, and what is refused with the nearest known name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ambient_runner.config import PermissionRule, Settings, read_settings
from ambient_runner.errors import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rules_of(text: str) -> tuple[PermissionRule, ...]:
    Path("ambient.toml").write_text(text, encoding="utf-8")
    return read_settings(environ={}).permissions


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        rules_of(text)
    return caught.value.message


def rule_refusal(body: str) -> str:
    return refusal(f"[[permissions]]\n{body}\n")


def test_there_are_no_rules_by_default() -> None:
    assert Settings().permissions == ()
    assert rules_of("port = 1") == ()


def test_rules_are_read_in_their_order_with_all_conditions() -> None:
    rules = rules_of(
        """
        port = 1

        [[permissions]]
        tool = "Bash"
        command = ["git", "status"]
        decide = "allow"

        [[permissions]]
        kind = "edit"
        path = "docs"
        agent = "codex"
        decide = "ask"

        [[permissions]]
        decide = "deny"
        """
    )
    assert rules == (
        PermissionRule(tool="Bash", command=("git", "status"), decide="allow"),
        PermissionRule(kind="edit", path="docs", agent="codex", decide="ask"),
        PermissionRule(decide="deny"),
    )


def test_a_rule_is_shown_as_it_can_be_written() -> None:
    rule = PermissionRule(tool="Bash", command=("git", "log", "*"), decide="allow")
    assert str(rule) == 'tool = "Bash", command = ["git", "log", "*"], decide = "allow"'
    assert rules_of(f"permissions = [{{ {rule} }}]") == (rule,)


@pytest.mark.parametrize(
    ("body", "nearest"),
    [
        ('comand = ["git"]\ndecide = "allow"', "command?"),
        ('tools = "Bash"\ndecide = "allow"', "tool?"),
        ('tool = "Bash"\ndecide = "alow"', "allow?"),
        ('tool = "Bash"\ndecide = "denied"', "deny?"),
        ('kind = "exec"\ndecide = "ask"', "execute?"),
        ('kind = "edits"\ndecide = "ask"', "edit?"),
    ],
)
def test_an_unknown_key_or_value_is_refused_with_the_nearest_known_one(body: str, nearest: str) -> None:
    message = rule_refusal(body)
    assert nearest in message
    assert "[[permissions]] number 1 in ambient.toml" in message


@pytest.mark.parametrize(
    "body",
    [
        'tool = "Bash"',
        'tool = ""\ndecide = "ask"',
        'tool = 5\ndecide = "ask"',
        'tool = "*Bash"\ndecide = "ask"',
        'tool = "mcp__*__x"\ndecide = "ask"',
        'kind = "switch_mode"\ndecide = "allow"',
        'path = "~/notes"\ndecide = "deny"',
        'path = "a\\u0000b"\ndecide = "deny"',
        'path = ["a"]\ndecide = "deny"',
        'command = "git status"\ndecide = "allow"',
        'command = []\ndecide = "allow"',
        'command = ["git status"]\ndecide = "allow"',
        'command = ["git", ""]\ndecide = "deny"',
        'command = ["git", 5]\ndecide = "allow"',
        'command = ["*"]\ndecide = "allow"',
        'command = ["git", "*", "status"]\ndecide = "allow"',
        'command = ["PAGER=less", "git"]\ndecide = "allow"',
        "decide = true",
    ],
)
def test_a_rule_that_cannot_work_is_refused(body: str) -> None:
    assert "[[permissions]] number 1 in ambient.toml" in rule_refusal(body)


@pytest.mark.parametrize("word", ["a;b", "$HOME", "a|b", "`x`", "a*", "'x'", "~", "=ls", "a\\b", "é"])
def test_a_word_that_no_allowed_command_can_have_is_refused_in_an_allow_rule_only(word: str) -> None:
    words = f'command = ["echo", {json.dumps(word)}]'
    assert "never" in rule_refusal(f'{words}\ndecide = "allow"')
    assert rules_of(f'[[permissions]]\n{words}\ndecide = "deny"\n')[0].command == ("echo", word)


@pytest.mark.parametrize("body", ["", 'agent = "codex"\n', 'tool = "*"\n'])
def test_a_rule_that_would_allow_every_call_is_refused(body: str) -> None:
    assert "every call" in rule_refusal(f'{body}decide = "allow"')


@pytest.mark.parametrize("text", ['[permissions]\ndecide = "ask"', 'permissions = "ask"', 'permissions = ["ask"]'])
def test_rules_are_a_list_of_tables(text: str) -> None:
    assert "[[permissions]]" in refusal(text)


def test_a_misspelled_list_of_rules_is_refused_with_the_right_name() -> None:
    assert "permissions?" in refusal('[[permission]]\ntool = "Bash"\ndecide = "ask"')


def test_the_number_of_the_wrong_rule_is_named() -> None:
    text = '[[permissions]]\ndecide = "ask"\n\n[[permissions]]\ntool = "Bash"\n'
    assert "number 2" in refusal(text)
