"""`ambient agents login`, with the fake agent."""

from __future__ import annotations

import shlex
from pathlib import Path

from typer.testing import CliRunner

from ambient_runner.cli.main import app
from ambient_runner.errors import ConfigError, RunnerError
from tests.bridges.acp.world import fake_command


def _login(tmp_path: Path, command: list[str]) -> tuple[int, str]:
    config = tmp_path / "ambient.toml"
    config.write_text(f'[agents]\nmine = "acp:{shlex.join(command)}"\n')
    result = CliRunner().invoke(app, ["agents", "login", "mine", "--config", str(config)])
    message = result.exception.message if isinstance(result.exception, RunnerError) else ""
    return result.exit_code, f"{result.output}{message}"


def test_the_only_way_to_sign_in_is_taken(tmp_path: Path) -> None:
    code, output = _login(tmp_path, fake_command(auth="yes"))
    assert (code, output.splitlines()[-1]) == (0, "mine is signed in.")


def test_an_agent_that_ends_says_what_it_wrote(tmp_path: Path) -> None:
    code, output = _login(tmp_path, fake_command(exit="3"))
    assert (code, output) == (1, "The agent did not start: it has ended.\nfatal: the fake agent does not start")


def test_an_agent_of_another_kind_has_no_login(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["agents", "login", "demo"])
    assert isinstance(result.exception, ConfigError)
