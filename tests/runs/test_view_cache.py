from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ambient_runner.errors import RunInterrupted, StaleCursor, UnknownThread
from ambient_runner.ledger import Ledger, open_ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Batch, Fact, JoinedText, ThreadKey
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import (
    AssistantMessage,
    Event,
    Interrupt,
    RunStarted,
    TextMessageContent,
    TextMessageStart,
    encode_event,
)
from ambient_runner.runs.maintenance import apply_retention
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import (
    ReaderViews,
    ThreadEpoch,
    ViewCache,
    load_view,
    read_despite_retention,
    require_thread,
)
from tests.machine_speed import unless_hung
from tests.scripts import begun, forever, hello
from tests.world import KEY, SETTINGS, ScriptedAgent, request, run_once, runner_of, user


@pytest.fixture(params=["memory://", "sqlite:///{directory}/ledger.db"], ids=["memory", "sqlite"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Ledger, None]:
    async with open_ledger(request.param.format(directory=tmp_path)) as opened:
        yield opened


async def one_life(ledger: Ledger, run: str) -> str:
    """A thread with one run of one entry; gives its epoch."""
    async with await ledger.acquire_lease(KEY, run) as writer:
        begun = Fact(owner=RUNTIME, kind="", body=encode_event(RunStarted(thread_id="t", run_id=run)))
        await writer.begin_run([begun], run_id=run, agent="agent", claim=None)
        await writer.finish_run()
    info = await ledger.get_thread(KEY)
    assert info is not None
    return info.epoch


async def trimmed(runner: Runner) -> ThreadEpoch:
    """A thread of several runs whose oldest entries were dropped."""
    for turn in range(4):
        await run_once(runner, user(f"u{turn}"))
    assert await apply_retention(runner.ledger, KEY, 2)
    info = await runner.ledger.get_thread(KEY)
    assert info is not None
    assert info.first > 4
    return ThreadEpoch(KEY, info.epoch)


async def test_a_view_of_what_is_no_longer_retained_is_refused_instead_of_empty() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        thread = await trimmed(runner)
        with pytest.raises(StaleCursor):
            await load_view(runner.ledger, KEY, until=3)
        with pytest.raises(StaleCursor):
            await ViewCache(runner.ledger).view_at(thread, 3)
        with pytest.raises(StaleCursor):
            await runner.reader_views(thread).view_at(3)


async def test_a_view_at_the_edge_of_what_is_retained_has_the_whole_conversation_before_it() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        await trimmed(runner)
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        view = await load_view(runner.ledger, KEY, until=info.first - 1)
    assert [message.id[:2] for message in view.transcript.messages()] == ["u0", "m-", "u1", "m-", "u2", "m-"]


@pytest.mark.parametrize("read", ["view_at", "view_before_run"])
async def test_a_cached_view_that_retention_has_overtaken_is_folded_from_the_checkpoint(read: str) -> None:
    """Another process ran and trimmed the thread: the next run here was refused with `stale_cursor`."""
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("old"))
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        views, thread = ViewCache(runner.ledger), ThreadEpoch(KEY, info.epoch)
        assert (await views.view_at(thread, info.last)).seq == info.last
        await trimmed(runner)
        newer = await runner.ledger.get_thread(KEY)
        assert newer is not None
        assert newer.first > info.last + 1
        view = await getattr(views, read)(thread, newer.last)
        fresh = await load_view(runner.ledger, KEY, until=newer.last)
    assert view.to_checkpoint() == fresh.to_checkpoint()


async def test_a_read_outlasts_many_runs_whose_retention_overtakes_it() -> None:
    """A slow reader of a thread with short runs was refused after ten of them (`stale_cursor`)."""
    async with runner_of(ScriptedAgent(hello)) as runner:
        thread = await trimmed(runner)
        runs = iter(range(25))

        async def read_overtaken() -> ThreadView:
            info = await require_thread(runner.ledger, KEY)
            for turn in runs:
                await run_once(runner, user(f"overtaking-{turn}"))
                await run_once(runner, user(f"overtaking-{turn}-again"))
                assert await apply_retention(runner.ledger, KEY, 2)
                break
            return await load_view(runner.ledger, KEY, until=info.first - 1, epoch=thread.epoch)

        with unless_hung():
            view = await read_despite_retention(runner.ledger, KEY, read_overtaken)
            info = await require_thread(runner.ledger, KEY)
        assert (list(runs), view.seq) == ([], info.first - 1)


