"""Bursts of what agents really send: arguments, reasoning, tool calls, models and dicts of `ag_ui.core`, state, older clients, secrets.

Each is beside the same events as `ag_ui.core` models through `EventEncoder` and `StreamingResponse`, which store nothing:
`python -m benchmarks.shapes` serves these, `ambient serve bench=benchmarks.shapes:ShapesBridge` ours.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ag_ui.core as ag
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.protocol import events as structs
from benchmarks.burst import SETTLE_SECONDS, Burst
from benchmarks.client import UnexpectedResponse, run_workload
from benchmarks.redaction import secret_variables
from benchmarks.report import Cost, Goal, Section
from benchmarks.scene import Plans
from benchmarks.servers import start_server
from benchmarks.serving import serve
from benchmarks.workload import last_prompt

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

_COUNT = 20_000
_SECRET_COUNT = 200
_STATE_KEYS = 50
_PROSE = "The weather in Lisbon is sunny and warm, with a light breeze from the sea; tomorrow brings rain. "


def _models() -> Any:
    """Return the types of `ag_ui.core` under the names of ours: their fields have the same names."""
    names = [name for name in structs.__all__ if hasattr(ag, f"{name}Event")]
    return SimpleNamespace(**{name: getattr(ag, f"{name}Event") for name in names})


def _dict_delta(**fields: Any) -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": fields["message_id"], "delta": fields["delta"]}


STRUCTS: Any = structs
MODELS = _models()
DICTS = SimpleNamespace(**{**vars(MODELS), "TextMessageContent": _dict_delta})


def _text(kinds: Any, count: int) -> Iterator[Any]:
    make = kinds.TextMessageContent
    yield kinds.TextMessageStart(message_id="m", role="assistant")
    for number in range(count):
        yield make(message_id="m", delta=f"{number} ")
    yield kinds.TextMessageEnd(message_id="m")


def _arguments(kinds: Any, count: int) -> Iterator[Any]:
    make = kinds.ToolCallArgs
    yield kinds.ToolCallStart(tool_call_id="c", tool_call_name="write")
    for number in range(count):
        yield make(tool_call_id="c", delta=f"{number} ")
    yield kinds.ToolCallEnd(tool_call_id="c")


def _reasoning(kinds: Any, count: int) -> Iterator[Any]:
    make = kinds.ReasoningMessageContent
    yield kinds.ReasoningStart(message_id="r")
    yield kinds.ReasoningMessageStart(message_id="r", role="reasoning")
    for number in range(count):
        yield make(message_id="r", delta=f"{number} ")
    yield kinds.ReasoningMessageEnd(message_id="r")
    yield kinds.ReasoningEnd(message_id="r")


def _mix(deltas: int) -> Callable[[Any, int], Iterator[Any]]:
    """Return the shape of an agent that writes so many deltas, calls a tool, and gets its result, over and over."""

    def build(kinds: Any, count: int) -> Iterator[Any]:
        for turn in range(count // (deltas + 8)):
            message, call = f"m{turn}", f"c{turn}"
            yield kinds.TextMessageStart(message_id=message, role="assistant")
            for number in range(deltas):
                yield kinds.TextMessageContent(message_id=message, delta=f"{number} ")
            yield kinds.TextMessageEnd(message_id=message)
            yield kinds.ToolCallStart(tool_call_id=call, tool_call_name="search", parent_message_id=message)
            for part in ('{"query": ', '"weather ', 'Lisbon"}'):
                yield kinds.ToolCallArgs(tool_call_id=call, delta=part)
            yield kinds.ToolCallEnd(tool_call_id=call)
            yield kinds.ToolCallResult(message_id=f"t{turn}", tool_call_id=call, content="21 degrees", role="tool")

    return build


def _alternating(kinds: Any, count: int) -> Iterator[Any]:
    make = kinds.TextMessageContent
    for name in ("a", "b"):
        yield kinds.TextMessageStart(message_id=name, role="assistant")
    for number in range(count):
        yield make(message_id="ab"[number % 2], delta=f"{number} ")
    for name in ("a", "b"):
        yield kinds.TextMessageEnd(message_id=name)


def _state(kinds: Any, count: int) -> Iterator[Any]:
    yield kinds.StateSnapshot(snapshot={f"key{number}": number for number in range(_STATE_KEYS)})
    for number in range(count):
        patch = [{"op": "replace", "path": f"/key{number % _STATE_KEYS}", "value": number}]
        yield kinds.StateDelta(delta=patch)


def _prose(length: int) -> Callable[[Any, int], Iterator[Any]]:
    """Return the shape of one text in deltas of so many characters."""

    def build(kinds: Any, count: int) -> Iterator[Any]:
        rng = random.Random(7)
        source = _PROSE * (length // len(_PROSE) + 2)
        texts = [source[start : start + length] for start in (rng.randrange(len(_PROSE)) for _ in range(64))]
        yield kinds.TextMessageStart(message_id="m", role="assistant")
        for number in range(count):
            yield kinds.TextMessageContent(message_id="m", delta=texts[number % 64])
        yield kinds.TextMessageEnd(message_id="m")

    return build


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The events of an agent, and the kind of client that reads them."""

    title: str
    build: Callable[[Any, int], Iterator[Any]]
    wanted: float
    """The ratio to (a), in events per second, that is wanted."""
    count: int = _COUNT
    kinds: Any = STRUCTS
    pauses: bool = False
    """True if the agent awaits between its events."""
    protocol_version: str | None = "1.0"
    has_secrets: bool = False
    """True if the server's environment has secrets."""


