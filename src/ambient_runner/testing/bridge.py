"""The contract of a bridge. Every test uses a new bridge, a Runner and a memory store.

`event_check.py` checks the events of an adapter, `loop_guard.py` what it does to the event loop.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

import anyio

from ambient_runner.bridges.agent_host import AgentHost, open_events
from ambient_runner.bridges.base import Closeable, FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.json_values import to_jsonable_or_type_name
from ambient_runner.config import Settings, Timeouts
from ambient_runner.errors import NoActiveRun
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.agui_models import coerce_event, input_to_agui
from ambient_runner.protocol.dropped_events import dropped_tool_names
from ambient_runner.protocol.events import (
    MessagesSnapshot,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageStart,
    Tool,
    UserMessage,
    encode_event,
    outcome_name,
)
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Actor, Run, StartRequest
from ambient_runner.runs.runner import Runner
from ambient_runner.testing.event_check import CheckedHost, describe_invalid
from ambient_runner.testing.loop_guard import ContractFailure, find_open_generators, run_guarded, track_generators

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Started
    from ambient_runner.testing.loop_guard import LoopMonitor

__all__ = ["BridgeContract"]

_THREAD = "t"
_TOKEN = "quicksilver-4711"  # noqa: S105  not a credential: a word that occurs nowhere else
_VARYING = re.compile(
    rb',?"(?:timestamp":\d+|(?:messageId|parentMessageId|toolCallId|runId|entityId|subagentRunId|traceId)":"[^"]*")'
)
_SETTLE_TIME = 0.2
"""Seconds that an agent must still run after its first text on `endless_prompt`."""
_SHARED = "Two threads share an agent object: create a new one in create_adapter, for each thread."


class BridgeContract:
    """Tests that every bridge must pass. Subclass it, with a name that pytest collects, and override `create_bridge`.

    The agent is scripted: it reacts to the prompts below in the way they say, and gives the same answer to the same input. Use your real
    framework with a fake model.
    """

    text_prompt: ClassVar[str] = "say hello there"
    """User message that the agent answers with text."""
    crash_prompt: ClassVar[str] = "crash"
    """User message that makes the agent fail after it has sent some text."""
    endless_prompt: ClassVar[str] = "hang"
    """User message that makes the agent send some text and then run until it is stopped."""
    history_prompt: ClassVar[str] = ""
    """User message that the agent answers with every message of the conversation that it knows. Optional, but only with it can the
    contract see a history that two threads share."""
    grace: ClassVar[float] = 0.5
    """Seconds the agent has to end by itself after a stop."""
    stop_timeout: ClassVar[float] = 10.0
    """Seconds after which a run that was stopped must have ended."""
    block_timeout: ClassVar[float] = 1.0
    """Seconds the bridge may block the event loop. `create_bridge` and imports may block."""
    hang_timeout: ClassVar[float] = 60.0
    """Seconds after which a test fails because something hangs."""

    _monitor: LoopMonitor

    def create_bridge(self) -> PlatformBridge:
        """Return a new bridge with a scripted agent. Called in the event loop of a test."""
        raise NotImplementedError("Override create_bridge: return your bridge with a scripted agent.")

    def test_capabilities_are_declared(self) -> None:
        async def check() -> None:
            declared = cast("object", self._create_bridge().capabilities())
            _require(
                isinstance(declared, FrameworkCapabilities),
                f"capabilities() must return FrameworkCapabilities, not {_type_name(declared)}.",
            )

        self._run(check)

    def test_every_thread_has_its_own_adapter(self) -> None:
        async def check() -> None:
            bridge = self._create_bridge()
            host = AgentHost("agent", bridge)
            adapters = [host.create_adapter(PlatformContext(session_id=thread)) for thread in ("a", "b")]
            _require(
                adapters[0] is not adapters[1],
                "create_adapter returned the same object twice. It must return a new object for each thread.",
            )
            await _close(*adapters, bridge)

        self._run(check)

    def test_the_events_of_a_run_are_legal(self) -> None:
        async def check() -> None:
            async with self._serve() as server:
                runs = [await server.start_and_read(self.text_prompt) for _ in range(2)]
            for started, events in runs:
                _require_legal(events)
                _require(
                    isinstance(events[-1], RunFinished),
                    f"The run of text_prompt ended with {server.describe_end(started, events)}",
                )
                _require(
                    bool(_text(events)),
                    f"The agent answered text_prompt ({self.text_prompt!r}) without text. Set text_prompt to a message that it answers.",
                )
                _require(not (repair := server.host.repairs.get(started.run)), repair)

        self._run(check)

    def test_closing_the_events_early_leaves_no_task(self) -> None:
        async def check() -> None:
            bridge = self._create_bridge()
            adapter = AgentHost("agent", bridge).create_adapter(PlatformContext(session_id=_THREAD))
            run_input = RunAgentInput(
                thread_id=_THREAD, run_id="r", messages=[_user_message("u1", self.endless_prompt)]
            )
            before = asyncio.all_tasks()
            with track_generators() as generators:
                await _read_first_event(adapter, run_input)
                left = sorted(task.get_name() for task in asyncio.all_tasks() - before)
                _require(
                    not left,
                    f"Closing the generator of `run` early left tasks: {', '.join(left)}. Close the framework's stream in a finally.",
                )
                left = await find_open_generators(generators)
                _require(
                    not left,
                    f"Closing the generator of `run` early left async generators open: {', '.join(left)}. Close the framework's stream: "
                    "async with contextlib.aclosing(stream).",
                )
            await _close(adapter, bridge)

        self._run(check)

    def test_a_stop_ends_the_run(self) -> None:
        async def check() -> None:
            async with self._serve() as server:
                started = await server.start_endless()
                since = time.monotonic()
                await server.stop()
                events = await server.read(started)
                seconds = time.monotonic() - since
                server.require_stopped(started, events)
            _require(
                seconds < self.stop_timeout,
                f"The run ended {seconds:.1f} s after the stop; at most {self.stop_timeout:g} s are allowed. Let `interrupt` or a "
                "cancellation end it.",
            )

        self._run(check)

    def test_a_crash_is_an_error_and_the_thread_goes_on(self) -> None:
        async def check() -> None:
            async with self._serve() as server:
                crashed, crash_events = await server.start_and_read(self.crash_prompt)
                after, after_events = await server.start_and_read(self.text_prompt)
            _require(
                isinstance(crash_events[-1], RunError),
                f"The run of crash_prompt ({self.crash_prompt!r}) ended with {server.describe_end(crashed, crash_events)} Raise the "
                "framework's error; do not turn it into text.",
            )
            _require(
                isinstance(after_events[-1], RunFinished),
                f"The run after the crash ended with {server.describe_end(after, after_events)} The thread must work again.",
            )

        self._run(check)

    def test_two_threads_run_at_the_same_time(self) -> None:
        async def check() -> None:
            async with self._serve() as server:
                endless = await server.start_endless("alice")
                other, events = await server.start_and_read(self.text_prompt, owner="bob")
                await server.stop("alice")
                server.require_stopped(endless, await server.read(endless))
            _require(
                isinstance(events[-1], RunFinished),
                f"While another thread had a run, the run ended with {server.describe_end(other, events)} If the framework refuses a "
                f"second run: {_SHARED}",
            )

        self._run(check)

    def test_a_stop_ends_only_its_own_thread(self) -> None:
        async def check() -> None:
            async with self._serve() as server:
                runs = [await server.start_endless(owner) for owner in ("alice", "bob")]
                _require(await server.is_active("alice"), f"A second run ended the run of another thread. {_SHARED}")
                await server.stop("alice")
                server.require_stopped(runs[0], await server.read(runs[0]))
                _require(await server.is_active("bob"), f"Stopping one thread ended the run of another. {_SHARED}")
                await server.stop("bob")
                server.require_stopped(runs[1], await server.read(runs[1]))

        self._run(check)

    def test_a_user_sees_nothing_of_another_user(self) -> None:
        """Two users with the same thread id: what one has done must not change what the other gets."""

        async def check() -> None:
            async with self._serve() as server:
                alone = await server.run(self.text_prompt, owner="bob")
            async with self._serve() as server:
                await server.run(self.text_prompt, owner="alice", state={"note": _TOKEN})
                await server.run(f"{self.text_prompt} {_TOKEN}", owner="alice")
                after = await server.run(self.text_prompt, owner="bob")
                histories = [
                    await server.run(self.history_prompt, owner=owner) if self.history_prompt else []
                    for owner in ("alice", "bob")
                ]
            seen = _visible(after)
            _require(_TOKEN.encode() not in seen, f"A run has the state or text of another user. {_SHARED}")
            _require(
                seen == _visible(alone),
                f"A run depends on the runs of another user: the same input got another answer. {_SHARED}",
            )
            if self.history_prompt:
                _require(
                    _TOKEN.encode() in _visible(histories[0]),
                    f"The agent did not answer history_prompt ({self.history_prompt!r}) with the conversation. Let the scripted agent "
                    "answer with all messages it knows.",
                )
                _require(
                    _TOKEN.encode() not in _visible(histories[1]),
                    f"A thread has the history of another user. {_SHARED}",
                )

        self._run(check)

    def test_the_agents_tools_are_listed_without_a_run(self) -> None:
        async def check() -> None:
            host = CheckedHost("agent", self._create_bridge())
            tools = await _list_tools(host)
            for tool in tools:
                _require(
                    to_jsonable_or_type_name(tool.parameters) == tool.parameters,
                    f"The parameters of the tool {tool.name!r} must be a JSON Schema. Create the declaration with declare_tool.",
                )
            _require(
                await _list_tools(host) == tools,
                "list_tools() returned other tools the second time. It must depend only on the agent and the request.",
            )
            await _close(host.bridge)

        self._run(check)

    def test_a_clients_tool_of_the_agents_name_is_left_out(self) -> None:
        async def check() -> None:
            async with self._serve() as server:
                own = await _list_tools(server.host)
                forged = [Tool(name=tool.name, description="the client's") for tool in own]
                _, events = await server.start_and_read(self.text_prompt, tools=forged)
            dropped = {name for event in events for name in dropped_tool_names(event)}
            missing = sorted({tool.name for tool in own} - dropped)
            _require(
                not missing,
                f"The client declared the agent's own tools {missing}, and the run does not report that they were left out. A client must "
                "not execute them: offer it `Toolbox(tools, own_names).client_tools`, and yield its dropped_events().",
            )

        self._run(check)

    def _run(self, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        __tracebackhide__ = True

        async def monitored(monitor: LoopMonitor) -> None:
            self._monitor = monitor
            await check()

        run_guarded(monitored, hang_timeout=self.hang_timeout, block_timeout=self.block_timeout)

    def _create_bridge(self) -> PlatformBridge:
        with self._monitor.pause():
            return self.create_bridge()

    @asynccontextmanager
    async def _serve(self) -> AsyncGenerator[_Server, None]:
        settings = Settings(store="memory://", history="server", timeouts=Timeouts(grace=self.grace))
        host = CheckedHost("agent", self._create_bridge())
        async with (
            MemoryLedger() as ledger,
            Runner(ledger, {"agent": host}, settings, [host.check_order]) as runner,
        ):
            yield _Server(runner, host, self.endless_prompt)


async def _list_tools(host: AgentHost) -> list[Tool]:
    """Return the tools that the bridge lists for a request that names no thread."""
    actor = Actor()
    run_input = RunAgentInput(thread_id="", run_id="r", messages=[])
    run = Run(key="r", thread=actor.thread_key(""), agent="agent", actor=actor, trace_id="r", input=run_input)
    return await host.list_tools(run)


class _Server:
    """Starts, reads and stops runs of the agent for different users."""

    def __init__(self, runner: Runner, host: CheckedHost, endless_prompt: str) -> None:
        self.host = host
        self._runner = runner
        self._endless_prompt = endless_prompt
        self._count = 0

    async def run(self, text: str, *, owner: str = "alice", state: Any = None) -> list[Event]:
        return await self.read(await self._start(text, owner=owner, state=state))

    async def start_and_read(
        self, text: str, *, owner: str = "alice", tools: Sequence[Tool] = ()
    ) -> tuple[Started, list[Event]]:
        started = await self._start(text, owner=owner, tools=tools)
        return started, await self.read(started)

    async def start_endless(self, owner: str = "alice") -> Started:
        """Start a run that sends text and goes on.

        Raises: ContractFailure if it ends by itself.
        """
        started = await self._start(self._endless_prompt, owner=owner)
        async with aclosing(follow_run(self._runner.ledger, started)) as events:
            async for event in events:
                # Its text may be held back: it can be the beginning of a secret.
                if isinstance(event, TextMessageStart):
                    break
        with anyio.move_on_after(_SETTLE_TIME):
            raise self._ended_early(started, await self.read(started))
        return started

    async def _start(self, text: str, *, owner: str, state: Any = None, tools: Sequence[Tool] = ()) -> Started:
        self._count += 1
        run_input = RunAgentInput(
            thread_id=_THREAD,
            run_id=f"r{self._count}",
            messages=[_user_message(f"u{self._count}", text)],
            state=state,
            tools=list(tools),
            protocol_version="1.0",
        )
        return await self._runner.start(StartRequest(agent="agent", actor=Actor(owner=owner), input=run_input))

    async def read(self, started: Started) -> list[Event]:
        """Return the events of the run, once it has ended. Raises: ContractFailure if one was not an event."""
        events = [event async for event in follow_run(self._runner.ledger, started)]
        _require(not (fault := self.host.invalid_events.get(started.run)), fault)
        return events

    async def stop(self, owner: str = "alice") -> None:
        try:
            await self._runner.stop(Actor(owner=owner).thread_key(_THREAD))
        except NoActiveRun:
            raise self._ended_early() from None

    def require_stopped(self, started: Started, events: list[Event]) -> None:
        """Check that the run ended because it was stopped."""
        end = events[-1]
        if isinstance(end, RunFinished) and outcome_name(end) == "success":
            raise self._ended_early(started, events)
        _require(isinstance(end, RunFinished), f"The stopped run ended with {self.describe_end(started, events)}")

    def describe_end(self, started: Started, events: list[Event]) -> str:
        """Return a sentence about the run's terminal event and the error of its adapter."""
        match events[-1]:
            case RunError(code=code, message=message):
                error = self.host.errors.get(started.run)
                return f"RUN_ERROR {code} ({message})" + (f", because the adapter raised {error}." if error else ".")
            case RunFinished() as end:
                return f"RUN_FINISHED, outcome {outcome_name(end)}."
            case other:
                return f"{type(other).__name__}."

    async def is_active(self, owner: str) -> bool:
        info = await self._runner.ledger.get_thread(Actor(owner=owner).thread_key(_THREAD))
        return info is not None and bool(info.active)

    def _ended_early(self, started: Started | None = None, events: list[Event] | None = None) -> ContractFailure:
        end = f", with {self.describe_end(started, events)}" if started and events else "."
        return ContractFailure(
            f"The agent ended on endless_prompt ({self._endless_prompt!r}) by itself{end} It must send some text and then run until it is "
            "stopped. Set endless_prompt to a message that makes your scripted agent do so."
        )


