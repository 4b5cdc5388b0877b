"""One thread of a graph: an adapter. It gives the graph what is new, and keeps where it stands. `telling.py` says what each run says."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.langgraph.errors import failure
from ambient_runner.bridges.langgraph.memory import Memory
from ambient_runner.bridges.langgraph.run import Telling
from ambient_runner.bridges.langgraph.run_input import open_run
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.errors import BridgeError
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.runs.run import run_if_any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.langgraph.config import LangGraphConfig
    from ambient_runner.bridges.langgraph.graph import Graph, Shape
    from ambient_runner.bridges.langgraph.run_input import Opening
    from ambient_runner.protocol.events import Event

__all__ = ["Conversation"]

logger = logging.getLogger(__name__)


class Conversation:
    """The adapter of one thread. `make` gives its graph, once; `platform` is what the platform asks for."""

    def __init__(
        self, make: Callable[[], Awaitable[Graph]], config: LangGraphConfig, platform: Mapping[str, Any]
    ) -> None:
        self._make = make
        self._config = config
        self._platform = platform
        self._graph: Graph | None = None
        self._memory: Memory | None = None

    async def run(self, input: AguiInput) -> AsyncGenerator[Event, None]:  # noqa: A002  the ADR's name
        """The events of one run, with a RUN_FINISHED at the end and no other frame. Raises: BridgeError."""
        graph, shape = await self._ready()
        telling = Telling(input_from_agui(input), self._config, shape, self._remembered())
        try:
            opening = await open_run(graph, telling.ask(graph, self._platform))
            for event in telling.open(opening):
                yield event
            context = await self._context(input, telling) if shape.has_context else None
            async with aclosing(_played(graph, telling, opening, context)) as events:
                async for event in events:
                    yield event
            for event in telling.end(keeps=graph.keeps):
                yield event
        except Exception as error:
            known = failure(error)
            for event in await telling.fail(known, graph):
                yield event
            if known is error:
                raise
            raise known from error
        finally:
            self._memory = telling.memory

    async def aclose(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None:
            await graph.aclose()

    def _remembered(self) -> Memory | None:
        """What the run before left: on a server the thread has it, also after a restart."""
        run = run_if_any()
        return self._memory if run is None else Memory.of(run.memory)

    async def _ready(self) -> tuple[Graph, Shape]:
        """The graph, made for the first run. Raises: BridgeError."""
        try:
            graph = self._graph = self._graph or await self._make()
            return graph, await graph.shape()
        except BridgeError:
            raise
        except Exception as error:
            raise failure(error) from error

    async def _context(self, posted: AguiInput, telling: Telling) -> dict[str, Any]:
        """The run's context: what the client may set, and what the hook gives."""
        hook = self._config.context
        made: dict[str, Any] = await call_hook(hook, posted) if hook else {}
        return {**telling.client_context(), **made}


async def _played(graph: Graph, telling: Telling, opening: Opening, context: Any) -> AsyncGenerator[Event, None]:
    """The events of all that the graph is given, one after the other."""
    inputs = deque(opening.inputs)
    while inputs and not telling.waits:
        try:
            given = telling.giving(inputs.popleft())
            async with graph.stream(given, telling.settings(opening), context) as natives:
                async for native in natives:
                    if (piece := telling.piece(native)) is not None:
                        yield piece  # Nearly all of a stream, so it gets here by the shortest way.
                        continue
                    for event in telling.feed(native):
                        yield event
        except Exception as error:
            instead = telling.instead(failure(error))
            if instead is None:
                raise
            logger.warning("The graph failed on a question that was cancelled. It is given up.", exc_info=error)
            inputs = deque(instead)
        else:
            opening.configurable.pop("checkpoint_id", None)  # From here on the graph has newer ones.
