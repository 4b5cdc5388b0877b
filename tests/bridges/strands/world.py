"""A thread of a scripted Strands agent behind a real Runner, and streams in a form one can read."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from strands import Agent
from strands.models.model import Model

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.config import Settings
from ambient_runner.ledger import open_ledger
from ambient_runner.projections.private_entries import is_private
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol import events as e
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.run import Run, RunHandler
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import SETTINGS, events_of, request

CUT: list[e.Event] = []
"""The end of a run whose events were not read to their end."""
STREAMS: list[list[e.Event]] = []
"""Every run of every test here, for the official clients to judge (`tests/e2e/test_strands_streams.py`)."""

TOOL = e.Tool(
    name="change_background",
    description="Change the colour of the page.",
    parameters={"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]},
)


def agent_of(model: Model, *tools: Any, **options: Any) -> Agent:
    """An agent that neither prints nor waits between attempts."""
    return Agent(model=model, tools=list(tools), callback_handler=None, **{"retry_strategy": None, **options})


@dataclass
class Thread:
    """One conversation. Each method is one run and gives its events as the agent sent them, inside the frame."""

    runner: Runner
    name: str = "t"
    tools: list[e.Tool] = field(default_factory=list)
    count: int = 0
    events: list[e.Event] = field(default_factory=list)
    """The events of the last run."""

    async def say(self, text: Any, **options: Any) -> list[str]:
        self.count += 1
        return await self.run(e.UserMessage(id=f"u{self.count}", content=text), **options)

    async def answer(self, **results: Any) -> list[str]:
        """The client's results by call id; a dictionary may say more than the content."""
        return await self.run(*(tool_message(call, result) for call, result in results.items()))

    async def resume(self, *entries: e.ResumeEntry, **options: Any) -> list[str]:
        return await self.run(resume=list(entries), **options)

    async def run(self, *messages: e.Message, **options: Any) -> list[str]:
        with unless_hung():
            context = options.pop("context", [])
            start = request(*messages, thread=self.name, **{"tools": self.tools, **options})
            start = dataclasses.replace(start, input=msgspec.structs.replace(start.input, context=context))
            started = await self.runner.start(start)
            await events_of(self.runner, started)
        self.events = self.runner.taps[self.name]  # type: ignore[attr-defined]
        return summarize(self.events)

    @property
    def interrupts(self) -> list[e.Interrupt]:
        end = self.events[-1]
        assert isinstance(end, e.RunFinished)
        assert isinstance(end.outcome, e.Interrupted)
        return end.outcome.interrupts


def tool_message(call: str, result: Any) -> e.ToolMessage:
    extra = result if isinstance(result, dict) else {"content": result}
    return e.ToolMessage(id=f"answer-{call}", tool_call_id=call, **{"content": "", **extra})


def yes(interrupt: e.Interrupt, payload: Any = None) -> e.ResumeEntry:
    return e.ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=payload)


def no(interrupt: e.Interrupt) -> e.ResumeEntry:
    return e.ResumeEntry(interrupt_id=interrupt.id, status="cancelled")


@asynccontextmanager
async def strands(
    agent: Any,
    config: StrandsAgentConfig | None = None,
    *,
    tools: list[e.Tool] | None = None,
    store: Path | None = None,
    settings: Settings = SETTINGS,
) -> AsyncGenerator[Thread, None]:
    """A thread on a Runner of its own; with `store` on a file that another one may open later."""
    taps: dict[str, list[e.Event]] = {}
    hosted = AgentHost("agent", StrandsBridge(agent, config), max_adapters=settings.adapters_kept)
    url = f"sqlite:///{store}" if store else "memory://"
    async with open_ledger(url) as ledger, Runner(ledger, {"agent": hosted}, settings, [_tap(taps)]) as runner:
        runner.taps = taps  # type: ignore[attr-defined]
        yield Thread(runner, tools=tools or [])


def _tap(taps: dict[str, list[e.Event]]) -> Any:
    """Middleware that keeps what the agent sent before the Runner repairs anything, and insists that nothing needs repair."""

    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncIterator[e.Event]:
            seen = taps[run.thread.id] = []
            messages = Transcript(run.input.messages)
            end = CUT
            try:
                async for event in handler(run):
                    messages.apply(event)
                    is_marker = event == SNAPSHOT_MARKER
                    shown = e.MessagesSnapshot(messages=messages.messages()) if is_marker else event
                    if not is_private(shown):
                        seen.append(shown)
                    yield event
                end = []
            except Exception:
                end = [e.RunError(message="failed")]
                raise
            finally:
                if end is not CUT:
                    verify([*seen, *end])
                    STREAMS.append([*seen, *end])

        return handle

    return wrap


def verify(events: list[e.Event]) -> None:
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()


def summarize(events: list[e.Event]) -> list[str]:
    """The stream in short words: `TC m1 "Hel"`. Ids that were made up are numbered as they come; `@s1` is a subagent."""
    names = _Names()
    return [names.word(event) for event in events if type(event) is not e.RunStarted]


