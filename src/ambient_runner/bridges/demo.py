"""The demo agent: scripted, deterministic, without API key or network. It shows every kind of event; copy it to start your own bridge.

A command is a plain generator of events, selected by the first word of the newest user message. It yields a `Pause` where a real agent
would wait for its model; the adapter does the waiting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import anyio

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.agui_events import events_for_caller
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.run_input import read_run_input
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.bridges.toolkit.tools import declare_tool
from ambient_runner.errors import RunInterrupted
from ambient_runner.protocol.events import Event, Interrupt, TextMessageContent, TextMessageEnd, TextMessageStart

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ag_ui.core import ResumeEntry, RunAgentInput

    from ambient_runner.protocol.events import Tool

__all__ = ["DemoBridge"]

NewId = Callable[[str], str]
MAX_COUNT = 1_000_000
SUGGESTIONS = ("weather Lisbon", "think", "approve the deploy", "state", "help")
CLIENT_TOOL = "change_background"
_COUNT = re.compile(r"(\d{1,7})(?:\s+every\s+(\d{1,6})\s*ms)?", re.IGNORECASE)
_FIRST_WORD = re.compile(r"\s*(\S*)\s?(.*)", re.DOTALL)
_WORD = re.compile(r"\s*\S+|\s+")
_SKIES = ("sunny", "cloudy", "rainy", "windy")
_WEATHER_TOOL = declare_tool(
    "get_weather",
    "Return the weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
_ANSWER_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}},
    "required": ["approved"],
}


@final
@dataclass(frozen=True, slots=True)
class Pause:
    """A wait of so many seconds; until the run is stopped if None."""

    seconds: float | None = None


@dataclass(slots=True)
class DemoTurn:
    """The part of a run that a command needs."""

    run_input: RunAgentInput
    argument: str
    """Text after the command, with its whitespace."""
    composer: Composer
    new_id: NewId
    is_stopping: bool = False
    """True after `interrupt`. Long commands check it."""


Step = Event | Pause
Command = Callable[[DemoTurn], Iterator[Step]]


class DemoBridge(PlatformBridge):
    """The demo agent. `new_id` returns an id for a kind (message, call, interrupt); tests pass a counter."""

    restates_messages = False

    def __init__(self, *, new_id: NewId = random_id) -> None:
        self._new_id = new_id

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> DemoAdapter:
        return DemoAdapter(self._new_id)

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        return [_WEATHER_TOOL]

    async def suggest(self, messages: Sequence[Any], state: Any) -> list[str]:
        """Return commands that need no tool of the client, without those of earlier messages."""
        used = {_message_text(message.content).strip() for message in messages if message.role == "user"}
        return [command for command in SUGGESTIONS if command not in used]


class DemoAdapter:
    """Runs commands. It has no state between runs: everything it needs is in the input."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self._turn: DemoTurn | None = None
        self._stop = anyio.Event()

    def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        return events_for_caller(self._run_command(input), input)

    async def _run_command(self, run_input: RunAgentInput) -> AsyncGenerator[Event, None]:
        if run_input.tools:
            for event in Toolbox((await read_run_input(run_input)).tools, [_WEATHER_TOOL.name]).dropped_events():
                yield event
        command, turn = _parse_command(run_input, self._new_id)
        self._turn, self._stop = turn, anyio.Event()
        try:
            for step in command(turn):
                if type(step) is Pause:
                    await self._pause(step.seconds)
                else:
                    yield step
            for event in turn.composer.close():
                yield event
        finally:
            self._turn = None  # A run's models are used again if nobody has them any more.

    async def interrupt(self) -> None:
        """End the current command early: it closes its message and the run finishes."""
        if self._turn:
            self._turn.is_stopping = True
        self._stop.set()

    async def _pause(self, seconds: float | None) -> None:
        with anyio.move_on_after(seconds):
            await self._stop.wait()


def _parse_command(run_input: RunAgentInput, new_id: NewId) -> tuple[Command, DemoTurn]:
    """Return the command of this run: the answer to an interrupt first, then a tool result, then the user message."""
    word, text = _split_newest_message(run_input)
    turn = DemoTurn(run_input, text, Composer(new_id=new_id), new_id)
    if run_input.resume:
        return _resume_approve, turn
    if run_input.messages and run_input.messages[-1].role == "tool":
        return _continue_after_tool, turn
    found = COMMANDS.get(word.lower())
    return (found.play if found else _run_help), turn


