"""What a page reads of a thread: connects, single runs and streams without snapshots, with the messages and state it must end with."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import httpx

from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, demo, frames, run_body

ASYNC = {"Prefer": "respond-async"}
BACKGROUND: dict[str, Any] = {
    "name": "change_background",
    "description": "",
    "parameters": {"type": "object", "properties": {}},
}
COMMANDS = ("say hi", "think", "two", "state", "subagent", "crash", "steps")
PROTOCOLS = {"1.0": "1.0", "0.0.59": "0.0.59"}
"""The profile that each official client gets, by the client's version."""

Stream = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class PageStream:
    """The events of one request or, for single runs, of one request each."""

    name: str
    runs: list[Stream]
    messages: list[dict[str, Any]]
    state: dict[str, Any]


class Page:
    """A client of one thread on a demo server. Its streams are in one wire profile."""

    def __init__(self, client: httpx.AsyncClient, protocol: str) -> None:
        self._client = client
        self._protocol = protocol
        self.streams: list[PageStream] = []

    async def send(self, text: str, **more: Any) -> httpx.Response:
        body = run_body(text, message=text, **more)
        return await self._client.post("/", json=body, headers=ASYNC if text == "hang" else {})

    async def read(self, **params: str) -> Stream:
        found = await self._client.get(
            "/threads/t/events", params={"until": "idle", "strict": "1", "protocol": self._protocol, **params}
        )
        return [event for _, event in frames(found)]

    async def keep(self, name: str, *runs: Stream) -> None:
        messages = (await self._client.get("/message_snapshot/t")).json()["messages"]
        state = (await self._client.get("/state_snapshot/t")).json()["snapshot"]
        self.streams.append(PageStream(name=name, runs=list(runs), messages=messages, state=state))

    async def rate_newest_message(self) -> None:
        newest = (await self._client.get("/message_snapshot/t")).json()["messages"][-1]["id"]
        body = {"type": "META", "metaType": "thumbs_up", "threadId": "t", "payload": {"messageId": newest}}
        assert (await self._client.post("/feedback", json=body)).status_code == 200

    async def connect_during_a_run(self) -> Stream:
        await self.send("hang")
        found: list[Stream] = []

        async def read() -> None:
            found.append(await self.read(**{"from": "snapshot"}))

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await self.stop()
        return found[0]

    async def stop(self) -> None:
        assert (await self._client.post("/interrupt", json={"threadId": "t"})).status_code == 200

    async def runs(self) -> list[Stream]:
        listed = (await self._client.get("/threads/t/runs")).json()["runs"]
        return [await self.read(run=run["run"]) for run in reversed(listed)]


async def page_streams(protocol: str) -> list[PageStream]:
    """Return the streams of a thread with every kind of event, and of one that waits for an answer."""
    async with demo() as client:
        page = Page(client, protocol)
        for command in COMMANDS:
            await page.send(command)
        await page.keep("runs", *await page.runs())
        await page.keep("without snapshots", await page.read(snapshots="0"))
        await page.rate_newest_message()
        await page.keep("connect", await page.read(**{"from": "snapshot"}))
        await page.keep("connect during a run", await page.connect_during_a_run())
        await page.send("color red", tools=[BACKGROUND])
        await page.keep("connect with a waiting call", await page.read(**{"from": "snapshot"}))
        await page.send("approve the deploy")
        await page.keep("connect with a question", await page.read(**{"from": "snapshot", "snapshots": "0"}))
        return page.streams


@dataclass(frozen=True, kw_only=True)
class ForkStream:
    """A stream of a fork's first run, and the messages that its client has before it."""

    name: str
    add: list[dict[str, Any]]
    run: Stream
    messages: list[dict[str, Any]]
    state: dict[str, Any]


async def fork_streams(protocol: str, audience: Literal["open", "safe"]) -> list[ForkStream]:
    """Return what the clients of a fork read: that of the POST, with the new message alone or all of the source, and later readers."""
    async with demo(dataclasses.replace(SETTINGS, audience=audience)) as client:
        page = Page(client, protocol)
        for command in COMMANDS:
            await page.send(command)
        source = await _messages(client, "t")
        point = {"fork": "t", "before": "steps", "protocol": protocol}
        posted = await client.post("/", params=point, json=run_body("say so", thread="fork", message="new"))
        new = [{"id": "new", "role": "user", "content": "say so"}]
        read = {"until": "idle", "strict": "1", "protocol": protocol}
        replayed = await client.get("/threads/fork/events", params=read)
        bare = await client.get("/threads/fork/events", params={**read, "snapshots": "0"})
        messages = await _messages(client, "fork")
        state = (await client.get("/state_snapshot/fork")).json()["snapshot"]
        streams: list[tuple[str, list[dict[str, Any]], httpx.Response]] = [
            ("POST, new message alone", new, posted),
            ("POST, all messages of the source", [*source, *new], posted),
            ("from the beginning", [], replayed),
            ("without snapshots", [], bare),
        ]
        return [
            ForkStream(name=name, add=add, run=[event for _, event in frames(found)], messages=messages, state=state)
            for name, add, found in streams
        ]


async def _messages(client: httpx.AsyncClient, thread: str) -> list[dict[str, Any]]:
    return (await client.get(f"/message_snapshot/{thread}")).json()["messages"]
