"""The demo agent: scripted, deterministic, no key and no network. It shows every kind of event; copy it to begin your own bridge.

A command is a plain generator of events, found by the first word of the newest user message. It yields a `Pause` where a real agent would
wait for its model; only the adapter knows how to wait.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, final

import anyio

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.errors import Parked
from ambient_runner.protocol.events import Event, Interrupt, TextMessageContent, TextMessageEnd, TextMessageStart

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import ResumeEntry, RunAgentInput

NewId = Callable[[str], str]
MOST_COUNTED = 1_000_000
FRONTEND_TOOL = "change_background"
_COUNT = re.compile(r"(\d{1,7})(?:\s+every\s+(\d{1,6})\s*ms)?", re.IGNORECASE)
_FIRST_WORD = re.compile(r"\s*(\S*)\s?(.*)", re.DOTALL)
_WORD = re.compile(r"\s*\S+|\s+")
_SKIES = ("sunny", "cloudy", "rainy", "windy")
_ANSWER_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}},
    "required": ["approved"],
}


@final
@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds, or until stopped when None."""

    seconds: float | None = None


@dataclass(slots=True)
class Turn:
    """One run as a command sees it."""

    input: RunAgentInput
    text: str
    """What follows the command, whitespace untouched."""
    composer: Composer
    new_id: NewId
    stopped: bool = False
    """Set by `interrupt`: a command that goes on and on looks at it."""


Step = Event | Pause
Command = Callable[[Turn], Iterator[Step]]


class DemoBridge(PlatformBridge):
    """The demo agent. `new_id` makes ids of messages, tool calls and interrupts from their kind; tests pass a counter."""

    def __init__(self, new_id: NewId = random_id) -> None:
        self._new_id = new_id

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> DemoAdapter:
        return DemoAdapter(self._new_id)


class DemoAdapter:
    """Plays commands. It keeps nothing between runs: all it knows is in the input."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self._turn: Turn | None = None
        self._stop = anyio.Event()

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Event, None]:  # noqa: A002  the ADR's name
        command, turn = _understand(input, self._new_id)
        self._turn, self._stop = turn, anyio.Event()
        for step in command(turn):
            if type(step) is Pause:
                await self._rest(step.seconds)
            else:
                yield step
        for event in turn.composer.close():
            yield event

    async def interrupt(self) -> None:
        """End the running command early: it closes its message and the run finishes."""
        if self._turn:
            self._turn.stopped = True
        self._stop.set()

    async def _rest(self, seconds: float | None) -> None:
        with anyio.move_on_after(seconds):
            await self._stop.wait()


def _understand(run: RunAgentInput, new_id: NewId) -> tuple[Command, Turn]:
    """Which command this run is about: an answer comes first, then a tool's result, then what the user said."""
    word, text = _newest_words(run)
    turn = Turn(run, text, Composer(new_id=new_id), new_id)
    if run.resume:
        return _resumed, turn
    if run.messages and run.messages[-1].role == "tool":
        return _tool_answered, turn
    found = COMMANDS.get(word.lower())
    return (found.play if found else _help), turn


def _newest_words(run: RunAgentInput) -> tuple[str, str]:
    for message in reversed(run.messages):
        if message.role == "user":
            found = _FIRST_WORD.match(_words(message.content))
            return (found[1], found[2]) if found else ("", "")
    return "", ""


def _words(content: Any) -> str:
    """The text of a message whose content may be a string or parts."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if part.type == "text")


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _say(turn: Turn, text: str) -> Iterator[Event]:
    for word in _WORD.findall(text):
        yield from turn.composer.text(word)
    yield from turn.composer.end_text()


def _count(turn: Turn) -> Iterator[Step]:
    """The benchmark's agent: each number costs one Struct and nothing else."""
    asked = _COUNT.fullmatch(turn.text.strip())
    if not asked or not 0 < int(asked[1]) <= MOST_COUNTED:
        yield from _say(turn, f"Give me a number from 1 to {MOST_COUNTED:,}, like: count 100 every 5ms")
        return
    pause = Pause(int(asked[2]) / 1000) if asked[2] else None
    message_id = turn.new_id("message")
    yield TextMessageStart(message_id=message_id, role="assistant")
    for number in range(1, int(asked[1]) + 1):
        if pause is not None:
            yield pause
        if turn.stopped:
            break
        yield TextMessageContent(message_id=message_id, delta=f"{number} ")
    yield TextMessageEnd(message_id=message_id)


def _think(turn: Turn) -> Iterator[Step]:
    for thought in ("The user wants to see me think. ", "I weigh two ways to answer. ", "The short one is better."):
        yield from turn.composer.reasoning(thought)
    yield from turn.composer.end_reasoning()
    yield from _say(turn, "I have thought about it, and the short answer is yes.")


def _weather(turn: Turn) -> Iterator[Step]:
    city = turn.text.strip() or "Lisbon"
    report = _forecast(city)
    call = turn.new_id("call")
    yield from _call(turn, call, "get_weather", {"city": city})
    yield from turn.composer.tool_result(call, json.dumps(report, ensure_ascii=False))
    yield from _say(turn, f"It is {report['sky']} in {city}, {report['celsius']} degrees.")


def _forecast(city: str) -> dict[str, Any]:
    """Always the same weather for the same city."""
    seed = sum(city.lower().encode())
    return {"city": city, "sky": _SKIES[seed % len(_SKIES)], "celsius": 5 + seed % 30}


