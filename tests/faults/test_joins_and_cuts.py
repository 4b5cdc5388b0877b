"""Exactly once: hundreds of readers join a run at random, are cut at random and resume, and none loses or repeats an event."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.e2e.sse import Frame, open_stream
from tests.e2e.talk import ending, events_of, history, new_id, numbers, one_run, run_input, text_of
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from tests.e2e.server import Child

READERS = 200
COUNT = 400


@dataclass
class Progress:
    """The number of frames that the poster has read, so that others can join at a chosen moment."""

    seen: int = 0
    ended: bool = False
    moved: anyio.Condition = field(default_factory=anyio.Condition)

    async def advance(self, by: int) -> None:
        async with self.moved:
            self.seen += by
            self.ended = not by
            self.moved.notify_all()

    async def reached(self, count: int) -> None:
        async with self.moved:
            while self.seen < count and not self.ended:
                await self.moved.wait()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of one reader: the frame at which it joins, and the frames after or within which its connections break."""

    join: int
    cuts: tuple[int, ...]
    inside: bool


def plans(seed: int) -> list[Plan]:
    dice = random.Random(seed)
    return [
        Plan(
            join=dice.randrange(1, COUNT + 3),
            cuts=tuple(dice.choice([0, 1, dice.randrange(1, COUNT // 3)]) for _ in range(dice.randrange(5))),
            inside=dice.random() < 0.5,
        )
        for _ in range(READERS)
    ]


async def read_as_planned(url: str, thread: str, plan: Plan) -> list[Frame]:
    """The frames with an id, gathered over as many connections as the plan breaks."""
    kept: list[Frame] = []
    for cut in (*plan.cuts, None):
        headers = {"Last-Event-ID": kept[-1].id} if kept else {}
        async with open_stream(f"{url}/threads/{thread}/events?until=idle&snapshots=all", headers=headers) as stream:
            assert stream.status == 200, await stream.body()
            frames = await (stream.rest() if cut is None else stream.read(cut))
            if plan.inside and not stream.ended:
                await stream.chunk()
            stream.cut()
        kept += [frame for frame in frames if frame.id]
    return kept


async def post(url: str, thread: str, command: str, progress: Progress) -> list[Frame]:
    frames: list[Frame] = []
    async with open_stream(f"{url}/", "POST", body=run_input(thread, command)) as stream:
        assert stream.status == 200, await stream.body()
        while batch := await stream.read(1):
            frames += batch
            await progress.advance(len(batch))
    await progress.advance(0)
    return frames


@pytest.mark.parametrize("command", [f"count {COUNT}", f"count {COUNT} every 1ms", f"count {COUNT} every 10ms"])
async def test_f03_f04_readers_cut_and_resumed_at_random_get_every_event_once(server: Child, command: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    thread, progress = new_id("thread"), Progress()
    outcomes: list[tuple[Plan, list[Frame]]] = []
    posted: list[Frame] = []

    async def poster() -> None:
        posted.extend(await post(server.url, thread, command, progress))

    async def reader(plan: Plan) -> None:
        await progress.reached(plan.join)
        outcomes.append((plan, await read_as_planned(server.url, thread, plan)))

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poster)
            for plan in plans(seed):
                tasks.start_soon(reader, plan)
        reference = await history(server.url, thread)

    events = one_run(events_of(reference))
    assert (text_of(events), ending(events)) == (numbers(COUNT), "success")
    assert [frame.raw for frame in posted] == [frame.raw for frame in reference]
    assert len(outcomes) == READERS
    expected = [frame for frame in reference if frame.id]
    wrong = [(plan, *lost_and_twice(got, expected)) for plan, got in outcomes if got != expected]
    assert wrong == [], f"seed {seed}"


def lost_and_twice(got: list[Frame], reference: list[Frame]) -> tuple[list[str], list[str]]:
    ids = [frame.id for frame in got]
    return [frame.id for frame in reference if frame.id not in ids], [one for one in ids if ids.count(one) > 1]


async def test_f03_ids_are_one_sequence_without_holes(server: Child) -> None:
    thread = new_id("thread")
    with unless_hung():
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "count 50")) as stream:
            frames = await stream.rest()
    epochs, numbers_ = zip(*(frame.id.split(".") for frame in frames), strict=True)
    assert len(set(epochs)) == 1
    assert sorted({int(number) for number in numbers_}) == [int(number) for number in numbers_]


async def test_f03_live_late_and_replayed_readers_get_the_same_bytes(server: Child) -> None:
    """One watcher from before the run, one that joins in the middle, one after the end, and the poster."""
    thread, progress = new_id("thread"), Progress()
    found: dict[str, list[bytes]] = {}
    with unless_hung():
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "hello")) as stream:
            first = await stream.rest()

        async def watch(name: str, join: int) -> None:
            await progress.reached(join)
            headers = {"Last-Event-ID": first[-1].id}
            async with open_stream(f"{server.url}/threads/{thread}/events", headers=headers) as watched:
                frames = [*await watched.until("RUN_FINISHED")]
            found[name] = [frame.raw for frame in frames]

        async def poster() -> None:
            frames = await post(server.url, thread, "count 200 every 2ms", progress)
            found["posted"] = [frame.raw for frame in frames]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, "live", 0)
            tasks.start_soon(poster)
            tasks.start_soon(watch, "late", 100)
        await watch("replayed", 0)
        found["idle"] = [frame.raw for frame in await history(server.url, thread, after=first[-1].id)]
    assert {name: frames == found["posted"] for name, frames in found.items()} == dict.fromkeys(found, True)


async def test_f04_a_cut_inside_a_message_reopens_it_without_an_id(server: Child) -> None:
    """Frames made for one reader have no id, so they never count; the rest follows as if nothing had happened."""
    thread = new_id("thread")
    with unless_hung():
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "count 30")) as stream:
            frames = await stream.rest()
        middle = next(index for index, frame in enumerate(frames) if frame.event.get("delta") == "15 ")
        again = await history(server.url, thread, after=frames[middle].id)
    made = [frame for frame in again if not frame.id]
    assert [frame.type for frame in made] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
    assert again[: len(made)] == made
    assert [frame.raw for frame in again[len(made) :]] == [frame.raw for frame in frames[middle + 1 :]]
    one_run(events_of(again))
