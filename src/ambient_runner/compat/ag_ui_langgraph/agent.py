"""LangGraphAgent of `ag_ui_langgraph`: a graph, its name and its configuration. It runs on the LangGraph bridge."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ag_ui.core import BaseEvent, CustomEvent, EventType, RunFinishedEvent

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.bridges.toolkit.json_values import to_text_or_json
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.protocol.events import PROTOCOL_VERSION, RunError, RunStarted
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]

    from ambient_runner.bridges.langgraph.adapter import LangGraphAdapter

__all__ = [
    "SUBAGENT_VISIBILITY_ATTRIBUTED",
    "SUBAGENT_VISIBILITY_HIDDEN",
    "SUBAGENT_VISIBILITY_INLINE",
    "LangGraphAgent",
]

logger = logging.getLogger(__name__)

SUBAGENT_VISIBILITY_ATTRIBUTED = "attributed"
SUBAGENT_VISIBILITY_HIDDEN = "hidden"
SUBAGENT_VISIBILITY_INLINE = "inline"
_MAX_THREADS = 256
"""Threads whose adapter `run` keeps. A graph with a checkpointer needs none."""


class LangGraphAgent:
    """A compiled graph as an AG-UI agent.

    `config` is the graph's RunnableConfig: `recursion_limit`, `configurable`, `metadata`, `tags`, `callbacks`. The other options are those
    of the published class; `docs/how-to/migrate.md` says which have an effect.
    Raises: ConfigError.
    """

    def __init__(
        self,
        *,
        name: str,
        graph: CompiledStateGraph[Any, Any, Any, Any],
        description: str | None = None,
        config: RunnableConfig | dict[str, Any] | None = None,
        enable_legacy_on_interrupt_event: bool = True,
        emit_interrupt_outcome: bool = False,
        emit_raw_events: bool = True,
        emit_subagent_events: bool | None = None,
        subagent_visibility: str | None = None,
    ) -> None:
        if subagent_visibility == SUBAGENT_VISIBILITY_HIDDEN:
            raise ConfigError(
                f"subagent_visibility={subagent_visibility!r} is not supported: subagents are always shown, as steps to clients "
                "that do not know them. Hide the output of a model with the metadata `emit-messages` and `emit-tool-calls`."
            )
        self.name = name
        self.description = description
        self.graph = graph
        self.config = config or {}
        self.enable_legacy_on_interrupt_event = enable_legacy_on_interrupt_event
        self.emit_interrupt_outcome = emit_interrupt_outcome
        self.emit_raw_events = emit_raw_events
        self.emit_subagent_events = emit_subagent_events
        self.subagent_visibility = subagent_visibility
        self.bridge = create_bridge(graph, self.config, emit_interrupt_outcome=emit_interrupt_outcome)
        self._adapters: OrderedDict[str, LangGraphAdapter] = OrderedDict()

    def clone(self) -> LangGraphAgent:
        """Return an agent of the same graph. Runs do not share state here, so a clone is rarely needed."""
        cloned = copy.copy(self)
        cloned._adapters = OrderedDict()
        return cloned

    async def run(self, input: RunAgentInput) -> AsyncGenerator[BaseEvent, None]:  # noqa: A002  the published name
        """Yield the events of one run, from RUN_STARTED on, as models of `ag_ui.core`.

        A failure is logged and ends the run with RUN_ERROR.
        """
        thread_id, run_id = input.thread_id, input.run_id
        yield to_agui(RunStarted(thread_id=thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION))
        try:
            async with aclosing(self._adapter_for(thread_id).run(input)) as events:
                async for event in events:
                    model = event if isinstance(event, BaseEvent) else to_agui(event)
                    for sent in self._with_interrupt_events(model):
                        yield sent
        except RunnerError as error:
            logger.exception("Run %s on thread %s of the graph %s failed", run_id, thread_id, self.name)
            yield to_agui(RunError(message=error.message, code=error.code))

    def get_capabilities(self) -> dict[str, Any]:
        """Return the features of the agent, in AG-UI's groups."""
        return {
            "identity": {"type": "langgraph", "name": self.name},
            "humanInTheLoop": {"supported": True, "interrupts": True, "approvals": True, "approveWithEdits": True},
            "state": {"snapshots": True, "deltas": True, "persistentState": True},
            "transport": {"streaming": True},
        }

    def _adapter_for(self, thread_id: str) -> LangGraphAdapter:
        adapter = self._adapters.pop(thread_id, None)
        self._adapters[thread_id] = adapter or self.bridge.create_adapter(PlatformContext(session_id=thread_id))
        while len(self._adapters) > _MAX_THREADS:
            self._adapters.popitem(last=False)
        return self._adapters[thread_id]

    def _with_interrupt_events(self, event: BaseEvent) -> list[BaseEvent]:
        """Return the event. Interrupts of a run are sent as CUSTOM `on_interrupt` before its end, which then has no outcome.

        On a server the end keeps its outcome: the server sends each client what it knows.
        """
        outcome: Any = event.outcome if isinstance(event, RunFinishedEvent) else None
        is_interrupt = getattr(outcome, "type", "") == "interrupt"
        if not is_interrupt or not self.enable_legacy_on_interrupt_event or current_run_or_none() is not None:
            return [event]
        interrupts = [
            _to_custom_event(interrupt) for interrupt in outcome.interrupts if "value" in (interrupt.metadata or {})
        ]
        has_only_events = len(interrupts) == len(outcome.interrupts) and not self.emit_interrupt_outcome
        return [*interrupts, event.model_copy(update={"outcome": None}) if has_only_events else event]


def _to_custom_event(interrupt: Any) -> CustomEvent:
    return CustomEvent(type=EventType.CUSTOM, name="on_interrupt", value=to_text_or_json(interrupt.metadata["value"]))


def create_bridge(graph: Any, config: Any, *, emit_interrupt_outcome: bool = False) -> LangGraphBridge:
    """Return the bridge of a graph with this RunnableConfig. Raises: ConfigError."""
    return LangGraphBridge(
        graph.with_config(config) if config else graph,
        config=LangGraphConfig(emit_interrupt_outcome=emit_interrupt_outcome),
    )
