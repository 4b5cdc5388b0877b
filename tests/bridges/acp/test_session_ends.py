"""The end of an agent's session: it is closed before its process ends, and deleted with its thread."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ambient_runner.bridges.acp import session, session_erasure
from tests.bridges.acp.world import World, serve
from tests.bridges.claude.world import children, gone
from tests.machine_speed import promised_within, unless_hung
from tests.world import KEY


def _methods(world: World) -> list[str]:
    lines = (world.directory / "journal.jsonl").read_text().splitlines()
    return [json.loads(line)["msg"].get("method") for line in lines]


def _session_ids(world: World) -> list[str]:
    return sorted(path.stem for path in (world.directory / "sessions").glob("*.json"))


async def test_a_session_is_closed_before_its_process_ends(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        await world.thread().say("say one")
        opened = world.adapter().session
        assert opened is not None
        await world.adapter().aclose()
        assert world.received("session/close") == [{"sessionId": opened.id}]


async def test_the_server_closes_all_sessions_when_it_ends(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        await world.thread("a").say("say one")
        await world.thread("b").say("say two")
    assert len(world.received("session/close")) == 2


async def test_a_session_is_closed_when_its_process_makes_room_and_can_be_resumed(tmp_path: Path) -> None:
    async with serve(tmp_path, processes=1) as world:
        thread = world.thread("a")
        await thread.say("say one")
        await world.thread("b").say("say two")
        words = await thread.say("history")
        assert len(world.received("session/close")) == 2
    assert any('"started": "resumed"' in word for word in words)


async def test_an_agent_that_does_not_offer_it_gets_no_close(tmp_path: Path) -> None:
    async with serve(tmp_path, {"without": "close"}) as world:
        await world.thread().say("say one")
        await world.adapter().aclose()
        assert world.received("session/close") == []


@pytest.mark.parametrize("script", ["ask echo one", "deaf"])
async def test_a_process_in_a_turn_is_ended_without_a_close(tmp_path: Path, script: str) -> None:
    async with serve(tmp_path, turn_timeout=0.3) as world:
        await world.stored(script)
        adapter = world.adapter()
        await adapter.aclose()
        assert "session/close" not in _methods(world)


async def test_an_agent_that_does_not_close_its_session_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_CLOSE_TIMEOUT", 0.1)
    async with serve(tmp_path, {"mute": "session/close"}) as world:
        await world.thread().say("say one")
        processes = children()
        with promised_within(5):
            await world.adapter().aclose()
        await gone(processes)
        assert len(world.received("session/close")) == 1


async def test_a_process_that_has_died_is_not_asked_to_close(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        await world.thread().say("say one")
        process = psutil.Process(world.adapter().pid)
        process.kill()
        process.wait(30)
        with promised_within(5):
            await world.adapter().aclose()
        assert world.received("session/close") == []


async def test_erasing_a_thread_deletes_its_sessions_in_the_users_own_home(tmp_path: Path) -> None:
    """A rewound thread has more than one."""
    async with serve(tmp_path, home="user") as world:
        thread, other = world.thread(), world.thread("other")
        await thread.say("say one")
        await thread.say("say two")
        thread.count = 0
        await thread.say("say again")
        await other.say("say three")
        before = _session_ids(world)
        with unless_hung():
            await world.runner.erase_thread(KEY)
        kept = world.adapter("other").session
        assert kept is not None
        assert _session_ids(world) == [kept.id]
        assert sorted(params["sessionId"] for params in world.received("session/delete")) == [
            name for name in before if name != kept.id
        ]
        assert len(children()) == 1


async def test_a_session_that_was_resumed_after_a_restart_is_deleted(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with serve(tmp_path, store=store, home="user") as world:
        await world.thread().say("say one")
    async with serve(tmp_path, store=store, home="user") as world:
        thread = world.thread()
        thread.count = 1
        await thread.say("say two")
        with unless_hung():
            await world.runner.erase_thread(KEY)
        assert _session_ids(world) == []


@pytest.mark.parametrize(
    ("options", "settings"),
    [({}, {"home": "thread"}), ({"without": "delete"}, {"home": "user"})],
    ids=["home", "offer"],
)
async def test_no_process_is_started_for_a_deletion_that_is_not_needed_or_not_offered(
    tmp_path: Path, options: dict[str, str], settings: dict[str, Any]
) -> None:
    async with serve(tmp_path, options, **settings) as world:
        await world.thread().say("say one")
        with unless_hung():
            await world.runner.erase_thread(KEY)
        assert len(world.received("initialize")) == 1


async def test_the_process_of_a_deletion_has_no_granted_variables(tmp_path: Path) -> None:
    async with serve(tmp_path, home="user", granted=lambda run: {"API_TOKEN": "granted-4711"}) as world:
        await world.thread().say("say one")
        [(launch, _)] = world.hosted.bridge._shared.erasure._threads.values()
        assert "API_TOKEN" not in launch.environment
        with unless_hung():
            await world.runner.erase_thread(KEY)
        assert _session_ids(world) == []


@pytest.mark.parametrize("options", [{"mute": "session/delete"}, {"exit": "3"}, {"start": "never"}], ids=str)
async def test_a_deletion_that_fails_is_logged_and_the_thread_is_erased(
    tmp_path: Path,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(session_erasure, "_TIMEOUT", 0.5)
    async with serve(tmp_path, home="user") as world:
        await world.thread().say("say one")
        erasure = world.hosted.bridge._shared.erasure
        for thread, (launch, ids) in list(erasure._threads.items()):
            flags = {f"FAKE_AGENT_{name.upper()}": value for name, value in options.items()}
            erasure._threads[thread] = (replace(launch, environment={**launch.environment, **flags}), ids)
        with caplog.at_level(logging.ERROR), unless_hung():
            await world.runner.erase_thread(KEY)
        assert await world.runner.ledger.get_thread(KEY) is None
        assert children() == []
    assert [record.message for record in caplog.records] == [
        "Failed while deleting the sessions of thread t of The agent"
    ]
