"""Hooks of the user around an ADK run.

Hooks on ADK's own events run inside the adapter (`event_hooks.py`); hooks on AG-UI events are middleware (`hook_middleware`). A handler is
a class, instantiated for each run, or an object; a method may be plain, async, a generator or an async generator.
"""

from __future__ import annotations

import inspect
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.callbacks import call_hook, hook_error, instantiate_with, stream_hook
from ambient_runner.errors import RunnerError
from ambient_runner.projections.private_entries import is_private
from ambient_runner.protocol.agui_models import coerce_event, input_to_agui, to_agui
from ambient_runner.protocol.events import MessagesSnapshot, RunError
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.adk.config import SessionLockConfig
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.events import RunAgentInput as RunInput
    from ambient_runner.runs.run import Middleware, Run, RunHandler

__all__ = [
    "HandlerContext",
    "HookRequest",
    "InputInfo",
    "TranslateEvent",
    "build_input_info",
    "current_hook_request",
    "hook_middleware",
    "input_info",
    "instantiate_handler",
    "instantiate_lock_handler",
    "record_input",
    "record_output",
]


@dataclass(kw_only=True)
class HandlerContext:
    """Hooks of a run, in the order of their calls. Each is a class with these methods, or an object that has them.

    A class whose constructor takes an argument gets the `InputInfo` of the run; that of a lock handler gets the `SessionLockConfig`.

    - `session_lock_handler`: `lock(info) -> bool`, `unlock(info)`, `get_locked_message(info)`; called before our own lock. One instance
      per server.
    - `in_out_record_handler`: `input_record(info)`, `output_record(event)`, `output_catch_and_change(event) -> event`.
    - `adk_event_handler`: `process(event)` returns the ADK events to continue with.
    - `adk_event_timeout_handler`: `get_timeout()` for the run, optionally `get_event_timeout()` for each event, in seconds;
      `process_timeout_fallback()` returns the ADK events to continue with after a timeout.
    - `translate_handler`: `translate(event)` returns TranslateEvents, before the default translation.
    - `agui_event_handler`: `process(event)` returns the AG-UI events to continue with.
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
    """Result of a translate handler for one ADK event.

    `agui_event` is sent. `is_retune` skips the default translation. `is_replace` translates `adk_event` instead.
    """

    agui_event: Any = None
    adk_event: Any = None
    is_retune: bool = False
    is_replace: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class InputInfo:
    """A request for hooks. `request` is the HTTP request, if there is one."""

    agui_content: RunAgentInput
    app_name: str
    user_id: str
    session_id: str
    initial_state: Any = None
    request: Any = None


@dataclass(kw_only=True, slots=True)
class HookRequest:
    """Hook data that a route has prepared for the run it starts."""

    info: InputInfo
    recorder: Any = None


current_hook_request: ContextVar[HookRequest | None] = ContextVar("ambient_adk_hook_request", default=None)
"""Set by a route while it starts a run; the run's task inherits it."""


def instantiate_handler(handler: Any, info: InputInfo) -> Any:
    """Return the handler for one run: an instance if it is a class, otherwise the object itself.

    The constructor gets the request if it takes one (`__init__(self, input_info)`).
    """
    return instantiate_with(handler, "input_info", info) if inspect.isclass(handler) else handler


def instantiate_lock_handler(handler: Any, config: SessionLockConfig) -> Any:
    """Return the lock handler of a service. The constructor of a class gets the configuration if it takes one (`lock_config`)."""
    return instantiate_with(handler, "lock_config", config) if inspect.isclass(handler) else handler


def hook_middleware(context: HandlerContext, create_info: Callable[[Run], InputInfo]) -> list[Middleware]:
    """Return the hooks on AG-UI events as middleware. Each event of a run passes the event handler, then the recorder."""
    if context.agui_event_handler is None and context.in_out_record_handler is None:
        return []

    def wrap_handler(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            request = current_hook_request.get()
            info = request.info if request else create_info(run)
            recorder = request.recorder if request else await _create_recorder(context, info)
            event_handler = instantiate_handler(context.agui_event_handler, info)
            async with aclosing(_with_failure_event(handler(run))) as events:
                async for event in events:
                    for answer in await _process_event(event_handler, event):
                        yield await record_output(recorder, answer)

        return handle

    return [wrap_handler]


async def _with_failure_event(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yield the events of a run, and a failure as RUN_ERROR, so that hooks can change it. The failure is raised again for the log."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event
        except RunnerError as error:
            yield RunError(message=error.message, code=error.code)
            raise


def _is_private(event: Event) -> bool:
    """Return True if hooks must not see the event: the agent's memory, and the marker of a messages snapshot."""
    return isinstance(event, MessagesSnapshot) or is_private(event)


async def _create_recorder(context: HandlerContext, info: InputInfo) -> Any:
    """Return a recorder for a run that no ADK route has started."""
    recorder = instantiate_handler(context.in_out_record_handler, info)
    await record_input(recorder, info)
    return recorder


async def record_input(recorder: Any, info: InputInfo) -> None:
    """Pass a request to the recorder."""
    if recorder is not None:
        with isolate("running the hook in_out_record_handler"):
            await call_hook(recorder.input_record, info)


async def _process_event(handler: Any, event: Event) -> list[Event]:
    """Return the events the handler makes of an event. If it fails, return the event and an `ambient:hook_error`."""
    if handler is None or _is_private(event):
        return [event]
    with isolate("running the hook agui_event_handler"):
        answers = stream_hook(handler.process, to_agui(event))
        return [coerce_event(answer) async for answer in answers if answer is not None]
    return [event, hook_error("agui_event_handler")]


async def record_output(recorder: Any, event: Event) -> Event:
    """Return the event as the recorder changes it; unchanged if the recorder fails."""
    if recorder is None or _is_private(event):
        return event
    with isolate("running the hook in_out_record_handler"):
        model = to_agui(event)
        await call_hook(recorder.output_record, model)
        changed = await call_hook(recorder.output_catch_and_change, model)
        return event if changed is None or changed is model else coerce_event(changed)
    return event


def input_info(run: Run, app_name: str) -> InputInfo:
    """Return the input info of a run that no ADK route has started."""
    return build_input_info(run.input, app_name, run.actor.owner, run.thread.id)


def build_input_info(run_input: RunInput, app_name: str, user_id: str, session_id: str) -> InputInfo:
    """Return the input info of a run without an HTTP request."""
    return InputInfo(
        agui_content=input_to_agui(run_input),
        app_name=app_name,
        user_id=user_id,
        session_id=session_id,
        initial_state=run_input.state,
    )
