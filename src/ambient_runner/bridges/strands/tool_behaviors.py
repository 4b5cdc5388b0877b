"""Marks to events: here the user's hooks have their say. Whatever a hook does wrong is reported and the run goes on."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.config import ToolCallContext, ToolResultContext
from ambient_runner.bridges.strands.errors import EncodingFailed
from ambient_runner.bridges.strands.messages import result_content, result_data
from ambient_runner.bridges.strands.translate import Answered, Called, Shared
from ambient_runner.bridges.toolkit.callbacks import call_hook, hook_error, try_hook, try_stream
from ambient_runner.bridges.toolkit.json_values import json_or_text
from ambient_runner.errors import PatchConflict
from ambient_runner.projections.private_entries import is_kept
from ambient_runner.protocol.agui_models import Coercer
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

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event

__all__ = ["Behaviors"]

logger = logging.getLogger(__name__)


class Behaviors:
    """The hooks of one run. `stops` is set when a tool's result is to be the last word."""

    def __init__(
        self,
        config: StrandsAgentConfig,
        asked: RunAgentInput,
        composer: Composer,
        store: StateStore,
        snapshot: Event,
    ) -> None:
        self.stops = False
        self._config = config
        self._input = asked
        self._say = composer
        self._store = store
        self._snapshot = snapshot
        self._coerce = Coercer()

    async def expand(self, mark: Called | Answered | Shared) -> AsyncGenerator[Event, None]:
        """The events a mark stands for."""
        match mark:
            case Called():
                events = self._called(mark)
            case Answered():
                events = self._answered(mark)
            case Shared():
                events = self._shared(mark.changes)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _called(self, call: Called) -> AsyncGenerator[Event, None]:
        """The arguments as a hook gives them, the state they make, and the END."""
        behavior = self._config.behavior(call.name)
        context = ToolCallContext(input_data=self._input, **_call_fields(call))
        if behavior.args_streamer is not None:
            async with aclosing(self._arguments(behavior.args_streamer, context)) as events:
                async for event in events:
                    yield event
        if behavior.state_from_args is not None:
            for event in await self._state("state_from_args", behavior.state_from_args, context):
                yield event
        if call.ends:
            for event in self._say.tool_end(call.tool_use_id):
                yield event

    async def _arguments(self, streamer: Callable[..., Any], context: ToolCallContext) -> AsyncGenerator[Event, None]:
        """What the hook gives. When it fails, which is told in an event, the rest as the model wrote it."""
        async with aclosing(try_stream("args_streamer", streamer, context, tool=context.tool_name)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Custom):
                    events = [piece, *self._say.tool_args_full(context.tool_use_id, context.args_str)]
                else:
                    events = self._say.tool_args(context.tool_use_id, str(piece))
                for event in events:
                    yield event

    async def _answered(self, answer: Answered) -> AsyncGenerator[Event, None]:
        behavior = self._config.behavior(answer.name)
        result: Event | None = None
        for event in self._result(answer):
            yield event
            result = event
        assert isinstance(result, ToolCallResult)
        if not behavior.skip_messages_snapshot:
            yield self._snapshot
        context = ToolResultContext(
            input_data=self._input,
            **_call_fields(answer),
            result_data=result_data(answer.result),
            message_id=result.message_id,
        )
        if behavior.state_from_result is not None:
            for event in await self._state("state_from_result", behavior.state_from_result, context):
                yield event
        if behavior.custom_result_handler is not None:
            async with aclosing(self._custom(behavior.custom_result_handler, context)) as events:
                async for event in events:
                    yield event
        self.stops = self.stops or behavior.stop_streaming_after_result

    def _result(self, answer: Answered) -> list[Event]:
        return self._say.tool_result(
            answer.tool_use_id,
            result_content(answer.result),
            name=answer.name,
            args=answer.arguments,
            lane=answer.lane,
            is_error=answer.result.get("status") == "error",
        )

    async def _shared(self, changes: Any) -> AsyncGenerator[Event, None]:
        for event in self._store.merge(changes):
            yield event

    async def _state(self, hook: str, make: Callable[..., Any], context: ToolCallContext) -> list[Event]:
        """The state after the keys a hook gives. A failing hook changes nothing."""

        async def merged() -> list[Event]:
            changes = await call_hook(make, context)
            return self._store.merge(changes) if changes else []

        events, troubles = await try_hook(hook, merged, tool=context.tool_name)
        return events or troubles

    async def _custom(self, handler: Callable[..., Any], context: ToolResultContext) -> AsyncGenerator[Event, None]:
        async with aclosing(try_stream("custom_result_handler", handler, context, tool=context.tool_name)) as given:
            async for one in given:
                taken = self._taken(one)
                for event in [hook_error("custom_result_handler", context.tool_name)] if taken is None else taken:
                    yield event

    def _taken(self, given: Any) -> list[Event] | None:
        """A handler's event, with its changes of state told as changes of the whole; None for what is no event or not its to send.

        Raises: EncodingFailed.
        """
        try:
            event = self._coerce(given)
            match event:
                case StateSnapshot(snapshot=dict() as changes):  # pyright: ignore[reportUnknownVariableType]
                    return self._store.merge(changes)  # pyright: ignore[reportUnknownArgumentType]
                case StateDelta(delta=patch):
                    return self._store.apply(patch)
                case RunStarted() | RunFinished() | RunError():
                    return None
                case _:
                    return None if is_kept(event) else [_encodable(event)]
        except (TypeError, ValueError, PatchConflict):
            logger.exception("A custom_result_handler gave something that cannot be sent")
            return None


def _call_fields(call: Called | Answered) -> dict[str, Any]:
    return {
        "tool_name": call.name,
        "tool_use_id": call.tool_use_id,
        "tool_input": json_or_text(call.arguments) if call.arguments else {},
        "args_str": call.arguments,
    }


def _encodable(event: Event) -> Event:
    """The event, if it can be sent. Raises: EncodingFailed."""
    try:
        encode_event(event)
    except (TypeError, ValueError) as error:
        raise EncodingFailed from error
    return event
