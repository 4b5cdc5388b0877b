"""LangGraphAdapter: runs of one thread of a graph. `run.py` is one run.

It creates the graph once and keeps the memory between runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.langgraph.errors import to_bridge_error
from ambient_runner.bridges.langgraph.graph import qualified_thread_id
from ambient_runner.bridges.langgraph.memory import GraphMemory
from ambient_runner.bridges.langgraph.run import LangGraphRun
from ambient_runner.bridges.langgraph.run_input import RunContext
from ambient_runner.bridges.langgraph.tool_call_ids import ToolCallIds
from ambient_runner.bridges.toolkit.adapter_run import stream_run
from ambient_runner.bridges.toolkit.run_input import read_run_input
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox, callable_tools
from ambient_runner.errors import RunnerError
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.langgraph.config import LangGraphConfig
    from ambient_runner.bridges.langgraph.graph import Graph, StateSchema

__all__ = ["LangGraphAdapter"]


class LangGraphAdapter:
    """Runs of one thread. `create_graph` is called once, for the first run; `platform` holds the platform's settings."""

    def __init__(
        self, create_graph: Callable[[], Awaitable[Graph]], config: LangGraphConfig, platform: Mapping[str, Any]
    ) -> None:
        self._create_graph = create_graph
        self._config = config
        self._platform = platform
        self._graph: Graph | None = None
        self._memory: GraphMemory | None = None
        self._reported_tools: set[str] = set()

    def run(self, input: AguiInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        """Return the events of one run, with its terminal event but without RUN_STARTED. Raises: RunnerError."""
        return stream_run(self._begin_run, input)

    async def aclose(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None:
            await graph.aclose()

    async def _begin_run(self, agui_input: AguiInput) -> LangGraphRun:
        """Parse the input and find the memory of the thread. Raises: RunnerError."""
        graph, schema = await self._prepare_graph()
        run_input, run = await read_run_input(agui_input), current_run_or_none()
        memory = self._memory if run is None else GraphMemory.from_stored(run.memory)
        known = memory or (GraphMemory.from_stored(run.source_memory) if run else None)
        context = RunContext(
            run_input=run_input,
            agui_input=agui_input,
            config=self._config,
            schema=schema,
            has_checkpointer=graph.has_checkpointer,
            storage_id=graph.storage_id(run_input.thread_id if run is None else qualified_thread_id(run.thread)),
            memory=memory,
            new_ids=None if run is None else run.new_ids,
            adopted=known.adopted if known else (),
            tools=Toolbox(callable_tools(run_input.tools), schema.tool_names),
            platform=self._platform,
            call_ids=ToolCallIds(
                run_input.messages, memory.aliases if memory else {}, memory.message_ids if memory else {}
            ),
            reported_tools=self._reported_tools,
        )
        return LangGraphRun(context, graph, self._keep_memory)

    def _keep_memory(self, memory: GraphMemory | None) -> None:
        self._memory = memory

    async def _prepare_graph(self) -> tuple[Graph, StateSchema]:
        """Return the graph and its schema; create it for the first run. Raises: RunnerError."""
        try:
            graph = self._graph = self._graph or await self._create_graph()
            return graph, await graph.read_schema()
        except RunnerError:
            raise
        except Exception as error:
            raise to_bridge_error(error) from error