def _split_newest_message(run_input: RunAgentInput) -> tuple[str, str]:
    for message in reversed(run_input.messages):
        if message.role == "user":
            found = _FIRST_WORD.match(_message_text(message.content))
            return (found[1], found[2]) if found else ("", "")
    return "", ""


def _message_text(content: Any) -> str:
    """Return the text of a message whose content is a string or parts."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if part.type == "text")


def _stream_words(turn: DemoTurn, text: str) -> Iterator[Event]:
    for word in _WORD.findall(text):
        yield from turn.composer.text(word)
    yield from turn.composer.end_text()


def _run_count(turn: DemoTurn) -> Iterator[Step]:
    """Count to a number. The benchmarks use it: each number costs one Struct and nothing else."""
    match = _COUNT.fullmatch(turn.argument.strip())
    if not match or not 0 < int(match[1]) <= MAX_COUNT:
        yield from _stream_words(turn, f"Give me a number from 1 to {MAX_COUNT:,}, like: count 100 every 5ms")
        return
    pause = Pause(int(match[2]) / 1000) if match[2] else None
    message_id = turn.new_id("message")
    yield TextMessageStart(message_id=message_id, role="assistant")
    for number in range(1, int(match[1]) + 1):
        if pause is not None:
            yield pause
        if turn.is_stopping:
            break
        yield TextMessageContent(message_id=message_id, delta=f"{number} ")
    yield TextMessageEnd(message_id=message_id)


def _run_think(turn: DemoTurn) -> Iterator[Step]:
    for thought in ("The user wants to see me think. ", "I weigh two ways to answer. ", "The short one is better."):
        yield from turn.composer.reasoning(thought)
    yield from turn.composer.end_reasoning()
    yield from _stream_words(turn, "I have thought about it, and the short answer is yes.")


def _run_weather(turn: DemoTurn) -> Iterator[Step]:
    city = turn.argument.strip() or "Lisbon"
    report = _fake_forecast(city)
    call = turn.new_id("call")
    yield from _stream_tool_call(turn, call, _WEATHER_TOOL.name, {"city": city})
    yield from turn.composer.tool_result(call, json.dumps(report, ensure_ascii=False))
    yield from _stream_words(turn, f"It is {report['sky']} in {city}, {report['celsius']} degrees.")


def _fake_forecast(city: str) -> dict[str, Any]:
    """Return the weather of a city; always the same for the same city."""
    seed = sum(city.lower().encode())
    return {"city": city, "sky": _SKIES[seed % len(_SKIES)], "celsius": 5 + seed % 30}


def _stream_tool_call(turn: DemoTurn, call: str, name: str, arguments: dict[str, Any]) -> Iterator[Event]:
    yield from turn.composer.tool_start(call, name)
    for piece in _split_text(json.dumps(arguments, ensure_ascii=False), 8):
        yield from turn.composer.tool_args(call, piece)
    yield from turn.composer.tool_end(call)


def _split_text(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _run_color(turn: DemoTurn) -> Iterator[Step]:
    color = turn.argument.strip() or "teal"
    if not any(tool.name == CLIENT_TOOL for tool in turn.run_input.tools or ()):
        yield from _stream_words(turn, f"Your client has no tool {CLIENT_TOOL}, so I cannot turn it {color}.")
        return
    yield from _stream_tool_call(turn, turn.new_id("call"), CLIENT_TOOL, {"background": color})


def _continue_after_tool(turn: DemoTurn) -> Iterator[Step]:
    yield from _stream_words(
        turn, f"Your client has done it and answered: {_message_text(turn.run_input.messages[-1].content)}"
    )


def _run_approve(turn: DemoTurn) -> Iterator[Step]:
    what = turn.argument.strip() or "go on"
    yield from _stream_words(turn, f"I need your approval to {what}.")
    raise RunInterrupted(
        [
            Interrupt(
                id=turn.new_id("interrupt"),
                reason="confirmation",
                message=f"May I {what}?",
                response_schema=_ANSWER_SCHEMA,
            )
        ]
    )


def _resume_approve(turn: DemoTurn) -> Iterator[Step]:
    what = turn.argument.strip() or "go on"
    yield from _stream_words(turn, " ".join(_describe_decision(entry, what) for entry in turn.run_input.resume or ()))


def _describe_decision(entry: ResumeEntry, what: str) -> str:
    payload = as_object(entry.payload)
    comment = f" You said: {payload['comment']}" if payload.get("comment") else ""
    if entry.status == "cancelled":
        return f"Cancelled: I will not {what}."
    if payload.get("approved") is True:
        return f"Approved: I may {what}.{comment}"
    return f"Declined: I will not {what}.{comment}"


def _run_state(turn: DemoTurn) -> Iterator[Step]:
    plan = [{"task": task, "done": False} for task in ("mix", "bake", "serve")]
    yield from turn.composer.state({**as_object(turn.run_input.state), "plan": plan})
    for index in range(len(plan)):
        yield from turn.composer.state_delta([{"op": "replace", "path": f"/plan/{index}/done", "value": True}])
    yield from _stream_words(turn, "The plan in our shared state is done.")


def _run_say(turn: DemoTurn) -> Iterator[Step]:
    yield from _stream_words(turn, turn.argument or "Say what? Try: say hello there")


def _run_split(turn: DemoTurn) -> Iterator[Step]:
    for piece in _split_text(turn.argument or "Split what? Try: split abcdefghi", 3):
        yield from turn.composer.text(piece)


def _run_two(turn: DemoTurn) -> Iterator[Step]:
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
        yield from composer.tool_result(calls[city], json.dumps(_fake_forecast(city)))
    yield from _stream_words(turn, "I asked for both at once.")


def _run_steps(turn: DemoTurn) -> Iterator[Step]:
    for name in ("search", "write"):
        yield from turn.composer.start_step(name)
        yield from _stream_words(turn, f"Now I {name}.")
        yield from turn.composer.end_step(name)


def _run_subagent(turn: DemoTurn) -> Iterator[Step]:
    composer = turn.composer
    helper = turn.new_id("subagent")
    yield from composer.start_subagent(helper, "researcher")
    yield from composer.text("I am the researcher, and I found it.", subagent_id=helper)
    yield from composer.end_text(helper)
    yield from composer.end_subagent(helper)
    yield from _stream_words(turn, "My researcher has found it.")


def _run_crash(turn: DemoTurn) -> Iterator[Step]:
    yield from turn.composer.text("Everything is going well, and then ")
    raise RuntimeError("cannot reach db.internal (a detail for the log only)")


def _run_hang(turn: DemoTurn) -> Iterator[Step]:
    yield from turn.composer.text("hanging…")
    yield Pause()


def _run_help(turn: DemoTurn) -> Iterator[Step]:
    lines = "\n".join(f"- `{command.usage}`: {command.shows}" for command in COMMANDS.values())
    yield from _stream_words(turn, f"I am the demo agent. Everything I do is scripted. Try one of these:\n\n{lines}")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command of the table: its syntax, a description, and the generator that runs it."""

    usage: str
    shows: str
    play: Command


COMMANDS: dict[str, CommandEntry] = {
    entry.usage.split()[0]: entry
    for entry in (
        CommandEntry("say TEXT", "your words, one per delta", _run_say),
        CommandEntry("split TEXT", "your words, three characters per delta", _run_split),
        CommandEntry("count N [every 5ms]", "numbers, as fast as possible or paced", _run_count),
        CommandEntry("think", "reasoning, then an answer", _run_think),
        CommandEntry("weather CITY", "a backend tool call with its result", _run_weather),
        CommandEntry("two", "two tool calls at once", _run_two),
        CommandEntry("color NAME", f"a client tool call, if your client has {CLIENT_TOOL}", _run_color),
        CommandEntry("approve TEXT", "an interrupt that asks for approval; your answer resumes the run", _run_approve),
        CommandEntry("state", "shared state: a snapshot, then patches", _run_state),
        CommandEntry("steps", "named steps", _run_steps),
        CommandEntry("subagent", "a second agent that speaks for itself", _run_subagent),
        CommandEntry("crash", "a failure in the middle of a message", _run_crash),
        CommandEntry("hang", "a run that waits until it is stopped", _run_hang),
        CommandEntry("help", "this list", _run_help),
    )
}