SHAPES = {
    "text": Shape(title="text", build=_text, wanted=6),
    "arguments": Shape(title="tool arguments", build=_arguments, wanted=6),
    "reasoning": Shape(title="reasoning", build=_reasoning, wanted=6),
    "mix20": Shape(title="20 deltas, then a tool call", build=_mix(20), wanted=6),
    "mix5": Shape(title="5 deltas, then a tool call", build=_mix(5), wanted=6),
    "alternating": Shape(title="two open messages, alternating", build=_alternating, wanted=3),
    "models": Shape(title="text as `ag_ui.core` models", build=_text, wanted=4, kinds=MODELS),
    "mix_models": Shape(title="20 deltas and a tool call, as models", build=_mix(20), wanted=4, kinds=MODELS),
    "dicts": Shape(title="text as dicts", build=_text, wanted=3, kinds=DICTS),
    "awaits": Shape(title="text, awaits between deltas", build=_text, wanted=3, pauses=True),
    "state": Shape(title=f"STATE_DELTA, {_STATE_KEYS} keys", build=_state, wanted=3),
    "long": Shape(title="deltas of 5,000 characters", build=_prose(5000), wanted=1, count=2000),
    "old": Shape(title="text, client 0.0.58", build=_text, wanted=4, protocol_version=None),
    "old_mix": Shape(title="20 deltas and a call, client 0.0.58", build=_mix(20), wanted=4, protocol_version=None),
    "words": Shape(title="deltas of 40 characters", build=_prose(40), wanted=6),
    "secrets": Shape(title=f"the same, {_SECRET_COUNT} secrets", build=_prose(40), wanted=6, has_secrets=True),
}


PLANS = Plans(smallest=1, quick=2, full=5)


def count_steps(rounds: int) -> int:
    return len(SHAPES)


@dataclass(frozen=True, kw_only=True)
class _Prompt:
    prompt: str


async def _stream(prompt: str, kinds: Any | None = None) -> AsyncGenerator[Any]:
    name, count = prompt.split()
    shape = SHAPES[name]
    for event in shape.build(kinds or shape.kinds, int(count)):
        if shape.pauses:
            await asyncio.sleep(0)
        yield event


class ShapesAdapter:
    """Streams the shape of the prompt."""

    async def run(self, input: ag.RunAgentInput) -> AsyncGenerator[Any]:  # noqa: A002  the adapter contract's name
        async for event in _stream(last_prompt(input.messages)):
            yield event


class ShapesBridge(PlatformBridge):
    """An agent whose prompt names the events that it sends."""

    def create_adapter(self, ctx: PlatformContext) -> ShapesAdapter:
        return ShapesAdapter()

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(tool_use=True)


def build_adapter_app() -> FastAPI:
    """Return the app of (a)."""
    app = FastAPI()
    app.post("/", response_model=None)(_adapter_endpoint)
    return app


async def _adapter_endpoint(run_input: ag.RunAgentInput, request: Request) -> StreamingResponse:
    encoder = EventEncoder(accept=request.headers.get("accept", ""))

    async def frames() -> AsyncGenerator[str]:
        yield encoder.encode(ag.RunStartedEvent(thread_id=run_input.thread_id, run_id=run_input.run_id))
        async for event in _stream(last_prompt(run_input.messages), MODELS):
            yield encoder.encode(event)
        yield encoder.encode(ag.RunFinishedEvent(thread_id=run_input.thread_id, run_id=run_input.run_id))

    return StreamingResponse(frames(), media_type=encoder.get_content_type())


def measure(
    scratch: Path, rounds: int, step: Callable[[], None], names: Sequence[str] = tuple(SHAPES)
) -> dict[str, dict[str, list[Burst]]]:
    """Measure each shape on (a) and on this server in turn. The first round is a warm-up and is not counted."""
    found: dict[str, dict[str, list[Burst]]] = {}
    with (
        start_server("adapter-shapes", scratch) as adapter,
        start_server("ambient-shapes", scratch) as without_secrets,
        start_server("ambient-shapes", scratch, secret_variables(_SECRET_COUNT)) as with_secrets,
    ):
        for name in names:
            ours = with_secrets if SHAPES[name].has_secrets else without_secrets
            found[name] = defaultdict(list)
            for turn in range(rounds + 1):
                for server in (adapter, ours) if turn % 2 else (ours, adapter):
                    burst = run_shape(server, name)
                    if turn:
                        found[name]["adapter" if server is adapter else "ambient"].append(burst)
            step()
    return found


