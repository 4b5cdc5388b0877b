"""An ADK agent behind a real Runner: what clients got, in short form, and what the model saw."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from google.adk.agents import LlmAgent

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.errors import RunnerError
from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.private_entries import is_private
from ambient_runner.protocol import events as e
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Run, RunHandler, Started
from ambient_runner.runs.runner import Runner
from tests.bridges.adk.scripted import Scripted, Turn
from tests.machine_speed import unless_hung
from tests.world import SETTINGS, events_of, request, user

STREAMS: list[list[e.Event]] = []
"""Every whole stream the cases made, as it was before anything could be repaired, for the official clients to judge."""

NAMES = {
    "RUN_STARTED": "RS",
    "RUN_FINISHED": "RF",
    "RUN_ERROR": "RE",
    "TEXT_MESSAGE_START": "TS",
    "TEXT_MESSAGE_CONTENT": "TC",
    "TEXT_MESSAGE_END": "TE",
    "TOOL_CALL_START": "CS",
    "TOOL_CALL_ARGS": "CA",
    "TOOL_CALL_END": "CE",
    "TOOL_CALL_RESULT": "CR",
    "STATE_SNAPSHOT": "SS",
    "STATE_DELTA": "SD",
    "MESSAGES_SNAPSHOT": "MS",
    "REASONING_START": "ZS",
    "REASONING_MESSAGE_START": "ZMS",
    "REASONING_MESSAGE_CONTENT": "ZMC",
    "REASONING_MESSAGE_END": "ZME",
    "REASONING_END": "ZE",
    "REASONING_ENCRYPTED_VALUE": "ZV",
    "SUBAGENT_STARTED": "AS",
    "SUBAGENT_FINISHED": "AF",
    "CUSTOM": "X",
}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Talk:
    """One thread's conversation with one server."""

    def __init__(self, runner: Runner, thread: str = "t") -> None:
        self.runner = runner
        self.thread = thread

    async def run(self, *messages: e.Message, **options: Any) -> list[e.Event]:
        with unless_hung():
            started = await self.runner.start(request(*messages, thread=self.thread, **options))
            events = await events_of(self.runner, started)
        check(events)
        check(STREAMS[-1])
        return events

    async def say(self, name: str, text: str = "hi", **options: Any) -> list[str]:
        return short(await self.run(user(name, text), **options))

    async def answer(self, *results: tuple[str, Any], **options: Any) -> list[str]:
        """Tool results as (call id, content)."""
        messages = [
            e.ToolMessage(id=f"result-of-{call}", tool_call_id=call, content=content) for call, content in results
        ]
        return short(await self.run(*messages, **options))

    async def resume(self, *entries: e.ResumeEntry) -> list[str]:
        return short(await self.run(resume=list(entries)))

    async def begin(self, *messages: e.Message, until: type[e.Event] | None = None, **options: Any) -> Started:
        """Start a run and come back while it goes on, once such an event can be read."""
        with unless_hung():
            started = await self.runner.start(request(*messages, thread=self.thread, **options))
            async with aclosing(follow_run(self.runner.ledger, started)) as events:
                async for event in events:
                    if until is None or isinstance(event, until):
                        break
        return started

    async def stop(self, started: Started) -> list[e.Event]:
        """Stop the run; all of its events."""
        with unless_hung():
            await self.runner.stop(started.thread)
            events = await events_of(self.runner, started)
        check(events)
        return events

    async def messages(self) -> list[e.Message]:
        view = await self.runner.view_thread(ThreadKey("default", "local", self.thread))
        return view.transcript.messages()


def listening(handler: RunHandler) -> RunHandler:
    """Record the agent's events, in their frame."""

    async def handle(run: Run) -> AsyncGenerator[e.Event, None]:
        received: list[e.Event] = []
        try:
            async with aclosing(handler(run)) as events:
                async for event in events:
                    if not is_private(event):
                        received.append(event)
                    yield event
        except RunnerError as error:
            if not isinstance(received[-1], e.RunError):
                received.append(e.RunError(message=error.message, code=error.code))
            raise
        finally:
            if isinstance(received[-1], e.RunFinished | e.RunError):
                STREAMS.append(received)

    return handle


def check(events: Sequence[e.Event]) -> None:
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()


@asynccontextmanager
async def served(bridge: ADKBridge, ledger: Ledger | None = None) -> AsyncGenerator[Runner, None]:
    if ledger is not None:
        async with Runner(ledger, {"agent": AgentHost("agent", bridge)}, SETTINGS, [listening]) as runner:
            yield runner
            assert runner.uncancellable_tasks == set()
    else:
        async with MemoryLedger() as made, served(bridge, made) as runner:
            yield runner


