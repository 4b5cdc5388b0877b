"""Repositories that are small until git unfolds them: counted before they are checked out, and git's own memory has an end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ambient_runner.errors import RepoTooLarge
from ambient_runner.services.workspaces.clone import CloneLimits
from ambient_runner.services.workspaces.git import Git
from ambient_runner.services.workspaces.repos import Repos
from ambient_runner.services.workspaces.workflows import Workflows
from ambient_runner.services.workspaces.workspaces import Workspaces
from tests.machine_speed import unless_hung
from tests.services.remotes import ANN, HERE, NOTHING, PATH, QUIET, Steps, git, make_repo
from tests.services.world import world


def folded(directory: Path, levels: int, width: int = 10) -> str:
    """A repository of one file that its trees name `width` ** `levels` times."""
    directory.mkdir(parents=True)
    git(directory, "init", "-q", "-b", "main")
    kind, inner = "100644 blob", _stored(directory, "x\n", "hash-object", "-w", "--stdin")
    for _ in range(levels):
        inner = _stored(directory, "".join(f"{kind} {inner}\t{number}\n" for number in range(width)), "mktree")
        kind = "040000 tree"
    git(directory, "update-ref", "refs/heads/main", git(directory, "commit-tree", "-m", "x", inner))
    return str(directory)


def _stored(directory: Path, text: str, *args: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=directory, env=QUIET, check=True, capture_output=True, input=text, text=True
    )
    return done.stdout.strip()


def noting_git(directory: Path) -> dict[str, str]:
    """A PATH whose git logs its arguments before it runs."""
    directory.mkdir()
    script = directory / "git"
    script.write_text(f'#!/bin/sh\necho "$@" >> {directory}/arguments\nPATH={PATH["PATH"]} exec git "$@"\n')
    script.chmod(0o755)
    return {"PATH": f"{directory}:{PATH['PATH']}"}


async def test_a_tree_with_too_many_files_is_refused_before_it_is_checked_out(tmp_path: Path) -> None:
    """A repository of 24 kB made git hold ten million names in memory: the limit looked at the disk, where nothing was yet."""
    base = noting_git(tmp_path / "bin")
    async with Workspaces(
        tmp_path / "root", rules=HERE, limits=CloneLimits(max_files=10_000), git_environment=base
    ) as workspaces:
        job = await Repos(workspaces).add(ANN, folded(tmp_path / "bomb", levels=6), environment=NOTHING)
        with unless_hung(), pytest.raises(RepoTooLarge):
            await job.wait_for_result()
    arguments = (tmp_path / "bin" / "arguments").read_text()
    assert " clone " in arguments
    assert " checkout " not in arguments


async def test_a_workflow_with_too_many_files_is_refused_as_well(tmp_path: Path) -> None:
    async with world(tmp_path, limits=CloneLimits(max_files=10_000)) as it:
        job = await Workflows(it.workspaces).change(ANN, folded(tmp_path / "srv" / "bomb", 6), environment=NOTHING)
        with unless_hung(), pytest.raises(RepoTooLarge):
            await job.wait_for_result()


async def test_a_tree_that_is_just_within_the_limit_is_cloned(tmp_path: Path) -> None:
    async with world(tmp_path, limits=CloneLimits(max_files=1_500)) as it:
        added = await it.add(folded(tmp_path / "srv" / "many", levels=3))
        assert len([path for path in added.path.rglob("*") if path.is_file() and ".git" not in path.parts]) == 1000
        assert git(added.path, "status", "--porcelain") == ""


async def test_the_memory_of_git_and_its_children_is_limited() -> None:
    printed = await Git(base_environment=PATH, max_memory=1 << 30).run("-c", "alias.limit=!ulimit -v", "limit")
    assert int(printed) == (1 << 30) >> 10


async def test_git_that_runs_out_of_memory_reports_that_the_repository_is_too_large(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app", {"large": b"x" * (80 << 20)})
    with pytest.raises(RepoTooLarge):
        await Git(base_environment=PATH, max_memory=48 << 20).run("grep", "-c", "x", "HEAD", cwd=repo)


async def test_the_checkout_reports_its_progress(tmp_path: Path) -> None:
    base, steps = PATH | {"GIT_PROGRESS_DELAY": "0"}, Steps()
    async with Workspaces(tmp_path / "root", rules=HERE, git_environment=base) as workspaces:
        url = folded(tmp_path / "many", levels=4, width=12)
        job = await Repos(workspaces).add(ANN, url, environment=NOTHING, on_progress=steps)
        with unless_hung():
            await job.wait_for_result()
    assert "checking out" in [step.phase for step in steps.steps]
