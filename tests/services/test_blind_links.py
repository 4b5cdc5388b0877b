"""Links that cannot even be looked at: to a name longer than any file's, or to themselves. They cost what they stand for and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.errors import RepoNotFound, ServiceError
from ambient_runner.services.mcp.config import config_file_problem
from ambient_runner.services.workspaces.workflows import Workflows
from tests.server.worker import WorkerBridge
from tests.services.remotes import ANN, NOTHING, make_repo
from tests.services.world import BYTES, ending, server, settings_of, talk, world

NOWHERE = "a" * 300


@pytest.mark.parametrize("trusted", [True, False])
async def test_an_unreadable_mcp_file_is_reported_and_the_run_continues(tmp_path: Path, trusted: bool) -> None:
    """The run ended with `agent_error`, and `/mcp/status` with 500."""
    url = make_repo(tmp_path / "app", {"a": "1"}, links={".mcp.json": NOWHERE}).as_uri()
    async with server(WorkerBridge(), settings_of(tmp_path, mcp_project=trusted)) as client:
        await client.post("/repos/add", json={"threadId": "t", "url": url})
        assert ending(await talk(client, "hi", "u1")) == ("RUN_FINISHED", "success")
        response = await client.get("/mcp/status?threadId=t")
    assert response.status_code == 200
    (row,) = response.json()["servers"]
    assert (row["status"], ".mcp.json" in row["name"]) == ("invalid", True)


@pytest.mark.parametrize("name", ["commondir", "objects/info/alternates"])
async def test_an_unreadable_repository_has_failed_and_the_others_are_ready(tmp_path: Path, name: str) -> None:
    """One such link made the state of all repositories a 500."""
    async with world(tmp_path) as it:
        broken, _ = await it.add(it.make("broken")), await it.add(it.make("well"))
        (broken.path / ".git" / name).symlink_to(NOWHERE)
        found = {repo.name: repo.status for repo in await it.repos.status(ANN)}
    assert found == {"broken": "failed", "well": "ready"}


@pytest.mark.parametrize("target", [NOWHERE, "flows"])
async def test_a_workflow_behind_such_a_link_is_gone_and_can_be_chosen_again(tmp_path: Path, target: str) -> None:
    async with world(tmp_path) as it:
        url, workflows = it.make(files={"flows/review/a.md": "x"}), Workflows(it.workspaces)
        await (await workflows.change(ANN, url, path="flows/review", environment=NOTHING)).wait_for_result()
        flow = (await it.prepare(ANN)).workflow
        assert flow
        flow.directory.parent.rename(tmp_path / "aside")
        flow.directory.parent.symlink_to(target)
        with pytest.raises(ServiceError):
            await it.prepare(ANN)
        changed = await (await workflows.change(ANN, url, path="flows/review", environment=NOTHING)).wait_for_result()
        assert changed.outcome == "updated"
        assert (await it.prepare(ANN)).cwd_path.is_dir()


async def test_an_upload_takes_the_place_of_such_a_link(tmp_path: Path) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        await client.post("/files?threadId=t&name=a.txt", content=b"1", headers=BYTES)
        (place,) = (tmp_path / "workspaces").rglob("file-uploads/a.txt")
        place.unlink()
        place.symlink_to(NOWHERE)
        response = await client.post("/files?threadId=t&name=a.txt", content=b"2", headers=BYTES)
        assert response.status_code == 201, response.text
        assert (await client.get("/files/a.txt?threadId=t")).content == b"2"


async def test_a_local_directory_with_such_a_link_is_taken_for_a_repository_and_refused(tmp_path: Path) -> None:
    directory = tmp_path / "flow"
    directory.mkdir()
    (directory / ".git").symlink_to(NOWHERE)
    (directory / "a.md").write_text("x")
    async with world(tmp_path) as it:
        job = await Workflows(it.workspaces).change(ANN, str(directory), environment=NOTHING)
        with pytest.raises(RepoNotFound):
            await job.wait_for_result()


async def test_a_local_repository_behind_a_link_to_itself_is_none(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    async with world(tmp_path) as it:
        with pytest.raises(RepoNotFound):
            await it.add(str(tmp_path / "loop"), name="app")


def test_a_configuration_behind_a_link_to_itself_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").symlink_to("mcp.json")
    assert config_file_problem(tmp_path / "mcp.json")
