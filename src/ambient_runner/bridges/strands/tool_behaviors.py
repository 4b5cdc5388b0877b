"""ToolBehaviors: calls the user's hooks and expands markers into events. A failing hook is reported; the run continues."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.config import ToolCallContext, ToolResultContext, ToolStreamEventContext
from ambient_runner.bridges.strands.errors import EncodingFailed
from ambient_runner.bridges.strands.messages import result_content, result_data
from ambient_runner.bridges.strands.translate import StateChange, ToolCallReady, ToolResultReady, ToolStreamValue
from ambient_runner.bridges.toolkit.callbacks import call_hook, hook_error, try_hook, try_stream
from ambient_runner.bridges.toolkit.json_values import parse_json_or_text
from ambient_runner.errors import PatchConflict
from ambient_runner.protocol.agui_models import EventCoercer
from ambient_runner.protocol.events import (
    Custom,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    ToolCallResult,
    encode_event,
)
from ambient_runner.protocol.reserved_events import PlatformEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.strands.translate import Marker
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event

__all__ = ["ToolBehaviors"]

logger = logging.getLogger(__name__)


class ToolBehaviors:
    """Hooks of one run. `has_final_result` is True after a result with which the run ends."""

    def __init__(
        self,
        config: StrandsAgentConfig,
        run_input: RunAgentInput,
        composer: Composer,
        state: StateStore,
        snapshot_marker: Event,
    ) -> None:
        self.has_final_result = False
        self._config = config
        self._run_input = run_input
        self._composer = composer
        self._state = state
        self._snapshot_marker = snapshot_marker
        self._coerce = EventCoercer()

    async def expand_marker(self, marker: Marker) -> AsyncGenerator[Event, None]:
        """Yield the events of a marker."""
        match marker:
            case ToolCallReady():
                events = self._expand_call(marker)
            case ToolResultReady():
                events = self._expand_result(marker)
            case StateChange():
                events = self._expand_state_change(marker.changes)
            case ToolStreamValue():
                events = self._expand_stream_value(marker)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _expand_call(self, call: ToolCallReady) -> AsyncGenerator[Event, None]:
        """Yield the arguments from the hook, the state derived from them, and TOOL_CALL_END."""
        behavior = self._config.behavior(call.name)
        context = ToolCallContext(input_data=self._run_input, **_call_fields(call))
        if behavior.args_streamer is not None:
            async with aclosing(self._stream_arguments(behavior.args_streamer, context)) as events:
                async for event in events:
                    yield event
        if behavior.state_from_args is not None:
            for event in await self._call_state_hook("state_from_args", behavior.state_from_args, context):
                yield event
        if call.ends:
            for event in self._composer.tool_end(call.tool_use_id):
                yield event

    async def _stream_arguments(
        self, streamer: Callable[..., Any], context: ToolCallContext
    ) -> AsyncGenerator[Event, None]:
        """Yield the arguments from the hook. If it fails, yield the error event and the rest of the model's own arguments."""
        async with aclosing(try_stream("args_streamer", streamer, context, tool=context.tool_name)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Custom):
                    events = [delta, *self._composer.tool_args_full(context.tool_use_id, context.args_str)]
                else:
                    events = self._composer.tool_args(context.tool_use_id, str(delta))
                for event in events:
                    yield event

    async def _expand_result(self, ready: ToolResultReady) -> AsyncGenerator[Event, None]:
        behavior = self._config.behavior(ready.name)
        result: Event | None = None
        for event in self._result_events(ready):
            yield event
            result = event
        assert isinstance(result, ToolCallResult)
        if self._config.emit_messages_snapshot and not behavior.skip_messages_snapshot:
            yield self._snapshot_marker
        context = ToolResultContext(
            input_data=self._run_input,
            **_call_fields(ready),
            result_data=result_data(ready.result),
            message_id=result.message_id,
        )
        if behavior.state_from_result is not None:
            for event in await self._call_state_hook("state_from_result", behavior.state_from_result, context):
                yield event
        if behavior.custom_result_handler is not None:
            handler = behavior.custom_result_handler
            async with aclosing(self._run_event_hook("custom_result_handler", handler, context, ready.name)) as events:
                async for event in events:
                    yield event
        self.has_final_result = self.has_final_result or behavior.stop_streaming_after_result

    def _result_events(self, ready: ToolResultReady) -> list[Event]:
        return self._composer.tool_result(
            ready.tool_use_id,
            result_content(ready.result),
            name=ready.name,
            args=ready.arguments,
            subagent_id=ready.subagent_id,
            is_error=ready.result.get("status") == "error",
        )

    async def _expand_state_change(self, changes: Any) -> AsyncGenerator[Event, None]:
        for event in self._state.update_with_snapshot(changes):
            yield event

    async def _expand_stream_value(self, streamed: ToolStreamValue) -> AsyncGenerator[Event, None]:
        handler = self._config.behavior(streamed.name).tool_stream_event_handler
        assert handler is not None
        context = ToolStreamEventContext(streamed.tool_use_id, streamed.name, streamed.value)
        async with aclosing(
            self._run_event_hook("tool_stream_event_handler", handler, context, streamed.name)
        ) as events:
            async for event in events:
                yield event

    async def _call_state_hook(self, name: str, hook: Callable[..., Any], context: ToolCallContext) -> list[Event]:
        """Set the keys a hook returns and return the state event. A failing hook changes nothing."""

        async def merge_changes() -> list[Event]:
            changes = await call_hook(hook, context)
            return self._state.update_with_snapshot(changes) if changes else []

        events, hook_errors = await try_hook(name, merge_changes, tool=context.tool_name)
        return events or hook_errors

    async def _run_event_hook(
        self, name: str, hook: Callable[..., Any], context: Any, tool: str
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a hook. One that cannot be sent is reported."""
        async with aclosing(try_stream(name, hook, context, tool=tool)) as items:
            async for item in items:
                if isinstance(item, PlatformEvent):  # The hook has failed; its own events are not of this type.
                    yield item
                    continue
                accepted = self._accept_event(item, name)
                for event in [hook_error(name, tool)] if accepted is None else accepted:
                    yield event

    def _accept_event(self, value: Any, hook: str) -> list[Event] | None:
        """Return a hook's event, with state changes merged into the whole state; None for an invalid one.

        Raises: EncodingFailed.
        """
        try:
            event = self._coerce(value)
            match event:
                case StateSnapshot(snapshot=dict() as changes):  # pyright: ignore[reportUnknownVariableType]
                    return self._state.update_with_snapshot(changes)  # pyright: ignore[reportUnknownArgumentType]
                case StateDelta(delta=patch):
                    return self._state.apply_patch(patch)
                case RunStarted() | RunFinished() | RunError():
                    return None
                case _:
                    return [_require_encodable(event)]
        except (TypeError, ValueError, PatchConflict):
            logger.exception(
                "Run %s on thread %s: ignored an event of a %s, because it cannot be sent.",
                self._run_input.run_id,
                self._run_input.thread_id,
                hook,
            )
            return None


def _call_fields(call: ToolCallReady | ToolResultReady) -> dict[str, Any]:
    return {
        "tool_name": call.name,
        "tool_use_id": call.tool_use_id,
        "tool_input": parse_json_or_text(call.arguments) if call.arguments else {},
        "args_str": call.arguments,
    }


def _require_encodable(event: Event) -> Event:
    """Return the event. Raises: EncodingFailed when it cannot be encoded."""
    try:
        encode_event(event)
    except (TypeError, ValueError) as error:
        raise EncodingFailed from error
    return event
