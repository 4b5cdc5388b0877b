from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ambient_runner.errors import RunInterrupted, StaleCursor, UnknownThread
from ambient_runner.ledger import Ledger, open_ledger
from ambient_runner.ledger.records import RUNTIME, Fact
from ambient_runner.protocol.events import (
    AssistantMessage,
    Interrupt,
    RunStarted,
    TextMessageContent,
    TextMessageStart,
    encode_event,
)
from ambient_runner.runs.maintenance import apply_retention
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import ReaderViews, ThreadEpoch, ViewCache, load_view
from tests.machine_speed import unless_hung
from tests.scripts import hello
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
