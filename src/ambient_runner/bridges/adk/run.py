"""One run in the making: its translator, its runner, what it says while it goes on and how it ends."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.adk.instrumentation import PAUSED, RunPlugin
from ambient_runner.bridges.adk.interrupts import call_question, interrupt_of
from ambient_runner.bridges.adk.sessions import Sessions, paused_invocation
from ambient_runner.bridges.adk.translate import Translator
from ambient_runner.bridges.toolkit.turns import calls_of
from ambient_runner.errors import BridgeError
from ambient_runner.protocol.events import (
    Cancelled,
    Interrupted,
    RunError,
    RunFinished,
    StateSnapshot,
    Success,
    ToolMessage,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

    from google.adk.events import Event as AdkEvent
    from google.genai import types

    from ambient_runner.bridges.adk.bridge import ADKBridge
    from ambient_runner.bridges.adk.event_hooks import Stages
    from ambient_runner.bridges.adk.run_input import Job
    from ambient_runner.bridges.adk.sessions import Place
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event, Interrupt, RunAgentInput, Terminal

__all__ = ["AdkRun"]


class AdkRun:
    """Made for one run, with everything that lasts as long as it does."""

    def __init__(
        self, bridge: ADKBridge, posted: RunAgentInput, state: StateStore, place: Place, instructions: list[str]
    ) -> None:
        self.state = state
        self.translator = Translator(
            bridge.root.name, state, structured=bridge.structured, known=_unanswered_calls(posted)
        )
        plugin = RunPlugin(
            posted.tools,
            self.translator.is_halted,
            place.session,
            agents=bridge.client_tools_for,
            instructions=instructions,
        )
        self._plugin = plugin
        self._runner = bridge.runner(place, plugin)
        self._run_config = bridge.config.runs()
        self._posted = posted
        self._place = place
        self.sessions = Sessions(self._runner, place, bridge.root.name, keeps_cuts=not bridge.owns_sessions)

    async def events(self, job: Job, stages: Stages, abort: asyncio.Event) -> AsyncGenerator[Event, None]:
        """Run ADK and translate what it says, until it ends or has to wait for someone."""
        self._plugin.instruct(job.instructions)
        self._plugin.reserve(job.known_calls)
        feed = self.translator.feed
        for message in job.messages:
            async with aclosing(stages.adk_events(self._start(message, job, abort))) as events:
                async for event in events:
                    if _is_paused(event):
                        if event.branch is None:
                            return
                        continue
                    for said in feed(event) if stages.is_plain else await stages.translated(event, feed):
                        yield said

    def _start(self, message: types.Content, job: Job, abort: asyncio.Event) -> AsyncGenerator[AdkEvent, None]:
        context = [*(self._run_config.model_input_context or []), *job.context]
        return self._runner.run_async(
            user_id=self._place.user,
            session_id=self._place.session,
            new_message=message,
            state_delta=(job.state_delta or None) if message is job.messages[0] else None,
            run_config=self._run_config.model_copy(update={"model_input_context": context or None}),
            abort_signal=abort,
        )

    def ending(self, job: Job) -> Terminal:
        """How the run ends, as the translator and what is left open say."""
        said, usage = self.translator, self.translator.usage.tokens
        if said.aborted:
            return self._finished(outcome=Cancelled(), usage=usage)
        if said.failure is not None:
            return RunError(message=_calm(said.failure), code=_code(said.failure), usage=usage)
        interrupts = self._interrupts()
        if interrupts:
            return self._finished(outcome=Interrupted(interrupts=interrupts), usage=usage)
        open_calls = [*job.still_open, *said.pending]
        return self._finished(
            outcome=Success(pending_tool_call_ids=open_calls or None), usage=usage, result=said.result
        )

    async def last_state(self, stages: Stages) -> list[Event]:
        """The whole state at the end, when it has changed or a handler wants to say something about it."""
        if not (self.translator.state_changed or stages.has_state_handler):
            return self.state.closing()
        snapshot = await stages.state(self.state.snapshot().snapshot)
        return [*stages.troubles(), *([] if snapshot is None else [StateSnapshot(snapshot=snapshot)])]

    async def memory(self, job: Job) -> dict[str, Any] | None:
        session = await self.sessions.get()
        if session is None or not session.events:
            return None
        paused = paused_invocation(session, job.since)
        kept: dict[str, Any] = {"last": session.events[-1].id, "since": job.since}
        return kept if paused is None else {**kept, "paused": {"since": paused.since, "events": paused.events}}

    def _interrupts(self) -> list[Interrupt]:
        questions = [interrupt_of(one.call, one.lane) for one in self.translator.questions.values()]
        if not questions:
            return []
        return [*questions, *(call_question(one.call, one.lane) for one in self.translator.pending.values())]

    def _finished(self, **said: Any) -> RunFinished:
        return RunFinished(thread_id=self._posted.thread_id, run_id=self._posted.run_id, **said)


def _unanswered_calls(posted: RunAgentInput) -> set[str]:
    """Calls of earlier runs whose results may come now. One that has its result is over, whoever uses its id again."""
    answered = {message.tool_call_id for message in posted.messages if isinstance(message, ToolMessage)}
    return {call.id for call in calls_of(posted.messages)} - answered


def _is_paused(event: AdkEvent) -> bool:
    return event.custom_metadata is not None and PAUSED in event.custom_metadata


def _code(code: str) -> str:
    """A model's own code where it is one, such as SAFETY."""
    return code if code.isascii() and code.replace("_", "").isupper() else BridgeError.code


def _calm(code: str) -> str:
    known = _code(code)
    return f"The model ended its answer ({known})." if known == code else BridgeError().message
