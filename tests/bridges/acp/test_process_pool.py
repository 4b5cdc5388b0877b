"""Processes that are started ahead: which threads get one, which never do, and that nothing of them is left."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from ambient_runner.bridges.acp import process_pool
from ambient_runner.bridges.acp.session import AgentSession
from ambient_runner.processes.bubblewrap import check_bubblewrap
from ambient_runner.protocol.events import RunFinished, Tool, UserMessage
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import current_run_or_none
from tests.bridges.acp.words import custom_values, spoken
from tests.bridges.acp.world import World, serve
from tests.bridges.claude.world import children, gone
from tests.machine_speed import unless_hung
from tests.world import KEY, events_of, request

FIND = Tool(name="find_page", description="Find a page.", parameters={"type": "object"})


def serve_shared(
    directory: Path, options: dict[str, str] | None = None, *, spare: int = 1, **settings: Any
) -> AbstractAsyncContextManager[World]:
    """Serve threads that work in one directory, with the user's own home."""
    project = directory / "project"
    project.mkdir(exist_ok=True)
    return serve(directory, options, **{"spare": spare, "home": "user", "cwd": str(project), **settings})


def spares(world: World) -> list[AgentSession]:
    """Return the spare processes that are ready."""
    return [item.session for item in world.hosted.bridge._shared._spares._spares if item.session.is_spare]


async def ready_pids(world: World, count: int = 1) -> list[int | None]:
    """Wait until so many spare processes are ready, and return their ids."""
    await until(lambda: len(spares(world)) == count)
    return [session.pid for session in spares(world)]


async def until(is_reached: Callable[[], bool]) -> None:
    with unless_hung():
        while not is_reached():
            await anyio.sleep(0.01)