class _Names:
    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def word(self, event: e.Event) -> str:
        subagent_id = getattr(event, "subagent_run_id", None)
        words = self._words(event)
        at = f" @{self(subagent_id)}" if subagent_id and not isinstance(event, _SUBAGENT) else ""
        return f"{words}{at}"

    def __call__(self, name: str) -> str:
        kind = name.partition("-")[0]
        letter = {"message": "m", "result": "r", "reasoning": "z", "subagent": "s"}.get(kind)
        if letter is None or len(name) < 30:
            return name
        if name not in self._ids:
            self._counts[letter] = self._counts.get(letter, 0) + 1
            self._ids[name] = f"{letter}{self._counts[letter]}"
        return self._ids[name]

    def _words(self, event: e.Event) -> str:  # noqa: C901
        match event:
            case e.TextMessageStart():
                return f"TS {self(event.message_id)}"
            case e.TextMessageContent():
                return f"TC {self(event.message_id)} {json.dumps(event.delta, ensure_ascii=False)}"
            case e.TextMessageEnd():
                return f"TE {self(event.message_id)}"
            case e.ToolCallStart():
                return f"CS {event.tool_call_id} {event.tool_call_name} < {self(event.parent_message_id or '')}"
            case e.ToolCallArgs():
                return f"CA {event.tool_call_id} {event.delta}"
            case e.ToolCallEnd():
                return f"CE {event.tool_call_id}"
            case e.ToolCallResult():
                error = " error" if (event.metadata or {}).get("isError") else ""
                return f"CR {event.tool_call_id} {_content(event.content)}{error}"
            case e.ReasoningStart():
                return f"ZS {self(event.message_id)}"
            case e.ReasoningMessageStart():
                return f"ZMS {self(event.message_id)}"
            case e.ReasoningMessageContent():
                return f"ZMC {self(event.message_id)} {json.dumps(event.delta, ensure_ascii=False)}"
            case e.ReasoningMessageEnd():
                return f"ZME {self(event.message_id)}"
            case e.ReasoningEnd():
                return f"ZE {self(event.message_id)}"
            case e.ReasoningEncryptedValue():
                return f"ENC {event.subtype} {self(event.entity_id)} {event.encrypted_value}"
            case e.StateSnapshot():
                return f"SS {json.dumps(event.snapshot)}"
            case e.StateDelta():
                return f"SD {json.dumps(event.delta)}"
            case e.MessagesSnapshot():
                return "MS"
            case e.Custom():
                return f"CUSTOM {event.name} {json.dumps(event.value)}"
            case e.ActivitySnapshot():
                return f"AS {event.activity_type} {json.dumps(event.content)}"
            case e.ActivityDelta():
                return f"AD {event.activity_type} {json.dumps(event.patch)}"
            case e.StepStarted():
                return f"STEP {event.step_name}"
            case e.StepFinished():
                return f"END STEP {event.step_name}"
            case e.SubagentStarted():
                parent = event.parent_subagent_run_id or event.parent_tool_call_id
                return f"SUB {self(event.subagent_run_id)} {event.name}" + (f" < {self(parent)}" if parent else "")
            case e.SubagentFinished():
                return f"END SUB {self(event.subagent_run_id)}" + (" suspended" if event.outcome else "")
            case e.SubagentError():
                return f"FAILED SUB {self(event.subagent_run_id)}"
            case e.RunFinished():
                return f"RF {_outcome(event.outcome)}"
            case e.RunError():
                return f"RE {event.code}"
            case _:
                raise NotImplementedError(event)


_SUBAGENT = e.SubagentStarted | e.SubagentFinished | e.SubagentError


def _content(content: e.Content) -> str:
    if isinstance(content, str):
        return json.dumps(content, ensure_ascii=False)
    return " + ".join(
        json.dumps(part.text) if isinstance(part, e.TextPart) else f"{type(part).__name__} {part.source.mime_type}"
        for part in content
    )


def _outcome(outcome: e.Outcome | None) -> str:
    match outcome:
        case e.Success(pending_tool_call_ids=[*calls]) if calls:
            return f"waits for {' '.join(calls)}"
        case e.Interrupted():
            return f"asks {' '.join(one.reason for one in outcome.interrupts)}"
        case e.Cancelled():
            return "cancelled"
        case _:
            return "success"


def five_places(count: int, seed: int) -> list[int]:
    """Five places in a stream of so many events, or all of them when there are fewer."""
    return sorted(random.Random(seed).sample(range(count), min(5, count)))


async def tasks_since(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """The tasks that have come since and stay: not those that are ending, or close what the garbage collector finds meanwhile."""
    for _ in range(20):
        if not asyncio.all_tasks() - before:
            break
        await asyncio.sleep(0)
    return asyncio.all_tasks() - before