def _call(turn: Turn, call: str, name: str, arguments: dict[str, Any]) -> Iterator[Event]:
    yield from turn.composer.tool_start(call, name)
    for piece in _pieces(json.dumps(arguments, ensure_ascii=False), 8):
        yield from turn.composer.tool_args(call, piece)
    yield from turn.composer.tool_end(call)


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _color(turn: Turn) -> Iterator[Step]:
    color = turn.text.strip() or "teal"
    if not any(tool.name == FRONTEND_TOOL for tool in turn.input.tools or ()):
        yield from _say(turn, f"Your client has no tool {FRONTEND_TOOL}, so I cannot turn it {color}.")
        return
    yield from _call(turn, turn.new_id("call"), FRONTEND_TOOL, {"background": color})


def _tool_answered(turn: Turn) -> Iterator[Step]:
    yield from _say(turn, f"Your client has done it and answered: {_words(turn.input.messages[-1].content)}")


def _approve(turn: Turn) -> Iterator[Step]:
    what = turn.text.strip() or "go on"
    yield from _say(turn, f"I need your approval to {what}.")
    raise Parked(
        [
            Interrupt(
                id=turn.new_id("interrupt"),
                reason="confirmation",
                message=f"May I {what}?",
                response_schema=_ANSWER_SCHEMA,
            )
        ]
    )


def _resumed(turn: Turn) -> Iterator[Step]:
    what = turn.text.strip() or "go on"
    yield from _say(turn, " ".join(_decided(entry, what) for entry in turn.input.resume or ()))


def _decided(entry: ResumeEntry, what: str) -> str:
    payload = _object(entry.payload)
    comment = f" You said: {payload['comment']}" if payload.get("comment") else ""
    if entry.status == "cancelled":
        return f"Cancelled: I will not {what}."
    if payload.get("approved") is True:
        return f"Approved: I may {what}.{comment}"
    return f"Declined: I will not {what}.{comment}"


def _state(turn: Turn) -> Iterator[Step]:
    plan = [{"task": task, "done": False} for task in ("mix", "bake", "serve")]
    yield from turn.composer.state({**_object(turn.input.state), "plan": plan})
    for at in range(len(plan)):
        yield from turn.composer.state_delta([{"op": "replace", "path": f"/plan/{at}/done", "value": True}])
    yield from _say(turn, "The plan in our shared state is done.")


def _echo(turn: Turn) -> Iterator[Step]:
    yield from _say(turn, turn.text or "Say what? Try: say hello there")


def _split(turn: Turn) -> Iterator[Step]:
    for piece in _pieces(turn.text or "Split what? Try: split abcdefghi", 3):
        yield from turn.composer.text(piece)


def _two(turn: Turn) -> Iterator[Step]:
    composer = turn.composer
    cities = ("Lisbon", "Oslo")
    calls = {city: turn.new_id("call") for city in cities}
    for city in cities:
        yield from composer.tool_start(calls[city], "get_weather")
    for city in cities:
        yield from composer.tool_args(calls[city], json.dumps({"city": city}))
    for city in cities:
        yield from composer.tool_end(calls[city])
    for city in reversed(cities):
        yield from composer.tool_result(calls[city], json.dumps(_forecast(city)))
    yield from _say(turn, "I asked for both at once.")


def _steps(turn: Turn) -> Iterator[Step]:
    for name in ("search", "write"):
        yield from turn.composer.step(name)
        yield from _say(turn, f"Now I {name}.")
        yield from turn.composer.end_step(name)


def _subagent(turn: Turn) -> Iterator[Step]:
    composer = turn.composer
    helper = turn.new_id("subagent")
    yield from composer.subagent(helper, "researcher")
    yield from composer.text("I am the researcher, and I found it.", lane=helper)
    yield from composer.end_text(helper)
    yield from composer.end_subagent(helper)
    yield from _say(turn, "My researcher has found it.")


def _crash(turn: Turn) -> Iterator[Step]:
    yield from turn.composer.text("Everything is going well, and then ")
    raise RuntimeError("cannot reach db.internal with password sk-demo-5f2a9c71e04b8d36")


def _hang(turn: Turn) -> Iterator[Step]:
    yield from turn.composer.text("hanging…")
    yield Pause()


def _help(turn: Turn) -> Iterator[Step]:
    lines = "\n".join(f"- `{command.usage}`: {command.shows}" for command in COMMANDS.values())
    yield from _say(turn, f"I am the demo agent. Everything I do is scripted. Try one of these:\n\n{lines}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A command in the table: how it is typed, what it shows, and the generator that plays it."""

    usage: str
    shows: str
    play: Command


COMMANDS: dict[str, Entry] = {
    entry.usage.split()[0]: entry
    for entry in (
        Entry("say TEXT", "your words, one per delta", _echo),
        Entry("split TEXT", "your words, three characters per delta", _split),
        Entry("count N [every 5ms]", "numbers, as fast as possible or paced", _count),
        Entry("think", "reasoning, then an answer", _think),
        Entry("weather CITY", "a backend tool call with its result", _weather),
        Entry("two", "two tool calls at once", _two),
        Entry("color NAME", f"a frontend tool call, if your client has {FRONTEND_TOOL}", _color),
        Entry("approve TEXT", "a question to you; the run goes on when you answer", _approve),
        Entry("state", "shared state: a snapshot, then patches", _state),
        Entry("steps", "named steps", _steps),
        Entry("subagent", "a second agent that speaks for itself", _subagent),
        Entry("crash", "a failure in the middle of a message", _crash),
        Entry("hang", "a run that waits until it is stopped", _hang),
        Entry("help", "this list", _help),
    )
}
