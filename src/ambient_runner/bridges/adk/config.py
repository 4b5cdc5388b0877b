"""Settings of an ADK agent behind this server, as value objects: services and run configuration, where a request belongs, its lock."""

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
"""State that belongs to the app, the user, one invocation or ADK itself: clients neither see nor write it."""

Extractor = Callable[["RunAgentInput", "Request"], "str | Awaitable[str]"]
"""Says something about a request, plain or async."""
StateExtractor = Callable[["RunAgentInput", "Request"], "dict[str, Any] | Awaitable[dict[str, Any]]"]
InputTransformer = Callable[["RunAgentInput", dict[str, str]], "RunAgentInput | Awaitable[RunAgentInput]"]
"""Changes what a run is about. It gets the input and the calls that wait, id to tool name; it may answer those and no others."""


@dataclass(kw_only=True)
class RunnerConfig:
    """ADK's services and run configuration. What is not given is kept in memory, unless `use_in_memory_services` is off."""

    use_in_memory_services: bool = True
    run_config: RunConfig | None = None
    session_service: BaseSessionService | None = None
    artifact_service: BaseArtifactService | None = None
    memory_service: BaseMemoryService | None = None
    credential_service: BaseCredentialService | None = None
    plugins: list[BasePlugin] = field(default_factory=list["BasePlugin"])

    def sessions(self) -> BaseSessionService:
        """The session service. Raises: ConfigError when none is given and memory will not do."""
        from google.adk.sessions import InMemorySessionService

        if self.session_service is None:
            self._require_memory("session_service")
            self.session_service = InMemorySessionService()
        return self.session_service

    def artifacts(self) -> BaseArtifactService | None:
        from google.adk.artifacts import InMemoryArtifactService

        if self.artifact_service is None and self.use_in_memory_services:
            self.artifact_service = InMemoryArtifactService()
        return self.artifact_service

    def memories(self) -> BaseMemoryService | None:
        from google.adk.memory import InMemoryMemoryService

        if self.memory_service is None and self.use_in_memory_services:
            self.memory_service = InMemoryMemoryService()
        return self.memory_service

    def runs(self) -> RunConfig:
        """How runs go: streamed, unless something else is asked for."""
        from google.adk.agents import RunConfig

        return self.run_config or RunConfig.model_validate({"streaming_mode": "sse"})

    def _require_memory(self, name: str) -> None:
        if not self.use_in_memory_services:
            raise ConfigError(f"RunnerConfig needs a {name}: use_in_memory_services is off.")


@dataclass(frozen=True, kw_only=True)
class SessionLockConfig:
    """How long a request waits for a thread that another one has.

    It tries again `lock_retry_times` times, each time after `lock_retry_interval` seconds at most: it goes on as soon as the thread is
    free. A run that has had the thread for longer than `lock_timeout` seconds makes way; None lets it finish.
    """

    lock_timeout: float | None = 300.0
    lock_retry_times: int = 3
    lock_retry_interval: float = 10.0


@dataclass(kw_only=True)
class ConfigContext:
    """Where a request belongs: fixed values, or functions of the input and the request, plain or async."""

    user_id: str | Extractor
    app_name: str | Extractor = "default"
    session_id: str | Extractor | None = None
    """The thread; the input's own `threadId` when nothing is given."""
    extract_initial_state: StateExtractor | None = None
    """The state a run begins with; the input's own when nothing is given."""
    convert_run_agent_input: InputTransformer | None = None
    session_lock_config: SessionLockConfig = field(default_factory=SessionLockConfig)
    event_source_response_mode: bool = False
    """Whether frames also have an `event:` line."""

    async def identify(self, posted: RunAgentInput, request: Request) -> tuple[str, str, str]:
        """App name, user id and thread id of a request. Raises: Unauthorized when any of them is missing."""
        return (
            await _extracted(self.app_name, posted, request),
            await _extracted(self.user_id, posted, request),
            await _extracted(self.session_id or posted.thread_id, posted, request),
        )

    async def initial_state(self, posted: RunAgentInput, request: Request) -> Any:
        if self.extract_initial_state is None:
            return posted.state
        return await call_hook(self.extract_initial_state, posted, request)


async def _extracted(source: str | Extractor, posted: RunAgentInput, request: Request) -> str:
    found: Any = source if isinstance(source, str) else await call_hook(source, posted, request)
    if not isinstance(found, str) or not found:
        raise Unauthorized
    return found
