"""A user's hooks around an ADK run. They are stages of the one pipeline every run goes through, not a second one beside it.

Those that deal with ADK's own events stand inside the adapter (`stages.py`); those that see AG-UI events are middleware (`watched`). A
handler is a class, made anew for each run, or an object; a method may be plain, async, a generator or an async generator.
"""

from __future__ import annotations

import inspect
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.callbacks import call_hook, hook_error, stream_hook
from ambient_runner.errors import RunnerError
from ambient_runner.projections.private_entries import is_kept
from ambient_runner.protocol.agui_models import coerce, input_to_agui, to_agui
from ambient_runner.protocol.events import MessagesSnapshot, RunError
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ag_ui.core import RunAgentInput

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Middleware, Run, RunHandler

__all__ = [
    "HandlerContext",
    "InputInfo",
    "TranslateEvent",
    "Visit",
    "info_of",
    "made",
    "record_input",
    "recorded",
    "visiting",
    "watched",
]


@dataclass(kw_only=True)
class HandlerContext:
    """The hooks of a run, in the order they are met. Each is a class with these methods, or an object that has them.

    - `session_lock_handler`: `lock(info) -> bool`, `unlock(info)`, `get_locked_message(info)`; asked before our own lock, once per server.
    - `in_out_record_handler`: `input_record(info)`, `output_record(event)`, `output_catch_and_change(event) -> event`.
    - `adk_event_handler`: `process(event)` gives the ADK events to go on with.
    - `adk_event_timeout_handler`: `get_timeout()` for the run, optionally `get_event_timeout()` for each event, in seconds;
      `process_timeout_fallback()` gives the ADK events to go on with when time is up.
    - `translate_handler`: `translate(event)` gives TranslateEvents, before the default translation.
    - `agui_event_handler`: `process(event)` gives the AG-UI events to go on with.
    - `agui_state_snapshot_handler`: `process(state) -> state | None`, once at the end.
    """

    session_lock_handler: Any = None
    in_out_record_handler: Any = None
    adk_event_handler: Any = None
    adk_event_timeout_handler: Any = None
    translate_handler: Any = None
    agui_event_handler: Any = None
    agui_state_snapshot_handler: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateEvent:
    """What a translate handler says about an ADK event.

    `agui_event` is sent. `is_retune` ends here: the default translation is left out. `is_replace` lets it go on with `adk_event`.
    """

    agui_event: Any = None
    adk_event: Any = None
    is_retune: bool = False
    is_replace: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class InputInfo:
    """A request as hooks see it. `request` is the HTTP request, where there is one."""

    agui_content: RunAgentInput
    app_name: str
    user_id: str
    session_id: str
    initial_state: Any = None
    request: Any = None


@dataclass(kw_only=True, slots=True)
class Visit:
    """What a door has already done for the run it is about to start."""

    info: InputInfo
    recorder: Any = None


visiting: ContextVar[Visit | None] = ContextVar("ambient_adk_visit", default=None)
"""Set by a door around the start of a run, and seen in the run's task."""


def made(handler: Any) -> Any:
    """The handler for one run: a class is instantiated, anything else is used as it is."""
    return handler() if inspect.isclass(handler) else handler


def watched(context: HandlerContext, info: Callable[[Run], InputInfo]) -> list[Middleware]:
    """The hooks that see AG-UI events, as middleware: the event handler, then the recorder, for every event of a run."""
    if context.agui_event_handler is None and context.in_out_record_handler is None:
        return []

    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            visit = visiting.get()
            recorder = visit.recorder if visit else await _recorder(context, info(run))
            process = made(context.agui_event_handler)
            async with aclosing(_ended(handler(run))) as events:
                async for event in events:
                    for answer in await _processed(process, event):
                        yield await recorded(recorder, answer)

        return handle

    return [wrap]


async def _ended(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """The events of a run, a failure included: hooks may want to say it in their own words. It is raised all the same, for the log."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event
        except RunnerError as error:
            yield RunError(message=error.message, code=error.code)
            raise


def _is_private(event: Event) -> bool:
    """What is no word of the agent: its memory, and the place where a snapshot is folded when it is read."""
    return isinstance(event, MessagesSnapshot) or is_kept(event)


async def _recorder(context: HandlerContext, info: InputInfo) -> Any:
    """A recorder for a run that came through no door of its own."""
    recorder = made(context.in_out_record_handler)
    await record_input(recorder, info)
    return recorder


async def record_input(recorder: Any, info: InputInfo) -> None:
    """Let the recorder see a request."""
    if recorder is not None:
        with isolate("running the hook in_out_record_handler"):
            await call_hook(recorder.input_record, info)


async def _processed(handler: Any, event: Event) -> list[Event]:
    """What the handler makes of an event. One that fails is reported, and the event goes on as it was."""
    if handler is None or _is_private(event):
        return [event]
    with isolate("running the hook agui_event_handler"):
        answers = stream_hook(handler.process, to_agui(event))
        return [coerce(answer) async for answer in answers if answer is not None]
    return [event, hook_error("agui_event_handler")]


async def recorded(recorder: Any, event: Event) -> Event:
    """The event as the recorder leaves it. One that fails changes nothing."""
    if recorder is None or _is_private(event):
        return event
    with isolate("running the hook in_out_record_handler"):
        model = to_agui(event)
        await call_hook(recorder.output_record, model)
        changed = await call_hook(recorder.output_catch_and_change, model)
        return event if changed is None or changed is model else coerce(changed)
    return event


def info_of(run: Run, app_name: str) -> InputInfo:
    """What hooks are told of a run that came through no door of theirs."""
    return InputInfo(
        agui_content=input_to_agui(run.input),
        app_name=app_name,
        user_id=run.actor.owner,
        session_id=run.thread.id,
        initial_state=run.input.state,
    )
