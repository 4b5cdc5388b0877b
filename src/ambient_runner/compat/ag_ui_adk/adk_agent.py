"""ADKAgent: an ADK agent that yields AG-UI events, alone with `run(input)` or behind `add_adk_fastapi_endpoint`."""

from __future__ import annotations

import copy
import json
import logging
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.bridges.adk.config import RunnerConfig
from ambient_runner.bridges.adk.sessions import SessionLocation
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.toolkit.agent_runs import AgentRuns, OwnRunAdapter, has_own_run
from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping as BridgeMapping
from ambient_runner.compat.ag_ui_adk.config import normalize_predict_state
from ambient_runner.compat.ag_ui_adk.run_bridge import AgUiBridge
from ambient_runner.errors import BridgeTimeout, ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from ag_ui.core import BaseEvent, RunAgentInput
    from google.adk.agents import BaseAgent, RunConfig
    from google.adk.apps import App
    from google.adk.artifacts import BaseArtifactService
    from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
    from google.adk.memory import BaseMemoryService
    from google.adk.sessions import BaseSessionService

    from ambient_runner.compat.ag_ui_adk.config import PredictStateMapping
    from ambient_runner.compat.ag_ui_adk.session_manager import SessionManager

__all__ = ["ADKAgent", "check_adk_agent", "create_agent_adapter"]

_TIMED_OUT: Any = object()
_ENDED: Any = object()

logger = logging.getLogger(__name__)


class ADKAgent:
    """An ADK agent with its services and the identity of its users.

    Limits of sessions, executions and tools have no effect: the server has its own, and a waiting thread occupies nothing.
    `execution_timeout_seconds` ends a run that takes longer.
    Raises: ValueError and TypeError for arguments that contradict each other, ConfigError for missing services.
    """

    def __init__(
        self,
        adk_agent: BaseAgent,
        app_name: str | None = None,
        session_timeout_seconds: int | None = 1200,
        app_name_extractor: Callable[[RunAgentInput], str] | None = None,
        user_id: str | None = None,
        user_id_extractor: Callable[[RunAgentInput], str] | None = None,
        session_service: BaseSessionService | None = None,
        session_manager: SessionManager | None = None,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        credential_service: BaseCredentialService | None = None,
        run_config_factory: Callable[[RunAgentInput], RunConfig] | None = None,
        use_in_memory_services: bool = True,
        execution_timeout_seconds: int = 600,
        tool_timeout_seconds: int = 300,
        max_concurrent_executions: int = 10,
        cleanup_interval_seconds: int = 300,
        max_sessions_per_user: int | None = None,
        delete_session_on_cleanup: bool = True,
        save_session_to_memory_on_cleanup: bool = True,
        hitl_max_wait_seconds: int | None = None,
        predict_state: Iterable[PredictStateMapping] | None = None,
        emit_messages_snapshot: bool = False,
        streaming_function_call_arguments: bool = False,
        use_thread_id_as_session_id: bool = False,
        allow_scoped_state_keys: bool = False,
        capabilities: dict[str, Any] | None = None,
        a2ui: dict[str, Any] | None = None,
        emit_interrupt_outcome: bool = False,
        seed_first_run_history: bool = True,
    ) -> None:
        _refuse_both("app_name", app_name, app_name_extractor)
        _refuse_both("user_id", user_id, user_id_extractor)
        if session_manager is not None and session_service is not None:
            raise ValueError("Pass session_manager or session_service, not both: a manager has a session service.")
        if a2ui is not None:
            logger.warning("a2ui has no effect: this package does not generate A2UI.")
        self._capabilities = _check_capabilities(capabilities)
        self._app_name, self._app_name_extractor = app_name, app_name_extractor
        self._user_id, self._user_id_extractor = user_id, user_id_extractor
        self._default_app_name = getattr(adk_agent, "name", "")
        self.execution_timeout = execution_timeout_seconds
        self.allow_scoped_state_keys = allow_scoped_state_keys
        self.agent_runs = AgentRuns(f"ADK agent {self._default_app_name}", self._create_adapter, self.locate_input)
        mappings = normalize_predict_state(predict_state)
        self.bridge = AgUiBridge(
            adk_agent,
            app_name=app_name,
            runner_config=RunnerConfig(
                use_in_memory_services=use_in_memory_services,
                session_service=session_manager.session_service if session_manager else session_service,
                artifact_service=artifact_service,
                memory_service=memory_service,
                credential_service=credential_service,
            ),
            mappings=mappings,
            locate_input=self.locate_input,
            run_config_factory=run_config_factory,
            reports_interrupts=emit_interrupt_outcome,
            predict_state=[BridgeMapping(**mapping.to_payload()) for mapping in mappings],
        )

    @classmethod
    def from_app(
        cls,
        app: App,
        user_id: str | None = None,
        user_id_extractor: Callable[[RunAgentInput], str] | None = None,
        session_service: BaseSessionService | None = None,
        session_manager: SessionManager | None = None,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        credential_service: BaseCredentialService | None = None,
        run_config_factory: Callable[[RunAgentInput], RunConfig] | None = None,
        use_in_memory_services: bool = True,
        plugin_close_timeout: float = 5.0,
        execution_timeout_seconds: int = 600,
        tool_timeout_seconds: int = 300,
        max_concurrent_executions: int = 10,
        session_timeout_seconds: int | None = 1200,
        cleanup_interval_seconds: int = 300,
        max_sessions_per_user: int | None = None,
        delete_session_on_cleanup: bool = True,
        save_session_to_memory_on_cleanup: bool = True,
        predict_state: Iterable[PredictStateMapping] | None = None,
        emit_messages_snapshot: bool = False,
        streaming_function_call_arguments: bool = False,
        use_thread_id_as_session_id: bool = False,
        allow_scoped_state_keys: bool = False,
        capabilities: dict[str, Any] | None = None,
        emit_interrupt_outcome: bool = False,
        seed_first_run_history: bool = True,
    ) -> ADKAgent:
        """Return the agent of an ADK App, with its plugins and its resumability. Raises: TypeError if it is no App."""
        return cls(
            _check_app(app),
            app_name=app.name,
            user_id=user_id,
            user_id_extractor=user_id_extractor,
            session_service=session_service,
            session_manager=session_manager,
            artifact_service=artifact_service,
            memory_service=memory_service,
            credential_service=credential_service,
            run_config_factory=run_config_factory,
            use_in_memory_services=use_in_memory_services,
            execution_timeout_seconds=execution_timeout_seconds,
            predict_state=predict_state,
            allow_scoped_state_keys=allow_scoped_state_keys,
            capabilities=capabilities,
            emit_interrupt_outcome=emit_interrupt_outcome,
        )

    def get_capabilities(self) -> dict[str, Any] | None:
        """Return a copy of the declared capabilities; None if there are none."""
        return copy.deepcopy(self._capabilities)

    def app_name_of(self, run_input: RunAgentInput) -> str:
        """Return the app name of an input: the fixed one, the extractor's, or the agent's name."""
        if self._app_name_extractor is not None:
            return self._app_name_extractor(run_input)
        return self._app_name or self._default_app_name

    @property
    def has_user_id_extractor(self) -> bool:
        """True if the user of an input is extracted from it: only then can two callers be told apart."""
        return self._user_id_extractor is not None

    def user_id_of(self, run_input: RunAgentInput) -> str:
        """Return the user of an input: the fixed one, the extractor's, or one user per thread."""
        if self._user_id_extractor is not None:
            return self._user_id_extractor(run_input)
        return self._user_id or f"thread_user_{run_input.thread_id}"

    def locate_input(self, run_input: RunAgentInput) -> SessionLocation:
        """Return the session of an input."""
        return SessionLocation(
            app=self.app_name_of(run_input), user=self.user_id_of(run_input), session=run_input.thread_id
        )

    def run(self, input: RunAgentInput) -> AsyncGenerator[BaseEvent, None]:  # noqa: A002  the published name
        """Yield the events of one run as models of `ag_ui.core`, from RUN_STARTED to RUN_FINISHED or RUN_ERROR. A failure is logged."""

        def start(adapter: Any) -> AsyncGenerator[Any, None]:
            return _with_timeout(adapter.run(input), self.execution_timeout)

        return self.agent_runs.stream(input, start)

    async def close(self) -> None:
        """Close the sessions that are held in memory, the toolsets and the plugins."""
        await self.agent_runs.aclose()
        await self.bridge.aclose()

    def _create_adapter(self, run_input: RunAgentInput) -> Any:
        return self.bridge.create_adapter(PlatformContext(session_id=run_input.thread_id))