@asynccontextmanager
async def talking(agent: Any, ledger: Ledger | None = None, **options: Any) -> AsyncGenerator[Talk, None]:
    bridge = agent if isinstance(agent, ADKBridge) else ADKBridge(agent, **options)
    async with served(bridge, ledger) as runner:
        yield Talk(runner)


def agent(*turns: Turn, **options: Any) -> tuple[LlmAgent, Scripted]:
    """An agent called `root` on a scripted model."""
    model = Scripted.of(*turns)
    return LlmAgent(name="root", model=model, **options), model


def short(events: Sequence[e.Event]) -> list[str]:
    """A stream as short words, without the frame's own snapshot; generated ids are numbered."""
    names = _Names()
    kept = [event for event in events if not isinstance(event, e.MessagesSnapshot)]
    return [" ".join([NAMES.get(e.type_of(event), e.type_of(event)), *_words(event, names)]) for event in kept]


def by_subagent(events: Sequence[e.Event]) -> dict[str, list[str]]:
    """A stream in short words, each agent's own part apart: agents that run side by side speak in any order. The main part is ""."""
    names: dict[str, str] = {"": ""}
    parts: dict[str, list[str]] = {}
    for word in short(events):
        spoken, _, subagent_id = word.partition(" @")
        if spoken.startswith("AS "):
            _, subagent_id, name, *_ = spoken.split(" ")
            names[subagent_id] = name
        parts.setdefault(names[subagent_id], []).append(re.sub(r"\b[am]\d+\b", "*", spoken))
    return parts


class _Names:
    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, name: str, kind: str) -> str:
        base, again, count = name.partition("~")
        if not _UUID.search(base):
            return name
        number = sum(one.startswith(kind) for one in self._known.values()) + 1
        return self._known.setdefault(base, f"{kind}{number}") + again + count


def _words(event: e.Event, names: _Names) -> list[str]:
    subagent_id = getattr(event, "subagent_run_id", None)
    words = _own_words(event, names)
    return (
        [*words, f"@{names.of(subagent_id, 'a')}"]
        if subagent_id and not isinstance(event, e.SubagentStarted)
        else words
    )


def _own_words(event: e.Event, names: _Names) -> list[str]:
    match event:
        case e.TextMessageStart():
            return [names.of(event.message_id, "m"), *([event.name] if event.name else [])]
        case e.TextMessageContent() | e.ReasoningMessageContent():
            return [event.delta]
        case e.ToolCallStart() | e.ToolCallArgs() | e.ToolCallEnd() | e.ToolCallResult():
            return [names.of(event.tool_call_id, "c"), *_call_words(event)]
        case e.ReasoningEncryptedValue():
            kind = "c" if event.subtype == "tool-call" else "z" if event.entity_id.startswith("reasoning") else "m"
            return [event.subtype, names.of(event.entity_id, kind), event.encrypted_value]
        case e.StateSnapshot() | e.StateDelta():
            return [str(event.snapshot if isinstance(event, e.StateSnapshot) else event.delta)]
        case e.Custom():
            return [event.name, str(event.value)]
        case e.SubagentStarted():
            cause = [f"of {event.parent_tool_call_id}"] if event.parent_tool_call_id else []
            return [names.of(event.subagent_run_id, "a"), event.name, *cause]
        case e.RunError():
            return [event.code or ""]
        case e.RunFinished():
            return _outcome(event.outcome, names)
        case _:
            return []


def _call_words(event: e.ToolCallStart | e.ToolCallArgs | e.ToolCallEnd | e.ToolCallResult) -> list[str]:
    match event:
        case e.ToolCallStart():
            return [event.tool_call_name]
        case e.ToolCallArgs():
            return [event.delta]
        case e.ToolCallResult():
            return [str(event.content), *(["failed"] if event.metadata == {"isError": True} else [])]
        case _:
            return []


def _outcome(outcome: e.Outcome | None, names: _Names) -> list[str]:
    match outcome:
        case e.Success(pending_tool_call_ids=[*ids]):
            return ["waits for", *(names.of(one, "c") for one in ids)]
        case e.Interrupted(interrupts=interrupts):
            return ["asks", *(f"{one.reason}:{one.tool_call_id or '-'}" for one in interrupts)]
        case e.Cancelled():
            return ["cancelled"]
        case _:
            return []


def questions(events: Sequence[e.Event]) -> list[e.Interrupt]:
    """What the run's end asks."""
    last = events[-1]
    assert isinstance(last, e.RunFinished)
    assert isinstance(last.outcome, e.Interrupted)
    return last.outcome.interrupts


def yes(interrupt: e.Interrupt, payload: Any = None) -> e.ResumeEntry:
    return e.ResumeEntry(
        interrupt_id=interrupt.id, status="resolved", payload={"confirmed": True} if payload is None else payload
    )