async def test_a_reader_does_not_read_again_what_it_has_received() -> None:
    """A reader from the beginning read all its entries a second time for the snapshot of the newest run."""
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
        info = await require_thread(runner.ledger, KEY)
        views, thread = ViewCache(runner.ledger), ThreadEpoch(KEY, info.epoch)
        newest = (await views.view_at(thread, info.last)).to_checkpoint()
        batches = await runner.ledger.read_batches(KEY, 0)
        seqs = (2, 5, info.last - 1)
        expected = [(await load_view(runner.ledger, KEY, until=seq)).to_checkpoint() for seq in seqs]
        await runner.ledger.erase_thread(KEY)
        reader = ReaderViews(views, runner.ledger, thread, ThreadView())
        found = [(await reader.view_at(seq, batches)).to_checkpoint() for seq in seqs]
        assert (await views.view_at(thread, info.last)).to_checkpoint() == newest
        reader.release()
        with pytest.raises(UnknownThread):
            await reader.view_at(5, batches)
    assert found == expected


async def test_a_view_does_not_depend_on_the_cache() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        for turn in range(3):
            await run_once(runner, user(f"u{turn}"))
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        views, thread = ViewCache(runner.ledger), ThreadEpoch(KEY, info.epoch)
        newest = await views.view_at(thread, info.last)
        earlier = await ReaderViews(views, runner.ledger, thread).view_at(5)
        again = await views.view_at(thread, info.last)
        fresh = [(await load_view(runner.ledger, KEY, until=seq)).to_checkpoint() for seq in (5, info.last)]
    assert again is newest
    assert [earlier.to_checkpoint(), newest.to_checkpoint()] == fresh


async def test_a_tail_of_an_earlier_epoch_returns_nothing_of_the_new_one(ledger: Ledger) -> None:
    old = await one_life(ledger, "first")
    await ledger.erase_thread(KEY)
    new = await one_life(ledger, "second")
    with unless_hung():
        with pytest.raises(UnknownThread):
            async with ledger.tail(KEY, 0, epoch=old) as tail:
                await tail.next_batches()
        async with ledger.tail(KEY, 0, epoch=new) as tail:
            assert [batch.run for batch in await tail.next_batches()] == ["second"]


async def test_a_tail_of_an_erased_thread_ends(ledger: Ledger) -> None:
    old = await one_life(ledger, "first")
    await ledger.erase_thread(KEY)
    with unless_hung(), pytest.raises(UnknownThread):
        async with ledger.tail(KEY, 0, epoch=old) as tail:
            await tail.next_batches()


async def test_reading_an_earlier_epoch_returns_nothing_of_the_new_one(ledger: Ledger) -> None:
    old = await one_life(ledger, "first")
    await ledger.erase_thread(KEY)
    new = await one_life(ledger, "second")
    try:
        found = await ledger.read_batches(KEY, 0, epoch=old)
    except UnknownThread:
        found = []
    assert found == []
    assert [batch.run for batch in await ledger.read_batches(KEY, 0, epoch=new)] == ["second"]


async def test_a_view_of_an_earlier_epoch_is_not_folded_from_the_new_one() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("mine"))
        before = await runner.ledger.get_thread(KEY)
        assert before is not None
        await runner.erase_thread(KEY)
        await run_once(runner, user("theirs"))
        with unless_hung(), pytest.raises((UnknownThread, StaleCursor)):
            await runner.views.view_at(ThreadEpoch(KEY, before.epoch), before.last)


async def test_with_history_client_an_empty_list_clears_the_conversation() -> None:
    async with runner_of(ScriptedAgent(hello), dataclasses.replace(SETTINGS, history="client")) as runner:
        await run_once(runner, user("u1"))
        started = await runner.start(request())
        with unless_hung():
            while (info := await runner.ledger.get_run(KEY, started.run)) is None or not info.last:
                await anyio.lowlevel.checkpoint()
        view = await runner.view_thread(KEY)
    assert view.transcript.messages() == [AssistantMessage(id="m-" + started.run, content="hello")]


@pytest.mark.parametrize("kept", [["u1", "u2"], ["u1"]], ids=["a message removed", "edited and sent again"])
async def test_with_history_client_a_replaced_conversation_keeps_the_clients_order(kept: list[str]) -> None:
    """The new message came first, in the last snapshot and for the next model."""
    async with runner_of(ScriptedAgent(hello), dataclasses.replace(SETTINGS, history="client")) as runner:
        for newest in ("u1", "u2"):
            view = await runner.view_thread(KEY) if newest == "u2" else None
            await run_once(runner, *(view.transcript.messages() if view else ()), user(newest))
        await run_once(runner, *(user(each) for each in kept), user("u3"))
        view = await runner.view_thread(KEY)
    assert [message.id for message in view.transcript.messages()[:-1]] == [*kept, "u3"]


