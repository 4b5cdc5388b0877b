"""Checkpoints that runs write: views folded from them are those folded from all entries, whatever happens to the thread."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.errors import LedgerError
from ambient_runner.ledger import Ledger, SqliteLedger, open_ledger
from ambient_runner.ledger.records import Batch, CheckpointPart
from ambient_runner.ledger.sqlite.backup import backup_database
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.projections.view_checkpoint import decode_part
from ambient_runner.protocol.events import StateSnapshot
from ambient_runner.runs import checkpoints, view_cache
from ambient_runner.runs.maintenance import apply_retention
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import ReaderViews, ThreadEpoch, ViewCache, load_view
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, said, user

SECRET = "violet-4711-violet"


@pytest.fixture(params=["memory://", "sqlite:///{directory}/ledger.db"], ids=["memory", "sqlite"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Ledger, None]:
    async with open_ledger(request.param.format(directory=tmp_path)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with every second run, and however little that is."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_ENTRIES", 20)


async def talk(run: Run) -> AsyncGenerator[Any, None]:
    yield StateSnapshot(snapshot={"runs": run.key, "said": "x" * 200})
    for event in said("m-" + run.key, *"abcdefgh"):
        yield event


def runner_on(ledger: Ledger, **settings: Any) -> Runner:
    return Runner(ledger, {"agent": ScriptedAgent(talk)}, dataclasses.replace(SETTINGS, **settings))


async def fold_all(ledger: Ledger) -> ThreadView:
    """The thread folded from its entries alone."""
    view, batches = ThreadView(), list[Batch]()
    while found := await ledger.read_batches(KEY, batches[-1].last if batches else 0):
        batches += found
    for batch in batches:
        view.apply(batch)
    return view


async def check_views(ledger: Ledger) -> None:
    """Every view, read from the store, is the one folded from all entries."""
    whole = await fold_all(ledger)
    newest = await load_view(ledger, KEY)
    assert (newest.seq, newest.to_checkpoint()) == (whole.seq, whole.to_checkpoint())
    assert newest.accepted_after == whole.accepted_after


async def test_a_view_is_the_same_with_and_without_checkpoints(ledger: Ledger) -> None:
    async with runner_on(ledger) as runner:
        for turn in range(12):
            await run_once(runner, user(f"u{turn}"))
            await check_views(ledger)
    found = await ledger.get_checkpoint(KEY)
    assert found is not None
    assert len(found.parts) >= 4


def count_read_entries(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of entries of every batch that is read from now on."""
    read, read_batches = list[int](), ledger.read_batches

    async def read_counted(*args: Any, **options: Any) -> list[Batch]:
        found = await read_batches(*args, **options)
        read.extend(len(batch.lines) for batch in found)
        return found

    monkeypatch.setattr(ledger, "read_batches", read_counted)
    return read


