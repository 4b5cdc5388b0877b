"""The little world most tests need: a Runner on a memory ledger with one scripted agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from ag_ui.core import BaseEvent

from ambient_runner.config import Settings, Timeouts
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.protocol.agui_models import EventCoercer
from ambient_runner.protocol.events import (
    Event,
    Message,
    ResumeEntry,
    RunAgentInput,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    UserMessage,
)
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.lowering import HTTPS_ONLY, PropRules
from ambient_runner.runs.run import Actor, Middleware, Run, Started, StartRequest
from ambient_runner.runs.runner import Runner

KEY = ThreadKey("default", "local", "t")
SETTINGS = Settings(store="memory://", history="server", lease=5.0, timeouts=Timeouts(grace=0.5))


async def structs_of(models: AsyncGenerator[Any, None]) -> AsyncGenerator[Event, None]:
    """Convert what an adapter yields without a server, models of `ag_ui.core`, to our events."""
    coerce = EventCoercer()
    async with aclosing(models):
        async for model in models:
            assert isinstance(model, BaseEvent)
            yield coerce(model)


class ScriptedAgent:
    """An agent that is one async generator function of the run."""

    def __init__(
        self,
        script: Callable[[Run], AsyncIterator[Any]],
        *,
        hidden: frozenset[str] = frozenset(),
        middleware: Sequence[Middleware] = (),
        default_prompt: str = "",
        restates_messages: bool = True,
        relays_developer_messages: bool = False,
    ) -> None:
        self.name = "agent"
        self.hidden_state = hidden
        self.middleware = middleware
        self.default_prompt = default_prompt
        self.restates_messages = restates_messages
        self.forwarded_props: PropRules = {}
        self.media_url_schemes: Collection[str] = HTTPS_ONLY
        self.corrects_history = not restates_messages
        self.relays_developer_messages = relays_developer_messages
        self.seen: list[RunAgentInput] = []
        self.closed = False
        self._script = script

    @asynccontextmanager
    async def open_run(self, run: Run) -> AsyncGenerator[AsyncGenerator[Any, None], None]:
        self.seen.append(run.input)
        async with aclosing(cast("AsyncGenerator[Any, None]", self._script(run))) as events:
            yield events

    def check_run(self, run: Run) -> None: ...

    async def interrupt(self, run: Run) -> bool:
        return False

    async def cancel_interrupts(self, thread: ThreadKey) -> None: ...

    async def erase_thread(self, thread: ThreadKey) -> None: ...

    async def evict_idle(self) -> None: ...

    async def aclose(self) -> None:
        self.closed = True


@asynccontextmanager
async def runner_of(
    agent: ScriptedAgent, settings: Settings = SETTINGS, *, middleware: Sequence[Middleware] = ()
) -> AsyncGenerator[Runner, None]:
    async with MemoryLedger() as ledger, Runner(ledger, {"agent": agent}, settings, middleware) as runner:
        yield runner


def user(name: str, text: str = "hi") -> UserMessage:
    return UserMessage(id=name, content=text)


def request(*messages: Message, thread: str = "t", **options: Any) -> StartRequest:
    resume: list[ResumeEntry] | None = options.pop("resume", None)
    tools, state = options.pop("tools", []), options.pop("state", None)
    asked = RunAgentInput(
        thread_id=thread,
        run_id="r",
        messages=list(messages),
        resume=resume,
        tools=tools,
        state=state,
        protocol_version="1.0",
    )
    return StartRequest(agent="agent", actor=Actor(), input=asked, **options)


async def events_of(runner: Runner, started: Started) -> list[Event]:
    return [event async for event in follow_run(runner.ledger, started)]


async def run_once(runner: Runner, *messages: Message, **options: Any) -> list[Event]:
    return await events_of(runner, await runner.start(request(*messages, **options)))


def said(name: str, *deltas: str) -> list[Event]:
    return [
        TextMessageStart(message_id=name, role="assistant"),
        *(TextMessageContent(message_id=name, delta=delta) for delta in deltas),
        TextMessageEnd(message_id=name),
    ]