def check_adk_agent(agent: Any) -> ADKAgent:
    """Return the ADKAgent, or the wrapper with a `run` of its own and the attributes of the ADKAgent inside. Raises: ConfigError."""
    if not isinstance(agent, ADKAgent) and not isinstance(getattr(agent, "bridge", None), AgUiBridge):
        raise ConfigError(
            f"{type(agent).__name__} is not an ADKAgent. Pass one, or a wrapper with `run` and the attributes of one."
        )
    return agent


def create_agent_adapter(agent: ADKAgent, ctx: PlatformContext) -> Any:
    """Return the adapter of one thread. An agent with a `run` of its own is served by that."""
    adapter = agent.bridge.create_adapter(ctx)
    return OwnRunAdapter(agent.run, agent.agent_runs, adapter) if has_own_run(agent, ADKAgent) else adapter


async def _with_timeout(events: AsyncGenerator[Any, None], seconds: float) -> AsyncGenerator[Any, None]:
    """Yield the events. Raises: BridgeTimeout when they take longer than `seconds` in all."""
    deadline = time.monotonic() + seconds
    async with aclosing(events):
        while True:
            event = await _next_event(events, deadline - time.monotonic())
            if event is _TIMED_OUT:
                raise BridgeTimeout
            if event is _ENDED:
                return
            yield event


async def _next_event(events: AsyncGenerator[Any, None], seconds: float) -> Any:
    with anyio.move_on_after(seconds):
        return await anext(events, _ENDED)
    return _TIMED_OUT


def _check_app(app: Any) -> Any:
    from google.adk.apps import App

    if not isinstance(app, App):
        raise TypeError(f"from_app takes a google.adk.apps.App, not {type(app).__name__}.")
    return app


def _refuse_both(name: str, value: object, extractor: object) -> None:
    if value and extractor:
        raise ValueError(f"Pass {name} or {name}_extractor, not both.")


def _check_capabilities(capabilities: Any) -> dict[str, Any] | None:
    if capabilities is None:
        return None
    if not isinstance(capabilities, dict):
        raise TypeError(f"Pass capabilities as a dict, not {type(capabilities).__name__}.")
    try:
        json.dumps(capabilities)
    except (TypeError, ValueError) as error:
        raise ValueError("capabilities must consist of JSON values.") from error
    return capabilities  # pyright: ignore[reportUnknownVariableType]
