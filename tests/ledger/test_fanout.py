"""The channel itself: what it keeps, what it forgets, and when it goes."""

from __future__ import annotations

import anyio

from ambient_runner.ledger.base import RUNTIME, Batch, Text, ThreadInfo, ThreadKey
from ambient_runner.ledger.fanout import RETAINED, Channel, Hub, cut, live_tail

KEY = ThreadKey("acme", "ann", "trip")


def batch(first: int, *lines: bytes) -> Batch:
    return Batch(first=first, owner=RUNTIME, kind="", run="run-1", ts=0, lines=list(lines))


def test_a_cut_batch_keeps_its_numbers() -> None:
    whole = batch(5, b"a", b"bb", b"c")
    whole.text = Text("m", "abbc")
    part = cut(whole, 6, 6)
    assert (part.first, part.last, part.lines, part.size, part.text) == (6, 6, [b"bb"], 2, None)
    assert cut(whole, 1) is whole


def test_only_the_newest_mebibyte_is_retained() -> None:
    channel = Channel(KEY)
    channel.readers = 1
    half = b"x" * (RETAINED // 2)
    for seq in range(1, 6):
        channel.publish(batch(seq, half))
    assert channel.after(0) == []
    assert [kept.first for kept in channel.after(3)] == [4, 5]


def test_after_a_hole_only_what_follows_is_retained() -> None:
    channel = Channel(KEY)
    channel.publish(batch(1, b"a"))
    channel.publish(batch(3, b"c"))
    assert channel.after(0) == []
    assert channel.after(1) == []
    assert [kept.first for kept in channel.after(2)] == [3]
    assert channel.last == 3


def test_a_batch_published_twice_counts_once() -> None:
    channel = Channel(KEY)
    for _ in range(2):
        channel.publish(batch(1, b"a"))
    assert [kept.lines for kept in channel.after(0)] == [[b"a"]]


async def test_a_channel_goes_with_its_last_user() -> None:
    hub = Hub()
    one, two = hub.open(KEY), hub.open(KEY, reader=True)
    assert one is two
    hub.close(one)
    assert hub.open(KEY) is two
    hub.close(two)
    hub.close(two, reader=True)
    assert hub.open(KEY) is not two


async def test_what_is_committed_while_a_reader_looks_into_the_store_comes_once() -> None:
    hub = Hub()
    log = [batch(1, b"a")]

    async def lookup(key: ThreadKey) -> ThreadInfo:
        info = ThreadInfo(key=key, agent="demo", epoch="e", created=0, updated=0, first=1, last=1)
        log.append(batch(2, b"b"))
        hub.publish(key, "e", log[-1])
        return info

    async def read(key: ThreadKey, life: str, after: int) -> list[Batch]:
        found = [entry for entry in log if entry.first > after]
        if len(log) == 2:
            log.append(batch(3, b"c"))
            hub.publish(key, "e", log[-1])
        return found

    with anyio.fail_after(5):
        async with live_tail(hub, KEY, 0, lookup, read) as tail:
            got: list[int] = []
            while tail.position < 3:
                got += [entry.first for entry in await tail.next()]
    assert got == [1, 2, 3]


async def test_a_waiting_reader_takes_what_is_published_and_wakes_for_the_rest() -> None:
    hub = Hub()
    taken: list[int] = []
    prepared: list[int] = []
    woken: list[list[int]] = []

    async def unknown(*_: object) -> None:
        return None

    async def nothing(*_: object) -> list[Batch]:
        raise NotImplementedError

    async with live_tail(hub, KEY, 0, unknown, nothing) as tail:

        class Reader:
            def prepare(self, coming: Batch) -> None:
                prepared.append(coming.first)

            def take(self, news: Batch) -> bool:
                if news.first == 3:
                    return False
                tail.position = news.last
                taken.append(news.first)
                return news.first != 4

        async def follow() -> None:
            while len(woken) < 2:
                found = await tail.next(Reader())
                woken.append([one.first for one in found])

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await anyio.wait_all_tasks_blocked()
                hub.prepare(KEY, "e", batch(1, b"x"))
                hub.prepare(KEY, "another life", batch(9, b"x"))
                for seq in (1, 2, 3):
                    hub.publish(KEY, "e", batch(seq, b"x"))
                await anyio.wait_all_tasks_blocked()
                hub.publish(KEY, "e", batch(4, b"x"))
    assert prepared == [1]
    assert taken == [1, 2, 4]
    assert woken == [[3], []]
