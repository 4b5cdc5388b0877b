"""Connections that end at every byte of a stream, and streams that are resumed before anything new was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from tests.e2e.sse import Stream, connect, open_stream, request_head
from tests.e2e.talk import events_of, history, new_id, one_run, run, run_input
from tests.machine_speed import unless_hung

from .clients import CUT
from .comparison import compare
from .harness import Harness, stop_run
from .proxy import ConnectionFault, FaultProxy

if TYPE_CHECKING:
    from tests.e2e.server import Child
    from tests.e2e.sse import Frame

How = Literal["reset", "close", "half-close"]


async def read_until_cut(url: str, thread: str) -> tuple[list[Frame], bool]:
    """Return the whole frames with an id that came through, and True if the stream ended properly."""
    kept: list[Frame] = []
    try:
        async with open_stream(f"{url}/threads/{thread}/events?until=idle&snapshots=all") as stream:
            async for frame in stream:
                kept += [frame] if frame.id else []
    except CUT:
        return kept, False
    return kept, True


async def response_size(url: str, thread: str) -> int:
    async with connect(url) as (reader, writer):
        path = f"/threads/{thread}/events?until=idle&snapshots=all"
        writer.write(request_head("GET", path, {"Host": url.removeprefix("http://"), "Connection": "close"}))
        return len(await reader.read(-1))


async def test_f04_a_cut_at_every_byte_of_a_stream_is_resumed_exactly(server: Child, long: bool) -> None:
    """In the head, between two frames, inside a frame and inside a chunk's size: the rest follows, and nothing twice."""
    thread, step, kinds = new_id("thread"), 1 if long else 7, get_args(How)
    proxy, wrong, cuts = FaultProxy(server.port), dict[int, object](), 0
    with unless_hung():
        await run(server.url, run_input(thread, "weather Lisbon"))
        stored, size = await history(server.url, thread), await response_size(server.url, thread)
        async with proxy.listening() as url:
            for cut in range(1, size, step):
                proxy.fault = ConnectionFault(cut_after=cut, how=kinds[cut % len(kinds)])
                kept, is_whole = await read_until_cut(url, thread)
                rest = [] if is_whole else await history(server.url, thread, after=kept[-1].id if kept else "")
                cuts += not is_whole
                if found := compare([*kept, *rest], stored):
                    wrong[cut] = found
    assert wrong == {}
    assert cuts > 0.9 * len(range(1, size, step))


async def test_f04_clients_behind_a_network_that_cuts_lose_nothing(server: Child) -> None:
    """Live: every connection through the proxy breaks after some kilobytes, while the run goes on."""
    proxy = FaultProxy(server.port)
    with unless_hung():
        async with proxy.listening() as url:
            harness = Harness(urls=[url], history_url=server.url)
            proxy.fault = ConnectionFault(cut_after=8_000, how="half-close", delay=0.005)

            async def cut_differently() -> None:
                proxy.fault = ConnectionFault(cut_after=6_000, delay=0.002)

            await harness.run(cut_differently)
    assert proxy.cuts >= len(harness.clients)
    assert all(client.connections > 1 for client in harness.clients)


async def test_f05_a_resume_of_a_resume_repeats_what_the_first_one_sent(server: Child) -> None:
    """Nothing new is stored between the two: the same cursor gives the same frames, made for the reader and without ids."""
    thread = new_id("thread")
    with unless_hung():
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "hang")) as posted:
            begun = await posted.until("TEXT_MESSAGE_CONTENT")
            resumed = [await read_reopened(server.url, thread, begun[-1].id) for _ in range(3)]
            assert (await stop_run(server.url, thread)).status == 200
            rest = await posted.rest()
        last = await history(server.url, thread, after=begun[-1].id)
    assert resumed == [resumed[0]] * 3
    assert [frame.id for frame in resumed[0]] == ["", ""]
    assert [frame.raw for frame in last[2:]] == [frame.raw for frame in rest]
    one_run(events_of(last))


async def read_reopened(url: str, thread: str, cursor: str) -> list[Frame]:
    """Resume a stream, read the two frames that reopen the run and its message, and cut it."""
    async with open_stream(f"{url}/threads/{thread}/events", headers={"Last-Event-ID": cursor}) as stream:
        frames = await stream.read(2)
        stream.cut()
    return frames


async def test_f05_a_client_that_closes_one_direction_can_resume(server: Child) -> None:
    """An end of file after the request: whatever the server makes of it, the run goes on and its stream can be resumed."""
    thread = new_id("thread")
    with unless_hung():
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "count 100 every 5ms")) as posted:
            begun = await posted.until("TEXT_MESSAGE_CONTENT")
            async with connect(server.url) as (reader, writer):
                headers = {"Host": f"127.0.0.1:{server.port}", "Last-Event-ID": begun[-1].id}
                writer.write(request_head("GET", f"/threads/{thread}/events?until=idle&snapshots=all", headers))
                writer.write_eof()
                kept = await read_what_comes(Stream(reader, writer))
            whole = begun + await posted.rest()
        rest = await history(server.url, thread, after=(kept or begun)[-1].id)
    assert compare(begun + kept + rest, whole) == compare(whole, whole)


async def read_what_comes(stream: Stream) -> list[Frame]:
    kept: list[Frame] = []
    try:
        await stream.read_head()
        async for frame in stream:
            kept += [frame] if frame.id else []
    except CUT:
        pass
    return kept
