"""What a client says and what it may expect back: request bodies, and a reading of streams that knows nothing of the server's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from .sse import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .sse import Event, Frame

TERMINALS = ("RUN_FINISHED", "RUN_ERROR")
_OPENS = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "TOOL_CALL_START": ("tool", "toolCallId"),
    "REASONING_START": ("span", "messageId"),
    "REASONING_MESSAGE_START": ("reasoning", "messageId"),
    "STEP_STARTED": ("step", "stepName"),
    "SUBAGENT_STARTED": ("subagent", "subagentRunId"),
}
_CLOSES = {
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "TOOL_CALL_END": ("tool", "toolCallId"),
    "REASONING_END": ("span", "messageId"),
    "REASONING_MESSAGE_END": ("reasoning", "messageId"),
    "STEP_FINISHED": ("step", "stepName"),
    "SUBAGENT_FINISHED": ("subagent", "subagentRunId"),
    "SUBAGENT_ERROR": ("subagent", "subagentRunId"),
}
_CONTINUES = {
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "TOOL_CALL_ARGS": ("tool", "toolCallId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning", "messageId"),
}


def new_id(kind: str) -> str:
    return f"{kind}-{uuid4().hex}"


def run_input(
    thread: str, text: str | None = None, *, resume: Sequence[Mapping[str, Any]] | None = None, **fields: Any
) -> Event:
    """A RunAgentInput of a 1.0 client: one new user message, or answers to open questions."""
    messages = [] if text is None else [{"id": new_id("user"), "role": "user", "content": text}]
    return {
        "threadId": thread,
        "runId": new_id("run"),
        "protocolVersion": "1.0",
        "messages": messages,
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        **({} if resume is None else {"resume": list(resume)}),
        **fields,
    }


def events_of(frames: Iterable[Frame]) -> list[Event]:
    return [frame.event for frame in frames]


def split_runs(events: Iterable[Event]) -> list[list[Event]]:
    """The runs of a stream, each from RUN_STARTED to its one terminal event with every envelope closed.

    Raises: AssertionError for anything an AG-UI client would refuse, for a run without an end, and for events between runs.
    """
    runs: list[list[Event]] = []
    current: list[Event] | None = None
    opened: set[tuple[str, str]] = set()
    for event in events:
        kind = event["type"]
        if kind == "RUN_STARTED":
            assert current is None, f"a second RUN_STARTED inside a run: {event}"
            current = []
            runs.append(current)
        assert current is not None, f"{kind} outside a run"
        current.append(event)
        _follow(event, opened)
        if kind in TERMINALS:
            assert not opened, f"{kind} while {sorted(opened)} are open"
            current = None
    assert current is None, f"a run without a terminal event, after {current[-1]['type'] if current else None}"
    return runs


def _follow(event: Event, opened: set[tuple[str, str]]) -> None:
    """Keep the set of open envelopes."""
    kind = event["type"]
    if kind in _OPENS:
        envelope, field = _OPENS[kind]
        assert (envelope, event[field]) not in opened, f"opened twice: {event}"
        opened.add((envelope, event[field]))
    elif kind in _CLOSES or kind in _CONTINUES:
        envelope, field = (_CLOSES | _CONTINUES)[kind]
        assert (envelope, event[field]) in opened, f"not open: {event}"
        if kind in _CLOSES:
            opened.remove((envelope, event[field]))


def one_run(events: Iterable[Event]) -> list[Event]:
    """The only run of a stream. Raises: AssertionError when there are more or fewer."""
    runs = split_runs(events)
    assert len(runs) == 1, f"{len(runs)} runs instead of one"
    return runs[0]


def text_of(events: Iterable[Event]) -> str:
    """All text deltas of a stream, joined."""
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def answer_of(events: Iterable[Event]) -> str:
    """What the agent itself said: not the developer messages of the platform."""
    said: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_START" and event.get("role", "assistant") == "assistant":
            said[event["messageId"]] = ""
        elif event["type"] == "TEXT_MESSAGE_CONTENT" and event["messageId"] in said:
            said[event["messageId"]] += event["delta"]
    return "".join(said.values())


def numbers(count: int) -> str:
    """What the demo agent says to `count N`."""
    return "".join(f"{number} " for number in range(1, count + 1))


def ending(events: Sequence[Event]) -> str:
    """How a run ended, in a word: an outcome's type, or an error's code."""
    last = events[-1]
    return str(last["code"] if last["type"] == "RUN_ERROR" else last.get("outcome", {"type": "success"})["type"])


async def run(url: str, body: Event, *, headers: Mapping[str, str] | None = None) -> list[Frame]:
    """Post a run and read it to its end. Raises: AssertionError when it is refused."""
    async with open_stream(f"{url}/", "POST", body=body, headers=headers) as stream:
        assert stream.status == 200, await stream.body()
        return await stream.rest()


async def history(url: str, thread: str, *, after: str = "", query: str = "") -> list[Frame]:
    """Everything the thread holds, once it is idle, as its runs sent it: with all their snapshots."""
    headers = {"Last-Event-ID": after} if after else {}
    snapshots = "" if "snapshots=" in query else "&snapshots=all"
    async with open_stream(f"{url}/threads/{thread}/events?until=idle{snapshots}{query}", headers=headers) as stream:
        assert stream.status == 200, await stream.body()
        return await stream.rest()
