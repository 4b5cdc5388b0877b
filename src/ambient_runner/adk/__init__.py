"""Google ADK agents with the names of the package `adk-agui-middleware`: a thin layer on the bridge and the server.

    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id="ada"))
    register_agui_endpoint(app, service)

All of it shares one bridge, one Runner and one ledger. `docs/agents/adk.md` explains each name.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

from fastapi import HTTPException

from ambient_runner.adk.routes import ADKEndpoints, adk_history_routes, adk_routes
from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.client_toolset import ClientToolset
from ambient_runner.bridges.adk.config import ConfigContext, RunnerConfig, SessionLockConfig
from ambient_runner.bridges.adk.hooks import HandlerContext, InputInfo, TranslateEvent
from ambient_runner.bridges.adk.sessions import SessionLocation
from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.runs.run import Actor
from ambient_runner.server.app import build_runtime, include_routers
from ambient_runner.server.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ag_ui.core import MessagesSnapshotEvent, StateSnapshotEvent
    from fastapi import APIRouter, FastAPI, Request
    from google.adk.agents import BaseAgent
    from google.adk.apps import App
    from google.adk.workflow import BaseNode

    from ambient_runner.config import Settings
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.runs.run import Middleware
    from ambient_runner.server.cors import CorsMode
    from ambient_runner.server.guard import Authorize

__all__ = [
    "ADKBridge",
    "ClientToolset",
    "ConfigContext",
    "HandlerContext",
    "InputInfo",
    "PredictStateMapping",
    "RunnerConfig",
    "SSEService",
    "SessionLockConfig",
    "TranslateEvent",
    "delete_agui_thread",
    "get_agui_message_snapshot",
    "get_agui_state_snapshot",
    "get_agui_thread_list",
    "patch_agui_state",
    "register_agui_endpoint",
]


class SSEService:
    """One ADK agent, ready to be served. It opens its ledger when the app's lifespan starts and closes it when that ends.

    The function `user_id` of the configuration identifies the user of a request. A fixed `user_id` does not identify it, so only requests
    from this machine are served then, unless `authorize` returns an Actor for a request. `settings` default to those of `ambient.toml`
    and `AMBIENT_*`. The two configurations may also come in the other order, `SSEService(agent, config_context, runner_config)`.
    Raises: ConfigError.
    """

    agent_name = "default"
    cors: ClassVar[CorsMode] = True
    """See `add_ambient_endpoints`."""

    def __init__(
        self,
        agent: BaseAgent | App | BaseNode,
        runner_config: RunnerConfig | ConfigContext | None = None,
        config_context: ConfigContext | RunnerConfig | None = None,
        handler_context: HandlerContext | None = None,
        *,
        settings: Settings | None = None,
        middleware: Sequence[Middleware] = (),
        authorize: Authorize | None = None,
    ) -> None:
        config_context, runner_config = sort_configs(runner_config, config_context)
        if config_context is None:
            raise ConfigError(
                "SSEService needs a config_context that identifies the user of a request: ConfigContext(user_id=…)."
            )
        settings = (settings or read_settings()).with_all_props()
        handlers = handler_context or HandlerContext()
        self.bridge = ADKBridge(
            agent,
            runner_config=runner_config,
            handler_context=handlers,
            convert_run_agent_input=config_context.convert_run_agent_input,
            locate=_session_location,
        )
        self._authorize = authorize
        self.runtime = build_runtime(
            settings,
            {self.agent_name: self.bridge},
            middleware=middleware,
            serves_others=self._authorizer_for(config_context) is not None,
            renders_tools=True,
        )
        self.guard = self.guard_for(config_context)
        self.endpoints = ADKEndpoints(self.runtime, self.guard, config_context, handlers, self.agent_name)

    def guard_for(self, context: ConfigContext) -> Guard:
        """Return the guard of routes whose requests `context` identifies."""
        settings = self.runtime.settings
        authorizer = self._authorizer_for(context)
        return Guard(authorizer, hosts=settings.allowed_hosts, origins=settings.allowed_origins, cors=self.cors)

    def _authorizer_for(self, context: ConfigContext) -> Authorize | None:
        """Return the function that authorizes requests; None if only this machine is served."""
        return self._authorize or (None if isinstance(context.user_id, str) else _allow_any_actor)


def register_agui_endpoint(
    app: FastAPI | APIRouter, sse_service: SSEService, path: str = "/", *, history: bool = True
) -> None:
    """Add `POST path` and, with `history`, the five history and state routes. The app's lifespan runs the service."""
    routers = [adk_routes(sse_service.endpoints, path)]
    if history:
        routers.append(adk_history_routes(sse_service.endpoints))
    include_routers(app, routers, sse_service.runtime, sse_service.guard)


async def get_agui_thread_list(sse_service: SSEService, request: Request) -> list[dict[str, str]]:
    """Return the threads of the request's user. Raises: HTTPException."""
    with raise_http_errors():
        return await sse_service.endpoints.list_threads(request)


async def delete_agui_thread(sse_service: SSEService, request: Request, thread_id: str) -> dict[str, str]:
    """Erase a thread and its ADK session. Raises: HTTPException, 404 for an unknown thread."""
    with raise_http_errors():
        await sse_service.endpoints.delete_thread(request, thread_id)
    return {"status": "deleted"}


async def patch_agui_state(
    sse_service: SSEService, request: Request, thread_id: str, patch: list[dict[str, Any]]
) -> dict[str, str]:
    """Apply a JSON Patch to a thread's state. Raises: HTTPException, 404 for an unknown thread, 400 or 409 for the patch."""
    with raise_http_errors():
        await sse_service.endpoints.patch_thread_state(request, thread_id, patch)
    return {"status": "updated"}


async def get_agui_message_snapshot(sse_service: SSEService, request: Request, thread_id: str) -> MessagesSnapshotEvent:
    """Return the messages of a thread with the ids that were streamed. Raises: HTTPException, 404 for an unknown thread."""
    with raise_http_errors():
        snapshot = await sse_service.endpoints.messages_snapshot(request, thread_id)
    return cast("MessagesSnapshotEvent", to_agui(snapshot))


async def get_agui_state_snapshot(sse_service: SSEService, request: Request, thread_id: str) -> StateSnapshotEvent:
    """Return the state of a thread without the keys of the app, the user and ADK. Raises: HTTPException, 404 for an unknown thread."""
    with raise_http_errors():
        snapshot = await sse_service.endpoints.state_snapshot(request, thread_id)
    return cast("StateSnapshotEvent", to_agui(snapshot))


@contextmanager
def raise_http_errors() -> Generator[None]:
    """Raise our errors as FastAPI's, because the helpers are called in routes of the application."""
    try:
        yield
    except RunnerError as error:
        raise HTTPException(error.status, {"code": error.code, "message": error.message}) from error


def sort_configs(
    *configs: RunnerConfig | ConfigContext | None,
) -> tuple[ConfigContext | None, RunnerConfig | None]:
    """Return the configurations by type, in whatever order they are."""
    context = next((config for config in configs if isinstance(config, ConfigContext)), None)
    return context, next((config for config in configs if isinstance(config, RunnerConfig)), None)


def _session_location(thread: ThreadKey) -> SessionLocation:
    return SessionLocation(app=thread.tenant, user=thread.owner, session=thread.id)


def _allow_any_actor(request: Request) -> Actor:
    """Authorize every request as far as the guard is concerned: the extractors identify the user."""
    return Actor()
