"""Events of an adapter that runs without a server: models of `ag_ui.core`, which EventEncoder and other AG-UI apps expect.

In a server an adapter yields our own structs, which cost a fraction of the models.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.projections.private_entries import parse_correction
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.agui_models import EventCoercer, input_from_agui, to_agui
from ambient_runner.protocol.events import Custom, MessagesSnapshot, RunFinished
from ambient_runner.protocol.reserved_events import PlatformEvent, has_reserved_name
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import ag_ui.core

__all__ = ["events_for_caller"]


def events_for_caller(
    events: AsyncGenerator[Any, None], agui_input: ag_ui.core.RunAgentInput
) -> AsyncGenerator[Any, None]:
    """Return the events of an adapter unchanged in a server; without one, as models of `ag_ui.core`.

    The snapshot marker, which only a server understands, becomes a MESSAGES_SNAPSHOT with the messages so far, and so does a correction of
    the history, at the end of the run. An event of the agent with a reserved name is left out.
    """
    return events if current_run_or_none() is not None else _stream_models(events, agui_input)


async def _stream_models(
    events: AsyncGenerator[Any, None], agui_input: ag_ui.core.RunAgentInput
) -> AsyncGenerator[ag_ui.core.BaseEvent, None]:
    transcript, coerce = Transcript(input_from_agui(agui_input).messages), EventCoercer()
    is_corrected = False
    async with aclosing(events):
        async for value in events:
            if value is SNAPSHOT_MARKER:
                yield to_agui(MessagesSnapshot(messages=transcript.messages()))
                continue
            event = coerce(value)
            if has_reserved_name(event) and not isinstance(value, PlatformEvent):
                continue
            correction = parse_correction(event) if isinstance(event, Custom) else None
            if correction is not None:
                transcript.apply_correction(correction.messages, correction.gone)
                is_corrected = True
                continue
            transcript.apply(event)
            if is_corrected and isinstance(event, RunFinished):
                yield to_agui(MessagesSnapshot(messages=transcript.messages()))
            yield to_agui(event)
