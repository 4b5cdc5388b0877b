"""Agents that misbehave, for servers of the fault suite: `ambient serve x=tests.faults.agents:poison`.

Each is a function of the run input that yields AG-UI events as dictionaries. The newest message says what to do.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities
from ambient_runner.bridges.demo import DemoBridge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

Event = dict[str, Any]


def _command(run_input: Any) -> str:
    return str(run_input.messages[-1].content)


def _started(run_input: Any) -> Event:
    return {"type": "RUN_STARTED", "threadId": run_input.thread_id, "runId": run_input.run_id}


def _finished(run_input: Any) -> Event:
    return {"type": "RUN_FINISHED", "threadId": run_input.thread_id, "runId": run_input.run_id}


def _numbers(message: str, first: int, last: int) -> Iterator[Event]:
    yield {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"}
    for number in range(first, last + 1):
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": f"{number} "}
    yield {"type": "TEXT_MESSAGE_END", "messageId": message}


def _cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _custom(value: Any) -> Event:
    return {"type": "CUSTOM", "name": "poison", "value": value}


def _delta(text: str) -> Event:
    return {"type": "TEXT_MESSAGE_CHUNK", "messageId": "poisoned", "role": "assistant", "delta": text}


POISON: dict[str, Any] = {
    "lone surrogate": lambda: _delta("a\ud800b"),
    "lone surrogate in a value": lambda: _custom({"a\udfff": "\ud83d"}),
    "NUL": lambda: _delta("a\0b"),
    "line ends of SSE": lambda: _delta("a\r\n\r\nid: 9.9\ndata: {}\n\n\u2028b"),
    "NaN": lambda: _custom(float("nan")),
    "infinity": lambda: _custom([1e400, -1e400]),
    "huge integer": lambda: _custom(10**400),
    "deep nesting": lambda: _custom(_nested(10_000)),
    "cycle": lambda: _custom(_cycle()),
    "bytes": lambda: _custom(b"\xff\xfe"),
    "an object": lambda: _custom(object()),
    "50 MB": lambda: _delta("x" * 50_000_000),
    "unknown type": lambda: {"type": "UNHEARD_OF", "value": 1},
    "no type": lambda: {"value": 1},
    "not an event": lambda: 42,
    "None": lambda: None,
    "wrong field": lambda: {"type": "TEXT_MESSAGE_CONTENT", "messageId": ["x"], "delta": 1},
}
"""Events that are not, by name: made when they are asked for."""


async def poison(input: Any) -> AsyncIterator[Any]:
    """Count to 20, yield the poison that the message names, and count to 40."""
    yield _started(input)
    for event in _numbers("before", 1, 20):
        yield event
    if (made := POISON.get(_command(input).removeprefix("poison "))) is not None:
        yield made()
    for event in _numbers("after", 21, 40):
        yield event
    yield _finished(input)


async def disorder(input: Any) -> AsyncIterator[Any]:
    """Yield events in an order that the protocol does not allow. The message names it."""
    command = _command(input)
    if command == "nothing":
        return
    if command == "count 3":
        for event in (_started(input), *_numbers("fine", 1, 3), _finished(input)):
            yield event
        return
    if command != "no start":
        yield _started(input)
    for event in _disordered(command, input):
        yield event
    if command == "raises after the end":
        raise RuntimeError("after RUN_FINISHED")


def _disordered(command: str, run_input: Any) -> Iterator[Event]:
    match command:
        case "end without start":
            yield {"type": "TEXT_MESSAGE_END", "messageId": "m"}
            yield {"type": "TOOL_CALL_END", "toolCallId": "c"}
        case "content without start":
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "1 "}
        case "start without end":
            yield from list(_numbers("m", 1, 3))[:-1]
            yield {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"}
        case "two starts":
            yield _started(run_input)
            yield from _numbers("m", 1, 3)
        case "finished twice" | "raises after the end":
            yield from _numbers("m", 1, 3)
            yield _finished(run_input)
        case "error and finished":
            yield {"type": "RUN_ERROR", "message": "no", "code": "mine"}
        case "events after the end":
            yield _finished(run_input)
            yield from _numbers("m", 1, 3)
        case _:
            yield from _numbers("m", 1, 3)
    yield _finished(run_input)


def _step_clock(seconds: float) -> None:
    """Let the wall clock of this process jump. Monotonic time, which no one can set, goes on."""
    real_time, real_time_ns = time.time, time.time_ns
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + int(seconds * 1e9)


async def clock(input: Any) -> AsyncIterator[Any]:
    """Count to the first number of the message, and let the clock jump by the second, in seconds, in the middle: `count 40 -3600`."""
    _, last, *steps = _command(input).split()
    half = int(last) // 2
    yield _started(input)
    for event in _numbers("message", 1, int(last)):
        if event.get("delta") == f"{half} " and steps:
            _step_clock(float(steps[0]))
        yield event
        await asyncio.sleep(0.005)
    yield _finished(input)


class FileBridge(DemoBridge):
    """The demo agent with a workspace, so that its server has the routes for files."""

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True)
