"""Two servers on one SQLite file: one run per thread at either, a writer that lost its lease cannot append, and both serve all requests."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import anyio

from tests.e2e.server import LEASE, start
from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, events_of, history, new_id, numbers, run, run_input, split_runs, text_of
from tests.machine_speed import promised_within, scaled, unless_hung

from .harness import stop_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.e2e.sse import Event, Frame

    from .harness import Pair

Answer = tuple[int, bytes, list["Frame"]]
"""Status, body when refused, frames when not."""
TRIES = 6
PACE = 0.04
COUNTING = "count 100000 every 40ms"
"""Slow enough that a random moment lies between two commits more often than inside one."""


async def post_to_both(
    pair: Pair, bodies: list[Event], headers: Mapping[str, str], note: Callable[[Answer], None] | None = None
) -> list[Answer]:
    """Fire the requests at the two servers in turn, all at once."""
    answers: list[Answer] = []
    record = note or answers.append

    async def post(url: str, body: Event) -> None:
        async with open_stream(f"{url}/", "POST", body=body, headers=headers) as stream:
            if stream.status == 200:
                record((200, b"", await stream.rest()))
            else:
                record((stream.status, await stream.body(), []))

    async with anyio.create_task_group() as tasks:
        for index, body in enumerate(bodies):
            tasks.start_soon(post, pair[index % 2].url, body)
    return answers


async def read_same_history(pair: Pair, thread: str) -> list[Frame]:
    """Return the thread, after a check that both servers return the same bytes."""
    a, b = [await history(server.url, thread) for server in pair]
    assert [frame.raw for frame in a] == [frame.raw for frame in b]
    return a


async def test_f20_reject_accepts_one_of_many_requests(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        bodies = [run_input(thread, "count 100 every 10ms") for _ in range(10)]
        answers = await post_to_both(pair, bodies, {"X-Ambient-On-Busy": "reject"})
        frames = await read_same_history(pair, thread)
    assert sorted(status for status, _, _ in answers) == [200, *[409] * 9]
    assert all(b'"thread_busy"' in body for status, body, _ in answers if status == 409)
    assert [(ending(events), text_of(events)) for events in split_runs(events_of(frames))] == [
        ("success", numbers(100))
    ]


async def test_f20_queue_runs_them_one_after_another(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        bodies = [run_input(thread, f"count {number} every 5ms") for number in range(11, 19)]
        answers = await post_to_both(pair, bodies, {"X-Ambient-On-Busy": "queue"})
        frames = await read_same_history(pair, thread)
    assert [status for status, _, _ in answers] == [200] * 8
    runs = split_runs(events_of(frames))
    assert [ending(events) for events in runs] == ["success"] * 8
    assert {text_of(events) for events in runs} == {numbers(number) for number in range(11, 19)}
    for _, _, got in answers:
        (events,) = split_runs(events_of(got))
        assert events in runs


async def test_f20_queue_is_bounded(pair: Pair) -> None:
    """One runs, eight wait in whichever process, and the rest is refused at once."""
    thread, full = new_id("thread"), anyio.Event()
    answers: list[Answer] = []

    def note(answer: Answer) -> None:
        answers.append(answer)
        if len(answers) == 4:
            full.set()

    with unless_hung():
        async with open_stream(f"{pair[0].url}/", "POST", body=run_input(thread, "hang")) as first:
            await first.until("TEXT_MESSAGE_CONTENT")
            async with anyio.create_task_group() as tasks:
                bodies = [run_input(thread, "hello") for _ in range(12)]
                tasks.start_soon(post_to_both, pair, bodies, {"X-Ambient-On-Busy": "queue"}, note)
                await full.wait()
                assert [status for status, _, _ in answers] == [409] * 4
                assert (await stop_run(pair[1].url, thread)).status == 200
        runs = split_runs(events_of(await read_same_history(pair, thread)))
    assert [status for status, _, _ in answers[4:]] == [200] * 8
    assert [ending(events) for events in runs] == ["cancelled", *["success"] * 8]


async def test_f20_supersede_ends_each_run_before_the_next_begins(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        bodies = [run_input(thread, "count 60 every 10ms") for _ in range(6)]
        answers = await post_to_both(pair, bodies, {"X-Ambient-On-Busy": "supersede"})
        frames = await read_same_history(pair, thread)
    assert [status for status, _, _ in answers] == [200] * 6
    endings = [ending(events) for events in split_runs(events_of(frames))]
    assert endings == ["cancelled"] * 5 + ["success"]


async def test_f20_join_returns_the_same_run_to_everyone(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        bodies = [run_input(thread, "count 100 every 10ms") for _ in range(8)]
        answers = await post_to_both(pair, bodies, {"X-Ambient-On-Busy": "join"})
        frames = await read_same_history(pair, thread)
    assert len(split_runs(events_of(frames))) == 1
    expected = [frame.raw for frame in frames]
    assert [(status, [frame.raw for frame in got] == expected) for status, _, got in answers] == [(200, True)] * 8


async def test_f19_the_same_message_sent_to_both_is_one_run(pair: Pair) -> None:
    """A client that retries at another process joins its own run, whatever the policy."""
    thread = new_id("thread")
    body = run_input(thread, "count 100 every 10ms")
    with unless_hung():
        async with open_stream(f"{pair[0].url}/", "POST", body=body) as first:
            begun = await first.until("TEXT_MESSAGE_CONTENT")
            retried = await run(pair[1].url, body)
            frames = begun + await first.rest()
    assert [frame.raw for frame in retried] == [frame.raw for frame in frames]
    assert len(split_runs(events_of(await history(pair[0].url, thread)))) == 1


async def test_f03_a_run_here_is_watched_live_and_resumed_there(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        async with open_stream(f"{pair[0].url}/", "POST", body=run_input(thread, "count 200 every 5ms")) as posted:
            begun = await posted.read(20)
            watch = f"{pair[1].url}/threads/{thread}/events"
            async with open_stream(watch) as watched:
                half = await watched.read(60)
                assert half[-1].event["delta"] != "200 ", "the watcher was not live"
            async with open_stream(watch, headers={"Last-Event-ID": half[-1].id}) as resumed:
                rest = [frame for frame in await resumed.until("RUN_FINISHED") if frame.id]
            frames = begun + await posted.rest()
    assert [frame.raw for frame in half + rest] == [frame.raw for frame in frames]
    assert text_of(events_of(frames)) == numbers(200)


async def test_f21_a_run_here_is_stopped_there(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        async with open_stream(f"{pair[0].url}/", "POST", body=run_input(thread, "hang")) as stream:
            frames = await stream.until("TEXT_MESSAGE_CONTENT")
            answer = await stop_run(pair[1].url, thread)
            frames += await stream.rest()
        again = await stop_run(pair[1].url, thread)
        unknown = await stop_run(pair[1].url, new_id("thread"))
    (events,) = split_runs(events_of(frames))
    assert (answer.status, ending(events)) == (200, "cancelled")
    assert (again.status, again.body["error"]["code"]) == (409, "nothing_running")
    assert (unknown.status, unknown.body["error"]["code"]) == (404, "unknown_thread")


async def test_f02_an_interrupt_of_one_process_is_answered_once_by_another(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        asked = events_of(await run(pair[0].url, run_input(thread, "approve the deploy")))
        (interrupt,) = asked[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        answers = await post_to_both(pair, [run_input(thread, resume=[entry]) for _ in range(4)], {})
        runs = split_runs(events_of(await read_same_history(pair, thread)))
    assert sorted(status for status, _, _ in answers) == [200, 409, 409, 409]
    assert [ending(events) for events in runs] == ["interrupt", "success"]


async def test_f19_one_key_at_both_is_one_run(pair: Pair) -> None:
    thread, key = new_id("thread"), new_id("key")
    body = run_input(thread, "count 50 every 5ms")
    other = {**body, "messages": [{"id": new_id("user"), "role": "user", "content": "hello"}]}
    with unless_hung():
        answers = await post_to_both(pair, [body] * 6, {"Idempotency-Key": key})
        replayed = await run(pair[1].url, body, headers={"Idempotency-Key": key})
        refused = await post_to_both(pair, [other, other], {"Idempotency-Key": key})
        frames = await read_same_history(pair, thread)
    expected = [frame.raw for frame in frames]
    assert len(split_runs(events_of(frames))) == 1
    assert [(status, [frame.raw for frame in got] == expected) for status, _, got in answers] == [(200, True)] * 6
    assert [frame.raw for frame in replayed] == expected
    assert [(status, b'"key_reused"' in text) for status, text, _ in refused] == [(409, True)] * 2


async def test_f20_a_run_read_here_is_not_superseded_there(pair: Pair) -> None:
    """A newer message supersedes a run that no one reads; a reader in another process is a reader."""
    thread = new_id("thread")
    with unless_hung():
        async with open_stream(f"{pair[0].url}/", "POST", body=run_input(thread, "count 60 every 10ms")) as stream:
            frames = await stream.until("TEXT_MESSAGE_CONTENT")
            async with open_stream(f"{pair[1].url}/", "POST", body=run_input(thread, "hello")) as refused:
                answer = (refused.status, b'"thread_busy"' in await refused.body())
            frames += await stream.rest()
    (events,) = split_runs(events_of(frames))
    assert answer == (409, True)
    assert (ending(events), text_of(events)) == ("success", numbers(60))


async def test_f01_a_thread_is_not_idle_before_its_dead_run_is_closed(tmp_path: Path) -> None:
    """A dies; whoever reads `until=idle` at B, at once, waits for the terminal event and gets it within twice the lease."""
    thread, store = new_id("thread"), tmp_path / "ambient.db"
    with unless_hung(), start(store) as a, start(store) as b:
        async with open_stream(f"{a.url}/", "POST", body=run_input(thread, "count 100000 every 10ms")) as stream:
            seen = await stream.read(20)
            a.process.kill()
            with promised_within(2 * LEASE):
                frames = await history(b.url, thread)
        again = events_of(await run(b.url, run_input(thread, "count 3")))
    (events,) = split_runs(events_of(frames))
    assert frames[: len(seen)] == seen
    assert (ending(events), ending(again), text_of(again)) == ("run_abandoned", "success", numbers(3))


async def pause_until_takeover(pair: Pair, thread: str, dice: random.Random) -> bool:
    """Stop A at a random moment of its run and wait until B has closed the run. Return False when A was paused inside a commit."""
    a, b = pair
    async with open_stream(f"{b.url}/threads/{thread}/events") as watched:
        await watched.read(dice.randrange(5, 25))
        await anyio.sleep(dice.random() * PACE)
        a.signal(signal.SIGSTOP)
        with anyio.move_on_after(scaled(8 * LEASE)) as patience:
            await watched.until("RUN_ERROR")
        return not patience.cancelled_caught


async def continue_after_takeover(pair: Pair, dice: random.Random) -> bool:
    """Stop A past its lease and continue it. Return False when A was paused inside a commit, which blocks the file and proves nothing."""
    a, b = pair
    thread, taken, closed = new_id("thread"), list["Frame"](), False
    async with open_stream(f"{a.url}/", "POST", body=run_input(thread, COUNTING)) as stopped:
        begun = await stopped.until("TEXT_MESSAGE_CONTENT")
        try:
            if closed := await pause_until_takeover(pair, thread, dice):
                taken = await run(b.url, run_input(thread, "count 50"))
        finally:
            a.signal(signal.SIGCONT)
        if not closed:
            await stop_run(a.url, thread)
            return False
        seen = begun + await stopped.rest()
    last = await run(a.url, run_input(thread, "say awake again"))
    frames = await read_same_history(pair, thread)
    assert frames == seen + taken + last
    runs = split_runs(events_of(frames))
    counted = text_of(runs[0])
    assert [ending(events) for events in runs] == ["run_abandoned", "success", "success"]
    assert counted == numbers(counted.count(" "))
    assert [text_of(events) for events in runs[1:]] == [numbers(50), "awake again"]
    return True


async def test_f17_a_writer_woken_after_its_lease_cannot_append(pair: Pair) -> None:
    """SIGSTOP past the lease; the other process closes the run and starts one; SIGCONT: the events of the old owner appear nowhere."""
    dice, proved = random.Random(), 0
    for _ in range(TRIES):
        with unless_hung():
            proved += await continue_after_takeover(pair, dice)
        if proved == 2:
            break
    assert proved, f"A was paused inside a commit {TRIES} times"