async def test_a_fold_of_a_long_thread_reads_what_follows_the_checkpoint(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runner_on(ledger) as runner:
        for turn in range(12):
            await run_once(runner, user(f"u{turn}"))
    read = count_read_entries(ledger, monkeypatch)
    view = await load_view(ledger, KEY)
    assert view.seq > 120
    assert sum(read) <= 40


@pytest.mark.parametrize("far", [0, 30, 1_000])
async def test_a_reader_that_skips_entries_gets_the_view_of_all_of_them(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, far: int
) -> None:
    monkeypatch.setattr(view_cache, "_MAX_ENTRIES_TO_FOLD", far)
    async with runner_on(ledger) as runner:
        for turn in range(8):
            await run_once(runner, user("u2" if turn == 5 else f"u{turn}"))
    info = await view_cache.require_thread(ledger, KEY)
    views, thread = ViewCache(ledger), ThreadEpoch(KEY, info.epoch)
    newest = await views.view_at(thread, info.last)  # What readers behind it cannot use.
    expected = {seq: (await load_view(ledger, KEY, until=seq)).to_checkpoint() for seq in range(1, info.last, 9)}
    for skipped in (9, 27, 54):
        reader = ReaderViews(views, ledger, thread)
        for seq in range(1, info.last, skipped):
            assert (await reader.view_at(seq)).to_checkpoint() == expected[seq]
    assert await views.view_at(thread, info.last) is newest


async def test_a_reader_that_is_far_behind_reads_what_follows_the_checkpoint(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_cache, "_MAX_ENTRIES_TO_FOLD", 50)
    async with runner_on(ledger) as runner:
        for turn in range(12):
            await run_once(runner, user(f"u{turn}"))
    info = await view_cache.require_thread(ledger, KEY)
    views, thread = ViewCache(ledger), ThreadEpoch(KEY, info.epoch)
    await views.view_at(thread, info.last)
    reader = ReaderViews(views, ledger, thread)
    await reader.view_at(5)
    read = count_read_entries(ledger, monkeypatch)
    await reader.view_at(info.last - 1)
    assert sum(read) <= 40


async def test_rewinds_are_in_the_checkpoint(ledger: Ledger) -> None:
    async with runner_on(ledger) as runner:
        for turn in range(8):
            await run_once(runner, user(f"u{turn}"))
        await run_once(runner, user("u2"))
        for turn in range(8, 12):
            await run_once(runner, user(f"u{turn}"))
            await check_views(ledger)
    found = await load_view(ledger, KEY)
    assert [message.id for message in found.transcript.messages() if message.id.startswith("u")] == [
        *("u0", "u1", "u2"),
        *("u8", "u9", "u10", "u11"),
    ]


async def test_a_thread_is_forked_at_a_message_before_its_checkpoint(ledger: Ledger) -> None:
    async with runner_on(ledger) as runner:
        for turn in range(8):
            await run_once(runner, user(f"u{turn}"))
        runner.views.evict_thread(KEY)
        fork = ForkOrigin(thread_id="t", message_id="u2")
        await run_once(runner, user("new"), thread="copy", fork=fork)
        copied = await runner.view_thread(KEY._replace(id="copy"))
    assert [message.id for message in copied.transcript.messages() if message.id[0] != "m"] == ["u0", "u1", "new"]
    assert copied.state.value["said"] == "x" * 200


async def test_retention_and_checkpoints_of_runs_go_together(ledger: Ledger) -> None:
    async with runner_on(ledger) as runner:
        for turn in range(12):
            await run_once(runner, user(f"u{turn}"))
            before = (await fold_all(ledger)) if turn < 6 else None
            if turn == 5:
                assert before is not None
                assert await apply_retention(ledger, KEY, 15)
                assert (await load_view(ledger, KEY)).transcript.messages() == before.transcript.messages()
        runner.views.evict_thread(KEY)
        view = await runner.view_thread(KEY)
        info = await ledger.get_thread(KEY)
        assert info is not None
        edge = await load_view(ledger, KEY, until=info.first - 1)
    assert [message.id for message in view.transcript.messages() if message.id[0] == "u"] == [
        f"u{turn}" for turn in range(12)
    ]
    assert edge.transcript.messages() == view.transcript.messages()[: len(edge.transcript.messages())]


async def test_two_processes_write_checkpoints_of_one_thread_in_turns(tmp_path: Path) -> None:
    """Each has the thread in memory as it was at its own last run."""
    path = tmp_path / "ledger.db"
    async with (
        SqliteLedger(path) as one,
        SqliteLedger(path) as two,
        runner_on(one) as first,
        runner_on(two) as second,
    ):
        for turn in range(16):
            await run_once(second if turn % 5 in (1, 2, 3) else first, user(f"u{turn}"))
            await check_views(one)
        await run_once(first, user("u3"))  # drops parts that the other process remembers
        for turn in range(16, 22):
            await run_once(second if turn % 2 else first, user(f"u{turn}"))
            await check_views(two)
        info = await one.get_thread(KEY)
        assert info is not None
        cached = [await runner.views.view_at(ThreadEpoch(KEY, info.epoch), info.last) for runner in (first, second)]
        whole = (await fold_all(one)).to_checkpoint()
    assert [view.to_checkpoint() for view in cached] == [whole, whole]


async def test_a_backup_has_the_checkpoints(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    async with SqliteLedger(path) as ledger, runner_on(ledger) as runner:
        for turn in range(6):
            await run_once(runner, user(f"u{turn}"))
        backup_database(path, copy)
        stored = await ledger.get_checkpoint(KEY)
    async with SqliteLedger(copy) as restored:
        assert stored is not None
        assert await restored.get_checkpoint(KEY) == stored
        await check_views(restored)


async def test_a_checkpoint_has_no_secret_and_goes_with_its_thread(tmp_path: Path) -> None:
    async def tell(run: Run) -> AsyncGenerator[Any, None]:
        yield StateSnapshot(snapshot={"key": SECRET, "private": "lilac-" * 100})
        for event in said("m-" + run.key, *f"the key is {SECRET} indeed"):
            yield event

    path = tmp_path / "ledger.db"
    settings = dataclasses.replace(SETTINGS, secrets=(SECRET,))
    async with SqliteLedger(path) as ledger, Runner(ledger, {"agent": ScriptedAgent(tell)}, settings) as runner:
        for turn in range(4):
            await run_once(runner, user(f"u{turn}", f"tell {SECRET}"))
        stored = await ledger.get_checkpoint(KEY)
        assert stored is not None
        assert stored.parts
        assert SECRET.encode() not in b"".join([stored.body, *(part.body for part in stored.parts)])
        await runner.erase_thread(KEY)
        assert [file.name for file in tmp_path.iterdir() if b"lilac-" in file.read_bytes()] == []


async def test_a_checkpoint_that_cannot_be_made_does_not_fail_the_run(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(self: ViewCache, *args: object) -> None:
        raise LedgerError

    async with runner_on(ledger) as runner:
        monkeypatch.setattr(ViewCache, "make_checkpoint", fail)
        for turn in range(4):
            await run_once(runner, user(f"u{turn}"))
        assert await ledger.get_checkpoint(KEY) is None
        monkeypatch.undo()
        view = await runner.view_thread(KEY)
    assert view.last_run is not None
    assert view.last_run.status == "finished"
    assert "without the checkpoint that is due" in caplog.text


async def test_an_unreadable_part_says_which_version_to_start(ledger: Ledger) -> None:
    with pytest.raises(LedgerError):
        decode_part(CheckpointPart(1, b'[{"role":"unknown"}]'))


async def test_a_large_state_is_not_written_with_every_run(ledger: Ledger) -> None:
    """A checkpoint waits until the entries since the last one are as large as it is itself."""

    async def grow(run: Run) -> AsyncGenerator[Any, None]:
        if run.input.messages[-1].id == "u0":
            yield StateSnapshot(snapshot={"large": "x" * 100_000})
        for event in said("m-" + run.key, *("x" for _ in range(30))):
            yield event

    seqs = set[int]()
    async with Runner(ledger, {"agent": ScriptedAgent(grow)}, SETTINGS) as runner:
        for turn in range(12):
            await run_once(runner, user(f"u{turn}"))
            found = await ledger.get_checkpoint(KEY)
            assert found is not None
            seqs.add(found.seq)
    assert len(seqs) < 6