async def test_a_new_thread_gets_a_process_that_was_started_ahead(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        assert world.adapter("a").pid != pid
        words = await world.thread("b").say("say two")
        assert spoken(words) == "two"
        assert [value["started"] for value in custom_values(words, "acp:session")] == ["new"]
        assert world.adapter("b").pid == pid
        [other] = await ready_pids(world)
        assert other not in (pid, world.adapter("a").pid)
        assert len(children()) == 3


async def test_a_new_thread_does_not_wait_for_the_start_of_the_agent(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        await ready_pids(world)
        await world.thread("b").say("say two")
        lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    methods = [json.loads(line)["msg"].get("method") for line in lines]
    starts = [method for method in methods if method in ("initialize", "session/new")]
    assert starts[:4] == ["initialize", "session/new", "initialize", "session/new"]


async def test_there_are_as_many_as_the_option_says(tmp_path: Path) -> None:
    async with serve_shared(tmp_path, spare=2) as world:
        await world.thread("a").say("say one")
        assert len(set(await ready_pids(world, 2))) == 2
        assert len(children()) == 3


async def test_none_is_started_without_the_option(tmp_path: Path) -> None:
    async with serve_shared(tmp_path, spare=0) as world:
        await world.thread("a").say("say one")
        assert len(world.hosted.bridge._shared._spares) == 0


@pytest.mark.parametrize(
    "settings",
    [{"cwd": ""}, {"home": "thread"}, {"granted": lambda run: {"API_TOKEN": "granted-to-ann-4711"}}],
    ids=["a workspace for each thread", "a home for each thread", "granted variables"],
)
async def test_none_is_started_where_no_other_thread_could_use_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with serve_shared(tmp_path, **settings) as world:
        await world.thread("a").say("say one")
        await world.thread("b").say("say two")
        assert len(world.hosted.bridge._shared._spares) == 0
        assert len(children()) == 2


async def test_directories_of_the_thread_are_parameters_of_its_session(tmp_path: Path) -> None:
    """A server always gives a thread directories for artifacts and uploads."""
    async with serve_shared(tmp_path, context={"add_dirs": [str(tmp_path / "work" / "a" / "artifacts")]}) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        await world.thread("b").say("say two")
        assert world.adapter("b").pid == pid


@pytest.mark.skipif(check_bubblewrap().path is None, reason="bubblewrap does not work here")
async def test_none_is_started_if_directories_of_the_thread_are_in_its_sandbox(tmp_path: Path) -> None:
    artifacts = tmp_path / "work" / "a" / "artifacts"
    artifacts.mkdir(parents=True)
    async with serve_shared(tmp_path, sandbox="auto", context={"add_dirs": [str(artifacts)]}) as world:
        await world.thread("a").say("say one")
        session = world.adapter("a").session
        assert session is not None
        assert session.launch.isolation.has_sandbox
        assert len(world.hosted.bridge._shared._spares) == 0


async def test_the_log_says_once_that_the_option_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_shared(tmp_path, cwd="") as world:
        with caplog.at_level(logging.WARNING, logger=process_pool.__name__):
            await world.thread("a").say("say one")
            await world.thread("b").say("say two")
    assert len(caplog.records) == 1


async def test_a_thread_with_granted_variables_gets_no_process_that_was_started_without_them(tmp_path: Path) -> None:
    def granted(run: Any) -> dict[str, str]:
        return {"API_TOKEN": "granted-to-ann-4711"} if run.thread.id == "b" else {}

    async with serve_shared(tmp_path, granted=granted) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        words = await world.thread("b").say("env")
        assert "API_TOKEN" in spoken(words)
        assert await ready_pids(world) == [pid]
        words = await world.thread("c").say("env")
        assert "API_TOKEN" not in spoken(words)
        assert world.adapter("c").pid == pid


async def test_a_thread_with_other_tools_gets_no_process_that_was_started_with_these(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        await world.thread("b", tools=[FIND]).say("say two")
        assert world.adapter("b").pid != pid
        await until(lambda: [session.launch.client_tools for session in spares(world)] == [(FIND,)])
        assert not psutil.pid_exists(pid or 0)
        [pid] = await ready_pids(world)
        await world.thread("c", tools=[FIND]).say("call find_page {}")
        assert world.adapter("c").pid == pid


async def test_what_is_fixed_at_the_start_must_be_the_same(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        session = world.adapter("a").session
        assert session is not None
        launch = session.launch
    others = {
        "audience": "safe",
        "directories": (str(tmp_path),),
        "cwd": str(tmp_path),
        "environment": {**launch.environment, "API_TOKEN": "granted-4711"},
        "hidden": (str(tmp_path),),
        "instructions": "Be kind.",
        "mcp_servers": {"docs": {"command": "docs"}},
    }
    served = {name: launch.can_serve(replace(launch, **{name: value})) for name, value in others.items()}
    assert served == {
        "audience": False,
        "directories": True,
        "cwd": False,
        "environment": False,
        "hidden": False,
        "instructions": True,
        "mcp_servers": True,
    }


async def test_a_process_that_has_died_is_not_used(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        process = psutil.Process(pid)
        process.kill()
        await until(lambda: len(world.hosted.bridge._shared._spares) == 0)
        assert spoken(await world.thread("b").say("say two")) == "two"
        assert world.adapter("b").pid != pid
        assert await ready_pids(world) != [pid]


async def test_a_process_whose_death_is_not_known_yet_costs_no_run(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        os.kill(pid or 0, 9)
        assert spoken(await world.thread("b").say("say two")) == "two"


async def test_a_process_that_is_too_old_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "_MAX_AGE", 0.2)
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        await until(lambda: bool(spares(world)) and spares(world)[0].pid != pid)
        await gone([psutil.Process(pid)] if psutil.pid_exists(pid or 0) else [])


async def test_a_start_that_fails_is_logged_and_fails_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(session: AgentSession) -> None:
        raise OSError("no more processes")

    async with serve_shared(tmp_path) as world:
        monkeypatch.setattr(AgentSession, "start_process", fail)
        with caplog.at_level(logging.ERROR):
            assert spoken(await world.thread("a").say("say one")) == "one"
            await until(lambda: len(world.hosted.bridge._shared._spares) == 0)
        assert [record.message for record in caplog.records] == ["Failed while starting a spare process of The agent"]
        assert spoken(await world.thread("b").say("say two")) == "two"


async def test_they_count_as_processes_and_are_ended_first(tmp_path: Path) -> None:
    async with serve_shared(tmp_path, processes=2) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        first = world.adapter("a").pid
        await world.thread("b", tools=[FIND]).say("say two")
        assert world.adapter("a").pid == first
        assert not psutil.pid_exists(pid or 0)
        assert len(world.hosted.bridge._shared._spares) == 0
        assert len(children()) == 2


async def test_one_that_does_not_get_ready_delays_nothing_and_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(session: AgentSession) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(AgentSession, "start_process", hang)
    async with serve_shared(tmp_path, processes=2) as world:
        assert spoken(await world.thread("a").say("say one")) == "one"
        assert len(world.hosted.bridge._shared._spares) == 1
        assert spoken(await world.thread("b").say("say two")) == "two"
        assert len(world.hosted.bridge._shared._spares) == 0


async def test_the_server_ends_them_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = Path(tempfile.mkdtemp())  # The path of a socket is short.
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = psutil.Process().num_fds()
    try:
        async with serve_shared(tmp_path, spare=2) as world:
            await world.thread("a", tools=[FIND]).say("say one")
            await ready_pids(world, 2)
            await world.thread("b", tools=[FIND]).say("say two")
            processes = children()
            assert len(list(temporary.iterdir())) >= 3
        await gone(processes)
        assert list(temporary.iterdir()) == []
        assert psutil.Process().num_fds() <= before
    finally:
        shutil.rmtree(temporary)


async def test_the_server_ends_one_that_is_starting(tmp_path: Path) -> None:
    async with serve_shared(tmp_path, processes=3) as world:
        await world.thread("a").say("say one")
    assert children() == []


async def test_the_task_of_one_does_not_belong_to_the_run_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    start_process = AgentSession.start_process

    async def record(session: AgentSession) -> None:
        runs.append(current_run_or_none())
        await start_process(session)

    monkeypatch.setattr(AgentSession, "start_process", record)
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        await ready_pids(world)
    assert runs == [None]


async def test_a_stop_ends_a_run_that_begins_with_one(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="hang"), thread="b"))
            async for event in follow_run(world.runner.ledger, started):
                if event.__class__.__name__ == "TextMessageContent":
                    break
            await world.runner.ledger.request_stop(KEY._replace(id="b"), "stop")
            events = await events_of(world.runner, started)
        assert isinstance(events[-1], RunFinished)
        assert world.adapter("b").pid == pid


async def test_a_session_of_an_earlier_process_is_resumed_in_one(tmp_path: Path) -> None:
    async with serve_shared(tmp_path) as world:
        thread = world.thread("a")
        await thread.say("say one")
        [pid] = await ready_pids(world)
        await world.adapter("a").aclose()
        words = await thread.say("history")
        assert [value["started"] for value in custom_values(words, "acp:session")] == ["resumed"]
        assert spoken(words) == "say one\nhistory"
        assert world.adapter("a").pid == pid


async def test_one_that_asks_before_it_has_a_session_is_answered_at_once_and_takes_no_place(tmp_path: Path) -> None:
    async with serve_shared(tmp_path, {"nag": "yes"}, parked=1) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        words = await world.thread("b").say("ask echo one")
        assert (words[-1], world.adapter("b").pid) == ("RF asks tool_call", pid)
        lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    results = [message["result"] for line in lines if "result" in (message := json.loads(line)["msg"])]
    assert results[:2] == [{"outcome": {"outcome": "cancelled"}}, {"action": "cancel"}]


async def test_what_one_sends_before_it_has_a_session_is_dropped(tmp_path: Path) -> None:
    async with serve_shared(tmp_path, {"stray": "3000"}, start_timeout=5) as world:
        await world.thread("a").say("say one")
        [pid] = await ready_pids(world)
        assert spoken(await world.thread("b").say("say two")) == "two"
        session = world.adapter("b").session
        assert session is not None
        assert (session.pid, session._receiver.dropped_messages) == (pid, 3000 + 1024)
