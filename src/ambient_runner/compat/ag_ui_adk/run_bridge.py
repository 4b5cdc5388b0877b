"""AgUiBridge: the ADK bridge as an `ADKAgent` configures it: identity from the input, and the server's own state."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.interrupts import CREDENTIAL_CALL, INTERRUPT_CALLS
from ambient_runner.bridges.adk.sessions import SessionLocation
from ambient_runner.compat.ag_ui_adk.confirm_changes import ConfirmingAdapter
from ambient_runner.compat.ag_ui_adk.session_manager import CONTEXT_STATE_KEY
from ambient_runner.protocol.agui_models import input_to_agui

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ag_ui.core import RunAgentInput as AguiInput
    from google.adk.agents import RunConfig

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.compat.ag_ui_adk.adk_agent import ADKAgent
    from ambient_runner.compat.ag_ui_adk.config import PredictStateMapping
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["AgUiBridge", "PreparedRequest", "current_request"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRequest:
    """An HTTP request after the application's extractors: its agent and its input."""

    agent: ADKAgent
    run_input: AguiInput
    server_state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """State keys of the extractors that clients may not set: those of the app, the user and one invocation."""


current_request: ContextVar[PreparedRequest | None] = ContextVar("ambient_ag_ui_adk_request", default=None)
"""Set by the route that starts a run; the run's task inherits it."""


class AgUiBridge(ADKBridge):
    """The bridge of one `ADKAgent`. `locate_input` returns the session of an input that has no server."""

    def __init__(
        self,
        agent: Any,
        *,
        locate_input: Callable[[AguiInput], SessionLocation],
        run_config_factory: Callable[[AguiInput], RunConfig] | None,
        mappings: Sequence[PredictStateMapping],
        reports_interrupts: bool,
        **options: Any,
    ) -> None:
        super().__init__(
            agent,
            locate=_locate_thread,
            client_tools_for=(),  # only for agents with a toolset
            waits_for_long_running_tools=True,
            **options,
        )
        self._locate_input = locate_input
        self._run_config_factory = run_config_factory
        self._confirmed_tools = frozenset(mapping.tool for mapping in mappings if mapping.emit_confirm_tool)
        if not reports_interrupts:
            # A credential request stays an interrupt: as a call it would send the app's own secrets to the client.
            self.interrupt_calls = INTERRUPT_CALLS & {CREDENTIAL_CALL}

    def create_adapter(self, ctx: PlatformContext) -> Any:
        adapter = super().create_adapter(ctx)
        return ConfirmingAdapter(adapter, self._confirmed_tools) if self._confirmed_tools else adapter

    def run_location(self, run: Run | None, run_input: RunAgentInput) -> SessionLocation:
        return super().run_location(run, run_input) if run else self._locate_input(input_to_agui(run_input))

    def run_config_for(self, run_input: RunAgentInput) -> RunConfig:
        if self._run_config_factory is not None:
            return self._run_config_factory(input_to_agui(run_input))
        config = super().run_config_for(run_input)
        context = _context_items(run_input)
        return config.model_copy(update={"custom_metadata": {"ag_ui_context": context}}) if context else config

    def server_state(self, run_input: RunAgentInput) -> Mapping[str, Any]:
        request = current_request.get()
        return {CONTEXT_STATE_KEY: _context_items(run_input), **(request.server_state if request else {})}


def _locate_thread(thread: ThreadKey) -> SessionLocation:
    return SessionLocation(app=thread.tenant, user=thread.owner, session=thread.id)


def _context_items(run_input: RunAgentInput) -> list[dict[str, str]]:
    return [{"description": item.description, "value": item.value} for item in run_input.context or ()]
