"""Options of a bridge are checked when it is created."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from ambient_runner.bridges.toolkit.option_check import build_config, check_choices, check_command, is_installed
from ambient_runner.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Options:
    model: str = ""
    timeout: float = 1.0


def test_known_options_become_the_configuration() -> None:
    assert build_config("TestBridge", Options, {"model": "m"}) == Options(model="m")


@pytest.mark.parametrize(("name", "hint"), [("modle", "model"), ("xyz", "timeout")])
def test_an_unknown_option_is_refused_with_a_known_one(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_config("TestBridge", Options, {name: 1})
    assert all(word in raised.value.message for word in ("TestBridge", name, hint))


def test_a_value_that_is_not_allowed_is_refused() -> None:
    check_choices("TestBridge", "home", ["user"], ("user", "thread"))
    with pytest.raises(ConfigError):
        check_choices("TestBridge", "home", ["user", "other"], ("user", "thread"))


def test_a_command_is_a_list() -> None:
    check_command("TestBridge", "command", ["my-agent", "--acp"])
    with pytest.raises(ConfigError):
        check_command("TestBridge", "command", "my-agent --acp")


@pytest.mark.parametrize(("program", "expected"), [(sys.executable, True), ("no-such-program", False)])
def test_a_program_is_looked_up_by_name_or_path(program: str, expected: bool) -> None:
    assert is_installed(program) is expected


def test_a_program_is_looked_up_in_the_given_path() -> None:
    assert not is_installed("sh", search_path="/nonexistent")
