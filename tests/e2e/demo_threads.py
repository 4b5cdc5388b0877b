"""Threads of the demo agent, one per command, as a page reads them: whole, and resumed after any of their frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.server.demo_server import demo, frames, run_body

from .page_streams import ASYNC, BACKGROUND

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

__all__ = ["TEXTS", "DemoThread", "read_demo_threads"]

TEXTS = {
    "say": "say two words",
    "split": "split abcdefghé😀",
    "count": "count 12",
    "think": "think",
    "weather": "weather São Paulo",
    "two": "two",
    "color": "color red",
    "approve": "approve the deploy",
    "state": "state",
    "steps": "steps",
    "subagent": "subagent",
    "crash": "crash",
    "hang": "hang",
    "help": "help",
}
"""What is said to the agent, by command."""
CHANGE_STATE = [{"op": "add", "path": "/patched", "value": True}]

Frame = dict[str, Any]
Connection = list[Frame]


@dataclass(frozen=True, kw_only=True)
class DemoThread:
    """The frames of one thread. `resumed` has what a second connection gets, by the number of frames that the first one has had."""

    name: str
    frames: Connection
    with_facts: Connection
    resumed: dict[int, Connection]

    def readings(self) -> Iterator[list[Connection]]:
        """Every way to read the thread over two connections."""
        for count, rest in self.resumed.items():
            yield [self.frames[:count], rest]


async def read_demo_threads(every: int = 1) -> list[DemoThread]:
    """Return a thread for each command, and one with all of them. Each is resumed after every n-th frame."""
    async with demo() as client:
        for command, text in TEXTS.items():
            await _play(client, command, text)
            await _play(client, command, text, thread="all")
        return [await _read(client, name, every) for name in (*TEXTS, "all")]


async def _play(client: httpx.AsyncClient, command: str, text: str, thread: str = "") -> None:
    """Say it, and do what a person does next: answer, run the frontend tool, stop; then change the state."""
    thread = thread or command
    body = run_body(text, thread=thread, message=f"u-{command}", tools=[BACKGROUND])
    posted = await client.post("/", json=body, headers=ASYNC if command == "hang" else {})
    assert posted.is_success, posted.text
    last = None if command == "hang" else frames(posted)[-1][1]
    match command, last:
        case "hang", _:
            await _stop(client, thread)
        case "approve", {"outcome": {"interrupts": [{"id": interrupt}]}}:
            entry = {"interruptId": interrupt, "status": "resolved", "payload": {"approved": True}}
            await _post(client, {**body, "messages": [], "resume": [entry]})
            await _post(client, run_body("approve nothing", thread=thread, message="u-cancelled"))
            await _stop(client, thread)
        case "color", {"outcome": {"pendingToolCallIds": [call]}}:
            answer = {"id": f"t-{call}", "role": "tool", "toolCallId": call, "content": "done"}
            await _post(client, {**body, "messages": [answer]})
        case _:
            pass
    patched = await client.patch(f"/state/{thread}", json=CHANGE_STATE)
    assert patched.is_success, patched.text


async def _post(client: httpx.AsyncClient, body: Frame) -> None:
    posted = await client.post("/", json=body)
    assert posted.is_success, posted.text


async def _stop(client: httpx.AsyncClient, thread: str) -> None:
    stopped = await client.post("/interrupt", json={"threadId": thread})
    assert stopped.is_success, stopped.text
    await client.get(f"/threads/{thread}/events", params={"until": "idle", "snapshots": "0"})


async def _read(client: httpx.AsyncClient, thread: str, every: int) -> DemoThread:
    async def read(**params: str) -> list[tuple[str | None, Frame]]:
        found = await client.get(f"/threads/{thread}/events", params={"until": "idle", **params})
        assert found.is_success, found.text
        return frames(found)

    whole = await read(strict="1")
    cursors = {count: cursor for count, (cursor, _) in enumerate(whole, 1) if cursor}
    chosen = [count for number, count in enumerate(cursors) if number % every == 0]
    rest = {count: [frame for _, frame in await read(strict="1", after=cursors[count] or "")] for count in chosen}
    return DemoThread(
        name=thread,
        frames=[frame for _, frame in whole],
        with_facts=[frame for _, frame in await read()],
        resumed=rest,
    )