def run_shape(server: Server, name: str) -> Burst:
    """Run one shape once. Raises: UnexpectedResponse if an event is missing."""
    shape = SHAPES[name]
    cpu_before = server.cpu_seconds()
    response = run_workload(
        server.port, _Prompt(prompt=f"{name} {shape.count}"), protocol_version=shape.protocol_version
    )
    time.sleep(SETTLE_SECONDS)
    cpu = server.cpu_seconds() - cpu_before
    body = response.body()
    if _deltas_in(body) != _expected_deltas(shape) or b'"RUN_FINISHED"' not in body[-1000:]:
        raise UnexpectedResponse(body[-500:])
    return Burst(events=body.count(b"\n\n"), seconds=response.seconds, cpu=cpu)


def _deltas_in(body: bytes) -> str:
    lines = (line[6:] for line in body.split(b"\n") if line.startswith(b"data: "))
    return "".join([str(event["delta"]) for event in map(json.loads, lines) if "delta" in event])


def _expected_deltas(shape: Shape) -> str:
    return "".join([str(event.delta) for event in shape.build(STRUCTS, shape.count) if hasattr(event, "delta")])


_EXPLANATION = """\
Text, tool arguments and reasoning: of the loop's time two fifths is the agent's generators and the loop over its events, a seventh \
redacting and encoding, a tenth framing, an eighth collecting and deferring events; the rest is the start and end of the run, the \
socket and the loop itself. Deltas with tool calls: a fifth is deferring events, half of that repairing what starts and ends messages \
and calls, a fifth redacting and encoding, an eighth folding; next: a path of its own in the repairer for an event that it returns as \
it is. `ag_ui.core` models: the agent builds them in 40 % of the time, as (a) does, and 7 % is copying. Awaits: three fifths of the CPU \
is the iterations of the loop, one for each event, which cost (a) nearly as much. STATE_DELTA: patches of one top-level key are \
searched, encoded, checked and applied together; next: pass their values to the view, which decodes them again. Deltas of 5,000 \
characters: of the CPU nearly half is the kernel, half of that writing pages of 4 KB: 20 MB, the lines and the checkpoint at the end, \
go to the WAL and from there to the database, and (a) stores nothing. An eighth is the search for secrets, one step for each byte. \
Next: no checkpoint for a run whose entries are not much larger than their texts."""


def build_section(found: Mapping[str, Mapping[str, Sequence[Burst]]]) -> Section:
    """Return the table, and a goal for each shape."""
    ratios = {name: _ratio(bursts, _rate) for name, bursts in found.items()}
    goals = [
        _goal(f"{SHAPES[name].title}, times (a)", SHAPES[name].wanted, ratio)
        for name, ratio in ratios.items()
        if name != "secrets"
    ]
    if "secrets" in found and "words" in found:
        share = _rate(found["secrets"]["ambient"]) / _rate(found["words"]["ambient"])
        goals.append(_goal(f"{_SECRET_COUNT} secrets against none", 0.75, share))
    return Section(
        explanation=_EXPLANATION,
        title="Bursts of what agents send",
        how=f"{_COUNT:,} events without pauses, of the long deltas {SHAPES['long'].count:,}; (a) streams the same as `ag_ui.core` models. "
        "Medians of the rounds, CPU over all of them. The client checks every delta.",
        columns=("", "events/s", "(a) events/s", "times (a)", "CPU µs/event", "(a) CPU µs/event", "CPU of (a) / ours"),
        rows=[_row(name, found[name], ratio) for name, ratio in ratios.items()],
        goals=goals,
        costs=[
            Cost(what=SHAPES[name].title, rate=_rate(bursts["ambient"]), plain_rate=_rate(found["text"]["ambient"]))
            for name, bursts in found.items()
            if name != "text" and "text" in found
        ],
    )


def _row(name: str, bursts: Mapping[str, Sequence[Burst]], ratio: float) -> list[str]:
    ours, theirs = bursts["ambient"], bursts["adapter"]
    return [
        SHAPES[name].title,
        f"{_rate(ours):,.0f}",
        f"{_rate(theirs):,.0f}",
        f"{ratio:.1f}",
        f"{_cost(ours):.1f}",
        f"{_cost(theirs):.1f}",
        f"{_cost(theirs) / _cost(ours):.1f}",
    ]


def _ratio(bursts: Mapping[str, Sequence[Burst]], measure: Callable[[Sequence[Burst]], float]) -> float:
    return measure(bursts["ambient"]) / measure(bursts["adapter"])


def _rate(bursts: Sequence[Burst]) -> float:
    return statistics.median(burst.rate for burst in bursts)


def _cost(bursts: Sequence[Burst]) -> float:
    return sum(burst.cpu for burst in bursts) / sum(burst.events for burst in bursts) * 1e6


def _goal(what: str, wanted: float, ratio: float) -> Goal:
    return Goal(what=what, wanted=f"at least {wanted:g}", measured=f"{ratio:.2f}", met=ratio >= wanted)


if __name__ == "__main__":
    serve(build_adapter_app())
