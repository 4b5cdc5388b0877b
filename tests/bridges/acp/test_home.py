"""The home directory of a thread's agent is written by the server, outside of the sandbox. The agent can change everything in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.bridges.acp.home import AgentHome
from ambient_runner.errors import ServiceError


def own_home(workspace: Path, text: str = "new") -> AgentHome:
    return AgentHome(path=workspace / ".ambient" / "home-codex", is_own=True, files={".codex/config.toml": text})


def test_a_home_has_its_files(tmp_path: Path) -> None:
    own_home(tmp_path, "old").write()
    own_home(tmp_path, "new").write()
    assert (tmp_path / ".ambient/home-codex/.codex/config.toml").read_text() == "new"


def test_the_users_own_home_is_not_written_to(tmp_path: Path) -> None:
    AgentHome(path=tmp_path, files={".codex/config.toml": "new"}).write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("link", [".codex", "..", "."])
def test_a_directory_that_the_agent_replaced_by_a_link_is_not_followed(tmp_path: Path, link: str) -> None:
    """The server wrote `config.toml` into whatever directory the agent's link named, such as the user's own `~/.codex`."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    (outside / "home-codex" / ".codex").mkdir(parents=True)
    (outside / ".codex").mkdir()
    replaced = Path(workspace / ".ambient" / "home-codex" / link).resolve()
    replaced.parent.mkdir(parents=True)
    replaced.symlink_to(outside)
    with pytest.raises(ServiceError):
        own_home(workspace).write()
    assert list(outside.rglob("config.toml")) == []


@pytest.mark.parametrize("content", [b"\xff", b"x" * 10_000])
def test_a_file_that_the_agent_changed_is_replaced(tmp_path: Path, content: bytes) -> None:
    """A file that was not UTF-8 text failed every further start."""
    own_home(tmp_path).write()
    file = tmp_path / ".ambient/home-codex/.codex/config.toml"
    file.write_bytes(content)
    own_home(tmp_path).write()
    assert file.read_text() == "new"


def test_a_file_that_the_agent_replaced_by_a_link_is_replaced(tmp_path: Path) -> None:
    own_home(tmp_path).write()
    file, outside = tmp_path / ".ambient/home-codex/.codex/config.toml", tmp_path / "outside"
    outside.write_text("mine")
    file.unlink()
    file.symlink_to(outside)
    own_home(tmp_path).write()
    assert (file.read_text(), file.is_symlink(), outside.read_text()) == ("new", False, "mine")
