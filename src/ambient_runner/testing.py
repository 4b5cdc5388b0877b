"""The contract of a bridge, as tests to run in a package of your own: see docs/how-to/bridge.md.

    from ambient_runner.testing import BridgeContract

    class TestMyBridge(BridgeContract):
        def create_bridge(self):
            return MyBridge(scripted_agent())

Every test uses a new bridge, a Runner and a memory store. pytest collects the class; nothing here imports pytest.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import Closeable, FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.user_errors import unwrap_group
from ambient_runner.config import Settings, Timeouts
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.agui_models import coerce_event, input_to_agui
from ambient_runner.protocol.events import (
    MessagesSnapshot,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    TextMessageContent,
    UserMessage,
    encode_event,
)
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Actor, StartRequest
from ambient_runner.runs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Started

__all__ = ["BridgeContract"]

_THREAD = "t"
_TOKEN = "quicksilver-4711"  # noqa: S105  not a credential: a word that occurs nowhere else
_VARYING = re.compile(
    rb',?"(?:timestamp":\d+|(?:messageId|parentMessageId|toolCallId|runId|entityId|subagentRunId|traceId)":"[^"]*")'
)


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
    hang_timeout: ClassVar[float] = 60.0
    """Seconds after which a test fails because something hangs."""

    def create_bridge(self) -> PlatformBridge:
        """Return a new bridge with a scripted agent. Called in the event loop of a test."""
        raise NotImplementedError("Override create_bridge: return your bridge with a scripted agent.")

    def test_capabilities_are_declared(self) -> None:
        async def check() -> None:
            assert isinstance(self.create_bridge().capabilities(), FrameworkCapabilities)

        self._run(check)

    def test_every_thread_has_its_own_adapter(self) -> None:
        async def check() -> None:
            bridge = self.create_bridge()
            adapters = [bridge.create_adapter(PlatformContext(session_id=thread)) for thread in ("a", "b")]
            assert adapters[0] is not adapters[1], "create_adapter must return a new object for each thread"
            await _close(*adapters, bridge)

        self._run(check)

    def test_the_events_of_a_run_are_legal(self) -> None:
        async def check() -> None:
            async with self._serve() as contract:
                events = await contract.run(self.text_prompt)
            verifier = Verifier()
            for event in events:
                verifier.check(event)
            verifier.finish()
            assert isinstance(events[-1], RunFinished), f"the run ended with {events[-1]}"
            assert _text(events), "the agent answered text_prompt without text"

        self._run(check)

    def test_closing_the_events_early_leaves_no_task(self) -> None:
        async def check() -> None:
            bridge = self.create_bridge()
            adapter = bridge.create_adapter(PlatformContext(session_id=_THREAD))
            run_input = RunAgentInput(
                thread_id=_THREAD, run_id="r", messages=[_user_message("u1", self.endless_prompt)]
            )
            before = asyncio.all_tasks()
            events = adapter.run(input_to_agui(run_input))
            if hasattr(events, "aclose"):
                async with aclosing(events):
                    coerce_event(await anext(events))
            else:
                coerce_event(next(events))
                events.close()
            left = asyncio.all_tasks() - before
            assert not left, f"closing the generator left {left}. Close the framework's stream in a finally."
            await _close(adapter, bridge)

        self._run(check)

    def test_a_stop_ends_the_run(self) -> None:
        async def check() -> None:
            async with self._serve() as contract:
                started = await contract.start(self.endless_prompt)
                await contract.wait_for_text(started)
                since = time.monotonic()
                await contract.stop()
                events = await contract.read(started)
                seconds = time.monotonic() - since
            assert isinstance(events[-1], RunFinished), f"the run ended with {events[-1]}"
            assert seconds < self.stop_timeout, f"the run ended {seconds:.1f} s after the stop"

        self._run(check)

    def test_a_crash_is_an_error_and_the_thread_goes_on(self) -> None:
        async def check() -> None:
            async with self._serve() as contract:
                crashed = await contract.run(self.crash_prompt)
                after = await contract.run(self.text_prompt)
            assert isinstance(crashed[-1], RunError), f"the run ended with {crashed[-1]}"
            assert isinstance(after[-1], RunFinished), f"the next run ended with {after[-1]}"

        self._run(check)

    def test_two_threads_run_at_the_same_time(self) -> None:
        async def check() -> None:
            async with self._serve() as contract:
                endless = await contract.start(self.endless_prompt, owner="alice")
                await contract.wait_for_text(endless)
                events = await contract.run(self.text_prompt, owner="bob")
                await contract.stop("alice")
                assert isinstance((await contract.read(endless))[-1], RunFinished)
            assert isinstance(events[-1], RunFinished), f"beside another run, the run ended with {events[-1]}"

        self._run(check)

    def test_a_stop_ends_only_its_own_thread(self) -> None:
        async def check() -> None:
            async with self._serve() as contract:
                runs = {owner: await contract.start(self.endless_prompt, owner=owner) for owner in ("alice", "bob")}
                for started in runs.values():
                    await contract.wait_for_text(started)
                await contract.stop("alice")
                await contract.read(runs["alice"])
                assert await contract.is_active("bob"), "stopping one thread ended the run of another"
                await contract.stop("bob")
                assert isinstance((await contract.read(runs["bob"]))[-1], RunFinished)

        self._run(check)

    def test_a_user_sees_nothing_of_another_user(self) -> None:
        """Two users with the same thread id: what one has done must not change what the other gets."""

        async def check() -> None:
            async with self._serve() as contract:
                alone = await contract.run(self.text_prompt, owner="bob")
            async with self._serve() as contract:
                await contract.run(self.text_prompt, owner="alice", state={"note": _TOKEN})
                await contract.run(f"{self.text_prompt} {_TOKEN}", owner="alice")
                after = await contract.run(self.text_prompt, owner="bob")
                histories = [
                    await contract.run(self.history_prompt, owner=owner) if self.history_prompt else []
                    for owner in ("alice", "bob")
                ]
            seen = _visible(after)
            assert _TOKEN.encode() not in seen, (
                "a run has the state or text of another user: two threads share an agent object"
            )
            assert seen == _visible(alone), (
                "a run depends on the runs of another user: two threads share an agent object"
            )
            if self.history_prompt:
                assert _TOKEN.encode() in _visible(histories[0]), "history_prompt is not answered with the conversation"
                assert _TOKEN.encode() not in _visible(histories[1]), "a thread has the history of another user"

        self._run(check)

    def _run(self, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(self.hang_timeout):
                await check()

        try:
            anyio.run(bounded)
        except BaseExceptionGroup as group:  # the Runner's task group wraps a failed assertion
            raise unwrap_group(group) from None

    @asynccontextmanager
    async def _serve(self) -> AsyncGenerator[_Server, None]:
        settings = Settings(store="memory://", history="server", timeouts=Timeouts(grace=self.grace))
        host = AgentHost("agent", self.create_bridge())
        async with MemoryLedger() as ledger, Runner(ledger, {"agent": host}, settings) as runner:
            yield _Server(runner)


class _Server:
    """Starts, reads and stops runs of the agent for different users."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._count = 0

    async def run(self, text: str, *, owner: str = "alice", state: Any = None) -> list[Event]:
        return await self.read(await self.start(text, owner=owner, state=state))

    async def start(self, text: str, *, owner: str = "alice", state: Any = None) -> Started:
        self._count += 1
        run_input = RunAgentInput(
            thread_id=_THREAD,
            run_id=f"r{self._count}",
            messages=[_user_message(f"u{self._count}", text)],
            state=state,
            protocol_version="1.0",
        )
        return await self._runner.start(StartRequest(agent="agent", actor=Actor(owner=owner), input=run_input))

    async def read(self, started: Started) -> list[Event]:
        return [event async for event in follow_run(self._runner.ledger, started)]

    async def wait_for_text(self, started: Started) -> None:
        async with aclosing(follow_run(self._runner.ledger, started)) as events:
            async for event in events:
                if isinstance(event, TextMessageContent):
                    return
        raise AssertionError(
            "the run ended by itself: endless_prompt must make the agent send text and go on until it is stopped"
        )

    async def stop(self, owner: str = "alice") -> None:
        await self._runner.stop(Actor(owner=owner).thread_key(_THREAD))

    async def is_active(self, owner: str) -> bool:
        info = await self._runner.ledger.get_thread(Actor(owner=owner).thread_key(_THREAD))
        return info is not None and bool(info.active)


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
