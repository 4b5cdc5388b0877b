"""Settings of an ADK agent as value objects: ADK's services and run configuration, the identity of a request, and its session lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.errors import ConfigError, Unauthorized

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput
    from fastapi import Request
    from google.adk.agents import RunConfig
    from google.adk.artifacts import BaseArtifactService
    from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
    from google.adk.memory import BaseMemoryService
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.sessions import BaseSessionService

__all__ = ["HIDDEN", "ConfigContext", "InputTransformer", "RunnerConfig", "SessionLockConfig"]

HIDDEN = frozenset({"app:*", "user:*", "temp:*", "_*"})
"""Patterns of state keys that belong to the app, the user, one invocation or ADK itself. Clients can neither read nor write them."""

Extractor = Callable[["RunAgentInput", "Request"], "str | Awaitable[str]"]
"""Extracts a string from a request. A plain or async function."""
StateExtractor = Callable[["RunAgentInput", "Request"], "dict[str, Any] | Awaitable[dict[str, Any]]"]
InputTransformer = Callable[["RunAgentInput", dict[str, str]], "RunAgentInput | Awaitable[RunAgentInput]"]
"""Changes the input of a run: messages, tools, context and state. Receives the input and the pending calls (tool name by call id), and may
answer only these calls."""


@dataclass(kw_only=True)
class RunnerConfig:
    """ADK's services and run configuration. A missing service is replaced by an in-memory one, unless `use_in_memory_services` is off."""

    use_in_memory_services: bool = True
    run_config: RunConfig | None = None
    session_service: BaseSessionService | None = None
    artifact_service: BaseArtifactService | None = None
    memory_service: BaseMemoryService | None = None
    credential_service: BaseCredentialService | None = None
    plugins: list[BasePlugin] | None = None

    def get_session_service(self) -> BaseSessionService:
        """Return the session service. Raises: ConfigError when there is none and `use_in_memory_services` is off."""
        from google.adk.sessions import InMemorySessionService

        if self.session_service is None:
            self._require_memory("session_service")
            self.session_service = InMemorySessionService()
        return self.session_service

    def get_artifact_service(self) -> BaseArtifactService | None:
        from google.adk.artifacts import InMemoryArtifactService

        if self.artifact_service is None and self.use_in_memory_services:
            self.artifact_service = InMemoryArtifactService()
        return self.artifact_service

    def get_memory_service(self) -> BaseMemoryService | None:
        from google.adk.memory import InMemoryMemoryService

        if self.memory_service is None and self.use_in_memory_services:
            self.memory_service = InMemoryMemoryService()
        return self.memory_service

    def get_run_config(self) -> RunConfig:
        """Return ADK's run configuration. By default it streams."""
        from google.adk.agents import RunConfig

        return self.run_config or RunConfig.model_validate({"streaming_mode": "sse"})

    def _require_memory(self, name: str) -> None:
        if not self.use_in_memory_services:
            raise ConfigError(f"RunnerConfig needs a {name}: use_in_memory_services is off.")


@dataclass(frozen=True, kw_only=True)
class SessionLockConfig:
    """Time a request waits for a thread with an active run.

    A request waits up to `lock_retry_times` × `lock_retry_interval` seconds, in the order in which requests came, and starts as soon as the
    thread is free. A run that has held the thread for more than `lock_timeout` seconds is stopped; with None it may finish.
    """

    lock_timeout: float | None = 300.0
    lock_retry_times: int = 3
    lock_retry_interval: float = 10.0


@dataclass(kw_only=True)
class ConfigContext:
    """Identity of a request: fixed values, or plain or async functions of the input and the request."""

    user_id: str | Extractor
    app_name: str | Extractor = "default"
    session_id: str | Extractor | None = None
    """Thread id. Defaults to the input's `threadId`."""
    extract_initial_state: StateExtractor | None = None
    """Initial state of a run. Defaults to the input's state."""
    convert_run_agent_input: InputTransformer | None = None
    session_lock_config: SessionLockConfig = field(default_factory=SessionLockConfig)
    event_source_response_mode: bool = False
    """True adds an `event:` line to each SSE frame."""

    async def identify_request(self, run_input: RunAgentInput, request: Request) -> tuple[str, str, str]:
        """Return app name, user id and thread id of a request. Raises: Unauthorized when any of them is missing."""
        return (
            await _extract_value(self.app_name, run_input, request),
            await _extract_value(self.user_id, run_input, request),
            await _extract_value(self.session_id or run_input.thread_id, run_input, request),
        )

    async def initial_state(self, run_input: RunAgentInput, request: Request) -> Any:
        if self.extract_initial_state is None:
            return run_input.state
        return await call_hook(self.extract_initial_state, run_input, request)


async def _extract_value(source: str | Extractor, run_input: RunAgentInput, request: Request) -> str:
    value: Any = source if isinstance(source, str) else await call_hook(source, run_input, request)
    if not isinstance(value, str) or not value:
        raise Unauthorized
    return value
