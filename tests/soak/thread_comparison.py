"""Comparison of retired threads, while no fault is under way: at two servers, and with what every client received."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.talk import ending, events_of, new_id, numbers, run_input, text_of
from tests.faults.clients import CUT
from tests.faults.comparison import epoch_of

from .chats import follow_to_end
from .records import Receipt
from .streams import frames_of, opened

if TYPE_CHECKING:
    from tests.e2e.sse import Frame

    from .records import ThreadRecord
    from .world import World

__all__ = ["compare_retired"]

REPLAYS = 2
"""Servers at which a thread is read from its beginning, to compare them with each other."""


async def compare_retired(world: World) -> None:
    """Compare every retired thread, count what is wrong, and forget it."""
    while world.retired:
        record = world.retired.pop()
        try:
            await _compare_thread(world, record)
        except (*CUT, AssertionError) as error:
            world.report_failure("not compared", f"{record.id}: {error!r}")
        _count_thread(world, record)


async def _compare_thread(world: World, record: ThreadRecord) -> None:
    urls = [server.url for server in world.random.sample(world.servers, len(world.servers))]
    if record.is_erased:
        await _check_erased(world, record, urls)
        return
    for receipt in [receipt for receipt in record.receipts if receipt.is_follower]:
        await follow_to_end(record, receipt, world.pick_server(world.random).url)
    for url in urls[:REPLAYS]:
        replayed = Receipt(is_follower=True)
        record.receipts.append(replayed)
        await follow_to_end(record, replayed, url)
    await _check_usable(world, record, urls[0])


async def _check_erased(world: World, record: ThreadRecord, urls: list[str]) -> None:
    """A request that a server held while the thread was deleted may have begun it anew since. Nothing else may be there."""
    for url in urls:
        async with opened(f"{url}/threads/{record.id}/events?until=idle&snapshots=all") as stream:
            frames: list[Frame] = [frame async for frame in frames_of(stream)] if stream.status == 200 else []
            is_known = record.epoch in {epoch_of(frame.id) for frame in frames if frame.id}
            if is_known or stream.status not in {200, 404}:
                world.report_failure("erased, but there", f"{record.id}: {stream.status}")


async def _check_usable(world: World, record: ThreadRecord, url: str) -> None:
    """Send one more message to the thread."""
    body = run_input(record.id, "count 3")
    async with opened(f"{url}/", "POST", body=body, headers={"Idempotency-Key": new_id("key")}) as stream:
        if stream.status != 200:
            world.report_failure("unusable", f"{record.id}: {stream.status} {(await stream.body()).decode()}")
            return
        events = events_of([frame async for frame in frames_of(stream)])
    if (ending(events), text_of(events)) != ("success", numbers(3)):
        world.report_failure("unusable", f"{record.id}: {ending(events)} {text_of(events)!r}")


def _count_thread(world: World, record: ThreadRecord) -> None:
    found = record.count_faults()
    world.wrong.update(found)
    if found:
        world.failures.append("; ".join([f"{record.id}: {dict(found)}", *record.describe_losses()]))
    world.counts["threads"] += 1
    world.counts["threads erased"] += record.is_erased
    world.counts["runs"] += len(record.starts)
    world.counts["events stored"] += len(record.entries)
    world.counts["events received"] += sum(len(receipt.seqs) for receipt in record.receipts)
    world.counts["gaps announced"] += sum(len(receipt.gaps) for receipt in record.receipts)
