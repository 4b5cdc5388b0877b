"""Google ADK agents in the words of the ADK AGUI Middleware document: a thin layer on our own doors.

    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id="ada"))
    register_agui_endpoint(app, service)

Everything here is one bridge, one Runner and one ledger; `docs/agents/adk.md` says what each name means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.adk.routes import AdkDoor, adk_history_routes, adk_routes
from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import ConfigContext, RunnerConfig, SessionLockConfig
from ambient_runner.bridges.adk.hooks import HandlerContext, InputInfo, TranslateEvent
from ambient_runner.bridges.adk.sessions import Place
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.runs.run import Actor
from ambient_runner.server.app import service_of, wrap_lifespan
from ambient_runner.server.cors import Cors
from ambient_runner.server.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ag_ui.core import MessagesSnapshotEvent, StateSnapshotEvent
    from fastapi import FastAPI, Request
    from google.adk.agents import BaseAgent
    from google.adk.apps import App
    from google.adk.workflow import BaseNode

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.runs.run import Middleware
    from ambient_runner.server.guard import Authorize

__all__ = [
    "ADKBridge",
    "ConfigContext",
    "HandlerContext",
    "InputInfo",
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

_AGENT = "default"


class SSEService:
    """One ADK agent, ready to be served. It opens its store with the app's lifespan and closes with it.

    Who asks is what the function `user_id` of the configuration says. A fixed name says nothing of a request, so only this machine is
    served then. `authorize` decides otherwise: whom it gives an Actor for may come in, wherever from. `settings` are read from
    `ambient.toml` and `AMBIENT_*` when not given.
    Raises: ConfigError.
    """

    def __init__(
        self,
        agent: BaseAgent | App | BaseNode,
        runner_config: RunnerConfig | None = None,
        config_context: ConfigContext | None = None,
        handler_context: HandlerContext | None = None,
        *,
        settings: Settings | None = None,
        middleware: Sequence[Middleware] = (),
        authorize: Authorize | None = None,
    ) -> None:
        if config_context is None:
            raise ConfigError("SSEService needs to know whose requests it gets: ConfigContext(user_id=…).")
        settings = settings or read_settings()
        handlers = handler_context or HandlerContext()
        self.bridge = ADKBridge(
            agent,
            runner_config=runner_config,
            handler_context=handlers,
            convert_run_agent_input=config_context.convert_run_agent_input,
            locate=_named_place,
        )
        self.service = service_of(settings, {_AGENT: self.bridge}, middleware=middleware)
        letting_in = authorize or (None if isinstance(config_context.user_id, str) else _anyone)
        guard = Guard(letting_in, hosts=settings.allowed_hosts, origins=settings.allowed_origins)
        self.door = AdkDoor(self.service, guard, config_context, handlers, _AGENT)


def register_agui_endpoint(app: FastAPI, sse_service: SSEService, path: str = "/", *, history: bool = True) -> None:
    """Add `POST path` and, with `history`, the five history and state routes. The app's lifespan runs the service."""
    app.include_router(adk_routes(sse_service.door, path))
    if history:
        app.include_router(adk_history_routes(sse_service.door))
    origins = sse_service.service.settings.allowed_origins
    if origins:
        app.add_middleware(Cors, origins=origins, prefix="")
    wrap_lifespan(app, sse_service.service)


async def get_agui_thread_list(sse_service: SSEService, request: Request) -> list[dict[str, str]]:
    """The threads of the user this request comes from."""
    return await sse_service.door.threads(request)


async def delete_agui_thread(sse_service: SSEService, request: Request, thread_id: str) -> dict[str, str]:
    """Erase a thread, and ADK's session of it. Raises: UnknownThread."""
    await sse_service.door.delete(request, thread_id)
    return {"status": "deleted"}


async def patch_agui_state(
    sse_service: SSEService, request: Request, thread_id: str, patch: list[dict[str, Any]]
) -> dict[str, str]:
    """Apply a JSON Patch to a thread's state. Raises: UnknownThread, InvalidPatch, PatchConflict."""
    await sse_service.door.patch(request, thread_id, msgspec.json.encode(patch))
    return {"status": "updated"}


async def get_agui_message_snapshot(sse_service: SSEService, request: Request, thread_id: str) -> MessagesSnapshotEvent:
    """The messages of a thread, under the ids that were streamed. Raises: UnknownThread."""
    return cast("MessagesSnapshotEvent", to_agui(await sse_service.door.messages(request, thread_id)))


async def get_agui_state_snapshot(sse_service: SSEService, request: Request, thread_id: str) -> StateSnapshotEvent:
    """The state of a thread, without what belongs to the app, the user or ADK. Raises: UnknownThread."""
    return cast("StateSnapshotEvent", to_agui(await sse_service.door.state(request, thread_id)))


def _named_place(thread: ThreadKey) -> Place:
    return Place(app=thread.tenant, user=thread.owner, session=thread.id)


def _anyone(request: Request) -> Actor:
    """The guard only looks where a request comes from: who it is, the extractors say."""
    return Actor()
