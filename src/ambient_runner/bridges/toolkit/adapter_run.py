"""The skeleton that every framework adapter's `run` shares: begin, stream, finish; on failure map the error, close and raise.

A bridge writes an `AdapterRun`; the `run` of its adapter returns `stream_run(self._begin_run, input)`.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from ambient_runner.bridges.toolkit.agui_events import events_for_caller
from ambient_runner.protocol.events import RunFinished

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.errors import RunnerError
    from ambient_runner.protocol.events import Event

__all__ = ["AdapterRun", "stream_run"]


class AdapterRun(Protocol):
    """One run of a framework. Creating it parses the input and finds the memory of the previous run."""

    def events(self) -> AsyncGenerator[Event, None]:
        """Run the framework and yield its translated events. It is closed early if the run is stopped."""
        ...

    async def finish(self) -> Sequence[Event]:
        """Return the last events: what closes open messages, the final state, the memory, and the terminal event."""
        ...

    def map_error(self, error: Exception) -> RunnerError:
        """Return one of our errors for an exception of the framework; one of ours is returned unchanged."""
        ...

    async def fail(self, error: RunnerError) -> Sequence[Event]:
        """Return the last events before a failure. If RUN_FINISHED is the last one, the run ends with it instead of the error."""
        ...

    async def close(self) -> None:
        """Release what the run holds. Called once, however the run ends."""
        ...


def stream_run(begin: Callable[[AguiInput], Awaitable[AdapterRun]], agui_input: AguiInput) -> AsyncGenerator[Any, None]:
    """Return the events of one run, with its terminal event: without a server, models of `ag_ui.core`.

    Raises: RunnerError, mapped by the run, after everything open is closed.
    """
    return events_for_caller(_stream_events(begin, agui_input), agui_input)


async def _stream_events(
    begin: Callable[[AguiInput], Awaitable[AdapterRun]], agui_input: AguiInput
) -> AsyncGenerator[Event, None]:
    run = await begin(agui_input)
    try:
        async with aclosing(run.events()) as events:
            async for event in events:
                yield event
        for event in await run.finish():
            yield event
    except Exception as error:
        known = run.map_error(error)
        last_events = await run.fail(known)
        for event in last_events:
            yield event
        if last_events and isinstance(last_events[-1], RunFinished):
            return
        if known is error:
            raise
        raise known from error
    finally:
        await run.close()