def _require(is_met: bool, fault: str | None) -> None:
    if not is_met:
        raise ContractFailure(fault)


def _type_name(value: object) -> str:
    return type(value).__name__


async def _read_first_event(adapter: Any, run_input: RunAgentInput) -> None:
    """Read one event and close the stream, as the server does when a run is stopped."""
    async with aclosing(await open_events(adapter, input_to_agui(run_input))) as events:
        async for event in events:
            try:
                coerce_event(event)
            except (TypeError, ValueError) as error:
                raise ContractFailure(describe_invalid(event, error)) from None
            return
    raise ContractFailure("`run` ended on endless_prompt without an event. The agent must send some text.")


def _require_legal(events: list[Event]) -> None:
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()


def _user_message(message_id: str, text: str) -> UserMessage:
    return UserMessage(id=message_id, content=text)


def _text(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, TextMessageContent))


def _visible(events: list[Event]) -> bytes:
    """Return what a client gets, without ids, timestamps and the borders between deltas."""
    hidden = (TextMessageContent, RunStarted, RunFinished, MessagesSnapshot)
    lines = [_VARYING.sub(b"", encode_event(event)) for event in events if not isinstance(event, hidden)]
    return b"\n".join([_text(events).encode(), *lines])


async def _close(*things: Any) -> None:
    for thing in things:
        if isinstance(thing, Closeable):
            await thing.aclose()
