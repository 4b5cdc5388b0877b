"""A replay without the snapshots that repeat what was streamed leads a client to the same messages as one with all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, create_app
from ambient_runner.projections import frames as projected_frames
from ambient_runner.protocol import events as e
from ambient_runner.testing.frame_folds import fold_frames
from tests.server.demo_server import SETTINGS, client_of, demo, frames, run_body
from tests.server.restating_agent import Audience, Frames, History, replay_thread

SNAPSHOT = "MESSAGES_SNAPSHOT"


def fold(*streams: Frames) -> dict[str, Any]:
    return fold_frames([event for stream in streams for _, event in stream])


def without_snapshots(stream: Frames) -> Frames:
    return [frame for frame in stream if frame[1]["type"] != SNAPSHOT]


def snapshots(stream: Frames) -> list[str | None]:
    return [cursor for cursor, event in stream if event["type"] == SNAPSHOT]


async def read(client: httpx.AsyncClient, **query: str) -> Frames:
    return frames(await client.get("/threads/t/events", params={"until": "idle", **query}))


async def say(client: httpx.AsyncClient, *texts: str) -> list[Frames]:
    return [frames(await client.post("/", json=run_body(text, message=text[-40:]))) for text in texts]


@pytest.mark.parametrize(("audience", "history"), [("open", "server"), ("safe", "server"), ("open", "client")])
@pytest.mark.parametrize("seed", range(12))
async def test_a_client_ends_with_the_same_messages_however_the_thread_was_restated(
    seed: int, audience: Audience, history: History
) -> None:
    thread = await replay_thread(seed, audience=audience, history=history)
    assert without_snapshots(thread.replay) == [frame for run in thread.runs for frame in without_snapshots(run)]
    wanted = fold(*thread.runs)
    assert fold(thread.replay) == wanted
    assert fold(*thread.parts) == wanted, "resumed after a cursor in the middle"


@pytest.mark.parametrize("audience", ["open", "safe"])
@pytest.mark.parametrize("protocol", ["1.0", "0.0.59", "0.0.55", "0.0.42"])
async def test_a_replay_has_the_newest_snapshot_only(protocol: str, audience: Audience) -> None:
    async with demo(dataclasses.replace(SETTINGS, audience=audience)) as client:
        posted = await say(client, "weather Paris", "subagent", "think", "crash")
        replay = await read(client, protocol=protocol)
        bare = await read(client, protocol=protocol, snapshots="0")
        one_run = await read(client, protocol=protocol, after=str(posted[0][-1][0]))
    assert snapshots(replay) == snapshots(posted[-1])
    assert without_snapshots(replay) == bare
    assert snapshots(one_run) == snapshots(posted[-1])


async def test_a_reader_in_the_newest_run_gets_all_of_it() -> None:
    async with demo() as client:
        *_, last = await say(client, "say one", "say two", "say three")
        rest = await read(client, after=str(last[0][0]))
    assert [frame for frame in rest if frame[0]] == last[1:]


async def test_the_size_of_a_replay_grows_with_its_events() -> None:
    async with demo() as client:
        await say(client, *(f"say {'word ' * 20}{turn}" for turn in range(10)))
        ten = len((await client.get("/threads/t/events?until=idle")).content)
        await say(client, *(f"say {'word ' * 20}{turn}" for turn in range(10, 40)))
        forty = len((await client.get("/threads/t/events?until=idle")).content)
    assert forty < 4.2 * ten


async def test_a_snapshot_that_is_too_large_is_skipped_as_in_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projected_frames, "MAX_SNAPSHOT_BYTES", 300)
    async with demo() as client:
        posted = await say(client, "say one", f"say {'much ' * 100}", "say three")
        replay = await read(client)
    skipped = [frame for frame in replay if frame[1].get("name") == "ambient:snapshot_skipped"]
    assert snapshots(replay) == []
    assert skipped == [frame for frame in posted[-1] if frame[1].get("name") == "ambient:snapshot_skipped"]
    assert fold(replay) == fold(*posted)


async def test_a_gap_and_the_runs_after_it_lead_to_the_messages() -> None:
    async with demo(dataclasses.replace(SETTINGS, retain=40)) as client:
        await say(client, *(f"count 20 {turn}" for turn in range(8)))
        replay = await read(client)
        messages = (await client.get("/message_snapshot/t")).json()["messages"]
    assert replay[1][1]["name"] == "ambient:gap"
    assert len(snapshots(replay)) <= 3
    assert fold(replay)["messages"] == messages


class Thinker(PlatformBridge):
    """Reasons in its first and third run."""

    def __init__(self) -> None:
        self.runs = 0

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Thinker:
        return self

    async def run(self, input: Any) -> AsyncGenerator[e.Event]:
        self.runs += 1
        name = str(self.runs)
        if self.runs in {1, 3}:
            yield e.ReasoningMessageStart(message_id=f"thought-{name}")
            yield e.ReasoningMessageContent(message_id=f"thought-{name}", delta="hm ")
            yield e.ReasoningMessageEnd(message_id=f"thought-{name}")
        yield e.TextMessageStart(message_id=name)
        yield e.TextMessageContent(message_id=name, delta="done ")
        yield e.TextMessageEnd(message_id=name)


async def test_a_resume_after_a_rewind_has_the_snapshots_that_remove_what_was_rewound() -> None:
    """A snapshot without reasoning leaves that of the client: what the rewind has removed is removed by a later one."""
    async with client_of(create_app(SETTINGS, {"thinker": Thinker()})) as client:
        posted = [frames(await client.post("/", json=run_body("x", message=name))) for name in ("u1", "u1", "u3", "u3")]
        for at, (cursor, _) in enumerate(posted[2]):
            if cursor is not None:
                rest = await read(client, after=cursor)
                assert fold(*posted[:2], posted[2][: at + 1], rest)["messages"] == fold(*posted)["messages"]
        after_rewind = await read(client, after=str(posted[1][-1][0]))
    assert fold(*posted[:2], after_rewind)["messages"] == fold(*posted)["messages"]
