"""Workspaces and stores are mostly below a project of the developer's, which is a git repository. They are no part of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ambient_runner.ledger import open_ledger
from tests.server.worker import WorkerBridge
from tests.services.remotes import git, make_repo
from tests.services.world import repository, server, settings_of, talk


async def test_an_agents_git_does_not_find_the_project_around_its_workspace(tmp_path: Path) -> None:
    project = make_repo(tmp_path / "project", {"main.py": "print()"})
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(project)) as client:
        await talk(client, "hello", "u1")
        url = repository(tmp_path / "app", {"a.txt": "hello"})
        added = await client.post("/repos/add", json={"threadId": "t", "url": url})
        assert added.status_code == 200, added.text
        await talk(client, "again", "u2")
    (_, without, environment), (_, with_one, _) = bridge.children
    found = [
        subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=directory, env=environment, stdout=subprocess.PIPE)  # noqa: ASYNC221
        for directory in (without, with_one)
    ]
    assert [(one.returncode != 0, one.stdout.decode().strip()) for one in found] == [(True, ""), (False, with_one)]


async def test_git_takes_no_conversation_along(tmp_path: Path) -> None:
    project = make_repo(tmp_path / "project", {"main.py": "print()"})
    async with open_ledger(f"sqlite:///{project}/.ambient/ambient.db"):
        pass
    assert git(project, "status", "--porcelain") == ""


async def test_git_takes_no_workspace_along(tmp_path: Path) -> None:
    project = make_repo(tmp_path / "project", {"main.py": "print()"})
    settings = settings_of(tmp_path, workspace=str(project / ".ambient" / "workspaces"))
    async with server(WorkerBridge(mcp=False), settings) as client:
        await talk(client, "hello", "u1")
    assert git(project, "status", "--porcelain") == ""
    assert (project / ".ambient").stat().st_mode & 0o077 == 0