async def test_an_expired_interrupt_is_closed_once_a_later_run_began() -> None:
    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        if run.input.messages[-1].id == "u1":
            raise RunInterrupted([Interrupt(id="i1", reason="confirmation", expires_at="2020-01-01T00:00:00Z")])
        yield TextMessageStart(message_id="m2")
        yield TextMessageContent(message_id="m2", delta="…")
        await anyio.sleep_forever()

    async with runner_of(ScriptedAgent(asking)) as runner:
        await run_once(runner, user("u1"))
        open_interrupts = set((await runner.view_thread(KEY)).open_interrupts)
        await runner.start(request(user("u2")))
        view = await runner.view_thread(KEY)
    assert open_interrupts == {"i1"}
    assert view.open_interrupts == {}


class RecordingLedger(MemoryLedger):
    """Remembers after which entries it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_after: list[int] = []

    async def read_batches(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        self.read_after.append(after)
        return await super().read_batches(key, after, until=until, limit=limit, epoch=epoch)


async def talk_then_hang(run: Run) -> AsyncGenerator[Any, None]:
    async for event in forever(run) if run.input.messages[-1].id == "last" else hello(run):
        yield event


@pytest.mark.parametrize("is_own", [True, False], ids=["run of this process", "run of another process"])
async def test_the_thread_before_an_active_run_is_not_folded_again_for_each_client(is_own: bool) -> None:
    async with (
        RecordingLedger() as ledger,
        Runner(ledger, {"agent": ScriptedAgent(talk_then_hang)}, SETTINGS) as runner,
    ):
        for turn in range(3):
            await run_once(runner, user(f"u{turn}"))
        views = runner.views if is_own else ViewCache(ledger)
        before = await runner.ledger.get_thread(KEY)
        assert before is not None
        thread = ThreadEpoch(KEY, before.epoch)
        known = await views.view_at(thread, before.last)
        started = await begun(runner, user("last"))
        found = [await views.view_before_run(thread, started.after)]
        now = await runner.ledger.get_thread(KEY)
        assert now is not None
        newest = await views.view_at(thread, now.last)
        ledger.read_after.clear()
        found += [await views.view_before_run(thread, started.after) for _ in range(2)]
        assert ledger.read_after == []
        fresh = (await load_view(ledger, KEY, until=started.after)).to_checkpoint()
        assert [view.to_checkpoint() for view in found] == [fresh] * 3
    assert (known.seq, newest.seq) == (started.after, now.last)


async def test_the_thread_before_an_active_run_has_the_facts_that_came_before_it() -> None:
    async with runner_of(ScriptedAgent(talk_then_hang)) as runner:
        await run_once(runner, user("u1"))
        await runner.view_thread(KEY)
        await runner.append_platform_fact(KEY, "ambient.repos", "repo_added", {"name": "docs"})
        started = await begun(runner, user("last"))
        view = await runner.views.view_before_run(ThreadEpoch(KEY, started.epoch), started.after)
        assert view.seq == started.after
        assert view.to_checkpoint() == (await load_view(runner.ledger, KEY, until=started.after)).to_checkpoint()


async def test_an_erased_thread_leaves_no_view_of_a_run_before() -> None:
    async with runner_of(ScriptedAgent(talk_then_hang)) as runner:
        await run_once(runner, user("u1"))
        started = await begun(runner, user("last"))
        views, thread = ViewCache(runner.ledger), ThreadEpoch(KEY, started.epoch)
        await views.view_before_run(thread, started.after)
        await runner.erase_thread(KEY)
        views.evict_thread(KEY)
        with pytest.raises((UnknownThread, StaleCursor)):
            await views.view_before_run(thread, started.after)


async def test_the_times_of_a_run_do_not_depend_on_who_folds_it() -> None:
    """The view that readers extend joins the lines of many batches, which have different times."""
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        entries = one_batch_per_entry(await runner.ledger.read_batches(KEY, 0))
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        views, thread, folded = ViewCache(runner.ledger), ThreadEpoch(KEY, info.epoch), ThreadView()
        views.track(thread, ThreadView())
        for batch in entries:
            views.extend(thread, batch)
            folded.apply(batch)
        extended = await views.view_at(thread, entries[-1].last)
    assert extended.to_checkpoint() == folded.to_checkpoint()
    assert folded.last_run is not None
    assert (folded.last_run.started, folded.last_run.ended, folded.updated) == (
        200,
        len(entries) * 100,
        folded.last_run.ended,
    )


@pytest.mark.parametrize("received", [0, 3, 100], ids=["nothing", "a part", "all"])
async def test_what_readers_received_of_a_run_is_not_read_again_for_the_next_one(received: int) -> None:
    async with RecordingLedger() as ledger, Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS) as runner:
        await run_once(runner, user("u1"))
        before = await require_thread(ledger, KEY)
        await run_once(runner, user("u2"))
        after = await require_thread(ledger, KEY)
        views, thread = ViewCache(ledger), ThreadEpoch(KEY, after.epoch)
        entries = one_batch_per_entry(await ledger.read_batches(KEY, before.last))[:received]
        views.track(thread, await views.view_at(thread, before.last))
        for batch in entries:
            views.extend(thread, batch)
        views.untrack(thread)
        ledger.read_after.clear()
        view = await views.view_at(thread, after.last)
        assert ledger.read_after == ([] if received == 100 else [before.last + received])
        folded = await load_view(ledger, KEY, until=after.last)
    assert view.transcript.messages() == folded.transcript.messages()
    assert view.last_run is not None
    assert (view.seq, view.last_run.status) == (after.last, "finished")


def one_batch_per_entry(batches: list[Batch]) -> list[Batch]:
    """The entries in batches of one, each with a time of its own: 100, 200, …"""
    return [
        Batch(first=seq, owner=batch.owner, kind=batch.kind, run=batch.run, ts=seq * 100, lines=[line])
        for batch in batches
        for seq, line in enumerate(batch.lines, batch.first)
    ]


async def threads_of(runner: Runner, count: int, *, text: str) -> list[ThreadEpoch]:
    """Run once on each of so many threads, with a message of this text."""
    for number in range(count):
        await run_once(runner, user(f"u{number}", text), thread=f"t{number}")
    infos = [await runner.ledger.get_thread(KEY._replace(id=f"t{number}")) for number in range(count)]
    return [ThreadEpoch(info.key, info.epoch) for info in infos if info is not None]


async def test_threads_stay_in_memory_up_to_a_number_of_bytes() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        threads = await threads_of(runner, 100, text="x" * 100_000)
        views = ViewCache(runner.ledger, max_bytes=1 << 20)
        for thread in threads:
            await views.view_at(thread, 4)
            await views.view_at(threads[0], 4)
        kept = [thread for thread in threads if views.is_past(thread, 3)]
    assert 7 <= len(kept) <= 10
    assert kept[0] == threads[0]
    assert kept[1:] == threads[-len(kept) + 1 :]


async def test_small_threads_stay_in_memory_however_many() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        threads = await threads_of(runner, 100, text="x")
        views = ViewCache(runner.ledger, max_bytes=4 << 20)
        for thread in threads:
            await views.view_at(thread, 4)
        assert all(views.is_past(thread, 3) for thread in threads)


async def test_the_thread_that_was_used_last_stays_in_memory_however_large() -> None:
    settings = dataclasses.replace(SETTINGS, view_cache=1)
    async with runner_of(ScriptedAgent(hello), settings) as runner:
        threads = await threads_of(runner, 2, text="x")
        for thread in threads:
            await runner.views.view_at(thread, 4)
        assert [runner.views.is_past(thread, 3) for thread in threads] == [False, True]


@pytest.mark.parametrize("has_text", [True, False], ids=["known text", "lines only"])
async def test_short_texts_of_a_run_are_folded_like_any_lines(has_text: bool) -> None:
    def batch_of(first: int, *events: Event, text: JoinedText | None = None, run: str = "r") -> Batch:
        return Batch(
            first=first, owner=RUNTIME, kind="", run=run, ts=5, lines=list(map(encode_event, events)), text=text
        )

    thread, cache = ThreadEpoch(KEY, "epoch"), ViewCache(MemoryLedger())
    cache.track(thread, ThreadView())
    started = RunStarted(thread_id="t", run_id="r")
    batches = [batch_of(1, started, TextMessageStart(message_id="m"))]
    for number in range(600):
        delta = TextMessageContent(message_id="m", delta=f"{number} ")
        batches.append(batch_of(3 + number, delta, text=JoinedText("m", delta.delta) if has_text else None))
    expected = ThreadView()
    for batch in batches:
        cache.extend(thread, batch)
        cache.extend(thread, batch)  # Another reader received it too.
        expected.apply(batch)
    found = await cache.view_at(thread, 602)
    assert found.seq == expected.seq == 602
    assert found.transcript.messages() == expected.transcript.messages()


async def test_the_events_of_a_batch_are_folded_in_place_of_its_lines_and_forgotten() -> None:
    thread, cache = ThreadEpoch(KEY, "epoch"), ViewCache(MemoryLedger())
    cache.track(thread, ThreadView())
    start = TextMessageStart(message_id="m")
    lines = [encode_event(start), *[encode_event(TextMessageContent(message_id="m", delta=str(n))) for n in range(20)]]
    known = [start, TextMessageContent(message_id="m", delta="of the events")]
    batch = Batch(first=1, owner=RUNTIME, kind="", run="r", ts=5, lines=lines, events=known)
    cache.extend(thread, batch)
    cache.extend(thread, batch)
    found = await cache.view_at(thread, 21)
    assert [message.content for message in found.transcript.messages()] == ["of the events"]
    assert batch.events == ()
