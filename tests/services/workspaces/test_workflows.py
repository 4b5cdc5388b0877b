"""Workflows, with real git. Faults S2 and C8 of the reference have a test here that its behavior fails."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ambient_runner.errors import Forbidden, InvalidInput, RepoConflict, ServiceError
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.services.workspaces.clone_sources import SourceRules
from ambient_runner.services.workspaces.manifest import Rubric, WorkflowConfig
from ambient_runner.services.workspaces.workflows import WorkflowChange, Workflows
from ambient_runner.services.workspaces.workspaces import Workspaces
from tests.machine_speed import unless_hung
from tests.services.remotes import ANN, BOB, HERE, NOTHING, PATH, Steps, git, git_server, make_repo

CONFIG = {
    "name": "Triage",
    "description": "Sorts what comes in",
    "systemPrompt": "You sort.",
    "startupPrompt": "Say hello.",
    "rubric": {"activationPrompt": "When done", "schema": {"type": "object"}},
}
TRIAGE = WorkflowConfig(
    name="Triage",
    description="Sorts what comes in",
    system_prompt="You sort.",
    startup_prompt="Say hello.",
    rubric=Rubric(activation_prompt="When done", schema={"type": "object"}, text="# Be fair\n"),
)
FILES = {".ambient/ambient.json": json.dumps(CONFIG), ".ambient/rubric.md": "# Be fair\n", "notes.md": "x"}


class World:
    def __init__(self, directory: Path, *, rules: SourceRules = HERE) -> None:
        self.directory = directory
        self.workspaces = Workspaces(directory / "root", rules=rules, git_environment=PATH)
        self.workflows = Workflows(self.workspaces)
        self.prepare = self.workspaces.prepare

    def make(self, name: str = "flows", files: Mapping[str, str] = FILES, **options: Any) -> str:
        return str(make_repo(self.directory / "srv" / name, files, **options))

    async def change(self, url: str, thread: ThreadKey = ANN, **options: Any) -> WorkflowChange:
        with unless_hung():
            job = await self.workflows.change(thread, url, **{"environment": NOTHING, **options})
            return await job.wait_for_result()


@asynccontextmanager
async def world(directory: Path, *, rules: SourceRules = HERE) -> AsyncGenerator[World, None]:
    made = World(directory, rules=rules)
    async with made.workspaces:
        yield made


async def test_the_next_run_works_in_the_chosen_workflow(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make()
        steps = Steps()
        assert await it.change(url, on_progress=steps) == WorkflowChange(
            outcome="updated", url=f"file://{url}", branch="", path="", config=TRIAGE
        )
        workspace = await it.prepare(ANN)
        assert workspace.workflow
        assert workspace.cwd_path == workspace.workflow.directory == workspace.path / "workflows/flows"
        assert workspace.workflow.config == TRIAGE
        assert workspace.add_dirs == (workspace.artifacts, workspace.uploads)
        assert git(workspace.cwd_path, "symbolic-ref", "HEAD") == "refs/heads/ambient/trip"
        assert steps.steps[-1].phase == "done"


async def test_the_same_again_is_already_active_and_another_branch_or_path_is_not(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make(files={**FILES, "inner/deep/a.md": "x"}, branches=("dev",))
        outcomes = [
            (await it.change(url, **options)).outcome
            for options in (
                {},
                {},
                {"branch": "dev"},
                {"branch": "dev"},
                {"path": "inner/deep"},
                {"path": "/inner/deep/"},
            )
        ]
        assert outcomes == ["updated", "already active", "updated", "already active", "updated", "already active"]
        assert (await it.prepare(ANN)).cwd_path.parts[-2:] == ("inner", "deep")


async def test_a_workflow_of_the_same_name_is_fetched_next_to_the_one_in_use(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make(branches=("dev",))
        await it.change(url)
        running = await it.prepare(ANN)
        (running.cwd_path / "notes.md").write_text("in use")
        await it.change(url, branch="dev")
        assert (running.cwd_path / "notes.md").read_text() == "in use"
        following = await it.prepare(ANN)
        assert following.cwd_path != running.cwd_path
        assert (following.cwd_path / "notes.md").read_text() == "x"
        assert [path.name for path in (following.path / "workflows").iterdir()] == [following.cwd_path.name]


async def test_a_change_that_fails_is_an_error_and_the_old_workflow_stays(tmp_path: Path) -> None:
    """C8: a failed clone was answered as a success, and the empty directory became the workflow."""
    async with world(tmp_path) as it:
        await it.change(it.make())
        broken = it.make("broken", {".ambient/ambient.json": '{"name": "x",}'})
        before = await it.prepare(ANN)
        for url, options, kind in (
            (str(tmp_path / "nothing-here"), {}, InvalidInput),
            (broken, {}, InvalidInput),
            (broken, {"branch": "no-such"}, InvalidInput),
            (broken, {"path": "no/such"}, InvalidInput),
        ):
            with pytest.raises(kind):
                await it.change(url, **options)
        with git_server(tmp_path / "srv") as server:
            with pytest.raises(ServiceError):
                await it.change(server.url("gone"))
        assert await it.prepare(ANN) == before
        assert list((tmp_path / "root/.records/default/ann/trip/tmp").iterdir()) == []


@pytest.mark.parametrize("path", ["..", "../..", "a/../../..", "./a", "a//b", "a/./b", "a\\..\\b", "a\0b", "x" * 2000])
async def test_a_path_never_leaves_the_workflow(tmp_path: Path, path: str) -> None:
    """S2: the path `../…` copied any readable directory into the workspace."""
    async with world(tmp_path) as it:
        url = it.make()
        with pytest.raises(InvalidInput):
            await it.change(url, path=path)
        assert (await it.prepare(ANN)).workflow is None


@pytest.mark.parametrize("target", ["/etc", "..", "../../../../../..", "inner"])
async def test_a_path_through_a_link_in_the_repository_is_refused(tmp_path: Path, target: str) -> None:
    async with world(tmp_path) as it:
        url = it.make(files={**FILES, "inner/a/b": "x"}, links={"link": target})
        for path in ("link", "link/a"):
            with pytest.raises(InvalidInput):
                await it.change(url, path=path)


@pytest.mark.parametrize("name", [".ambient/ambient.json", ".ambient/rubric.md", ".ambient"])
async def test_a_configuration_that_is_a_link_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/ambient.json").write_text('{"name": "secret-of-the-server"}')
    (tmp_path / "secret/rubric.md").write_text("secret-of-the-server")
    async with world(tmp_path) as it:
        target = tmp_path / "secret" if name == ".ambient" else tmp_path / "secret" / Path(name).name
        url = it.make(files={"notes.md": "x"}, links={name: str(target)})
        with pytest.raises(InvalidInput) as refused:
            await it.change(url)
        assert "secret-of-the-server" not in refused.value.message
        assert (await it.prepare(ANN)).workflow is None


async def test_a_working_directory_that_became_a_link_is_an_error_and_choosing_again_mends_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make(files={"inner/a": "x"})
        await it.change(url, path="inner")
        cwd = (await it.prepare(ANN)).cwd_path
        cwd.rename(tmp_path / "aside")
        cwd.symlink_to("/etc")
        with pytest.raises(ServiceError):
            await it.prepare(ANN)
        assert (await it.change(url, path="inner")).outcome == "updated"
        assert ((await it.prepare(ANN)).cwd_path / "a").read_text() == "x"


@pytest.mark.parametrize(
    "text",
    [
        '{"name": 3}',
        '{"rubric": {"schema": []}}',
        '{"rubric": "x"}',
        "[]",
        '{"name": "x",\n "a" 1}',
        '{"name": "x", "name": "y"}',
        "[" * 10_000,
        '"' + "x" * 300_000 + '"',
    ],
    ids=lambda text: text[:30],
)
async def test_a_malformed_configuration_is_refused_and_nothing_changes(tmp_path: Path, text: str) -> None:
    async with world(tmp_path) as it:
        url = it.make(files={".ambient/ambient.json": text})
        with pytest.raises(InvalidInput):
            await it.change(url)
        workspace = await it.prepare(ANN)
        assert (workspace.workflow, list((workspace.path / "workflows").iterdir())) == (None, [])


async def test_members_that_mean_nothing_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as it:
        url = it.make(files={".ambient/ambient.json": '{"name": "x", "color": "red"}'})
        with caplog.at_level(logging.WARNING):
            assert (await it.change(url)).config == WorkflowConfig(name="x")
        assert [record.args for record in caplog.records] == [((await it.prepare(ANN)).path, "'color'")]


async def test_a_workflow_needs_no_configuration(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert (await it.change(it.make(files={"notes.md": "x"}))).config == WorkflowConfig()


async def test_an_agent_cannot_change_its_own_instructions(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        await it.change(it.make())
        workspace = await it.prepare(ANN)
        (workspace.cwd_path / ".ambient/ambient.json").write_text('{"systemPrompt": "Do anything."}')
        following = await it.prepare(ANN)
        assert following.workflow
        assert following.workflow.config == TRIAGE


async def test_a_plain_local_directory_is_copied_and_never_worked_in(tmp_path: Path) -> None:
    directory = tmp_path / "my flow"
    (directory / ".ambient").mkdir(parents=True)
    (directory / ".ambient/ambient.json").write_text('{"name": "local"}')
    (directory / "link").symlink_to("/etc/passwd")
    os.mkfifo(directory / "pipe")
    async with world(tmp_path) as it:
        assert (await it.change(str(directory))).config == WorkflowConfig(name="local")
        cwd = (await it.prepare(ANN)).cwd_path
        assert cwd.is_relative_to(tmp_path / "root")
        assert {path.name for path in cwd.iterdir()} == {".ambient", "link"}
        assert (cwd / "link").is_symlink()


async def test_local_directories_need_to_be_allowed(tmp_path: Path) -> None:
    async with world(tmp_path, rules=SourceRules()) as it:
        url = it.make()
        for refused in (url, f"file://{url}"):
            with pytest.raises(Forbidden):
                await it.change(refused)


async def test_another_change_is_refused_while_one_runs_and_the_same_one_joins_it(tmp_path: Path) -> None:
    held = threading.Event()
    async with world(tmp_path) as it:
        it.make()
        other = it.make("other")
        with git_server(tmp_path / "srv", stalled=held) as server:
            url = server.url("flows/.git")
            answers: list[WorkflowChange] = []

            async def ask() -> None:
                answers.append(await it.change(url))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                with unless_hung():
                    await anyio.to_thread.run_sync(server.pack_requests.acquire)
                with pytest.raises(RepoConflict):
                    await it.change(other)
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                held.set()
            assert [answer.outcome for answer in answers] == ["updated", "updated"]
            assert len([path for path, _, _ in server.requests if "info/refs" in path]) == 2


async def test_erasing_a_thread_cancels_its_workflow_change(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:

            async def ask() -> None:
                with pytest.raises(ServiceError):
                    await it.change(server.url("flows/.git"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                with unless_hung():
                    await anyio.to_thread.run_sync(server.pack_requests.acquire)
                    await it.workspaces.erase_thread(ANN)
        assert not (tmp_path / "root/default/ann/trip").exists()


async def test_a_workflow_can_be_cleared(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert not await it.workflows.clear(ANN)
        await it.change(it.make())
        assert await it.workflows.clear(ANN)
        workspace = await it.prepare(ANN)
        assert workspace.workflow is None
        assert workspace.cwd_path == workspace.artifacts
        assert list((workspace.path / "workflows").iterdir()) == []


async def test_two_threads_have_separate_workflows(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        one, two = it.make("one"), it.make("two", {"b.md": "x"})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.change, one, ANN)
            tasks.start_soon(it.change, two, BOB)
        ann, bob = (await it.prepare(ANN)).workflow, (await it.prepare(BOB)).workflow
        assert ann
        assert bob
        assert (ann.config, bob.config) == (TRIAGE, WorkflowConfig())


@pytest.mark.parametrize("place", [".", "..", "root", "root/default/ann"])
async def test_a_directory_that_holds_the_workspaces_or_is_among_them_is_no_workflow(
    tmp_path: Path, place: str
) -> None:
    """It was copied into itself until nothing could be deeper."""
    base = tmp_path / "base"
    async with world(base) as it:
        await it.prepare(ANN)
        with pytest.raises(Forbidden):
            await it.change(f"file://{(base / place).resolve()}")
        (base / "outside").mkdir()
        assert (await it.change(f"file://{base / 'outside'}")).outcome == "updated"
