"""Routes of the package: for runs, for the history and for the state."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ag_ui.core import RunAgentInput  # noqa: TC002  FastAPI reads the annotations
from fastapi import APIRouter, FastAPI, Request, Response

from ambient_runner.adk.routes import adk_routes
from ambient_runner.compat.adk_agui_middleware.data_model.config import HistoryPathConfig, PathConfig, StatePathConfig
from ambient_runner.compat.adk_agui_middleware.service.sse_service import SSEService
from ambient_runner.compat.adk_agui_middleware.tools.shutdown import ShutdownHandler
from ambient_runner.server.app import include_routers
from ambient_runner.server.error_responses import JsonResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.compat.adk_agui_middleware.base_abc.sse_service import BaseSSEService
    from ambient_runner.compat.adk_agui_middleware.service.history_service import HistoryService
    from ambient_runner.compat.adk_agui_middleware.service.state_service import StateService

__all__ = ["register_agui_endpoint", "register_agui_history_endpoint", "register_state_endpoint"]


def register_agui_endpoint(
    app: FastAPI | APIRouter, sse_service: BaseSSEService, path_config: PathConfig | None = None
) -> None:
    """Add the route that starts a run. The app's lifespan runs the service."""
    path = (path_config or PathConfig()).agui_main_path
    if isinstance(sse_service, SSEService):
        _add_run_routes(app, sse_service, path)
    else:
        _add_custom_service(app, sse_service, path)
    _close_on_shutdown(app)


def register_agui_history_endpoint(
    app: FastAPI | APIRouter, history_service: HistoryService, path_config: HistoryPathConfig | None = None
) -> None:
    """Add the routes that list and delete threads and return the messages of one."""
    paths = path_config or HistoryPathConfig()
    history_service.threads.app = app

    @app.get(paths.agui_thread_list_path)
    async def get_agui_thread_list(request: Request) -> list[dict[str, Any]]:
        return await history_service.list_threads(request)

    @app.delete(paths.agui_thread_delete_path)
    async def delete_agui_thread(request: Request) -> dict[str, str]:
        return await history_service.delete_thread(request)

    @app.get(paths.agui_message_snapshot_path)
    async def get_agui_message_snapshot(request: Request) -> Response:
        return _model_response(await history_service.get_message_snapshot(request))


def register_state_endpoint(
    app: FastAPI | APIRouter, state_service: StateService, path_config: StatePathConfig | None = None
) -> None:
    """Add the routes that return and patch the state of a thread."""
    paths = path_config or StatePathConfig()
    state_service.threads.app = app

    @app.patch(paths.agui_patch_state_path)
    async def patch_state(request: Request) -> dict[str, str]:
        # Not a parameter: FastAPI would read and parse the body before the user is identified, whatever its size.
        return await state_service.patch_state(request, await state_service.read_patch(request))

    @app.get(paths.agui_state_snapshot_path)
    async def get_agui_state_snapshot(request: Request) -> Response:
        return _model_response(await state_service.get_state_snapshot(request))


def _add_run_routes(app: FastAPI | APIRouter, service: SSEService, path: str) -> None:
    """Add the route. An empty path is `/` of an app, and the prefix of a router, which only a route of its own can have."""
    service.apps.append(app)
    if path or isinstance(app, FastAPI):
        include_routers(app, [adk_routes(service.endpoints, path or "/")], service.runtime, service.guard)
        return
    adk_routes(service.endpoints, "", router=app)
    include_routers(app, [], service.runtime, service.guard)


def _add_custom_service(app: FastAPI | APIRouter, service: BaseSSEService, path: str) -> None:
    @app.post(path or ("/" if isinstance(app, FastAPI) else ""))
    async def run_agui_main(agui_content: RunAgentInput, request: Request) -> Response:
        return await service.event_generator(*await service.get_runner(agui_content, request))


def _close_on_shutdown(app: FastAPI | APIRouter) -> None:
    """Call the shutdown functions at the end of the app's lifespan."""
    router = app.router if isinstance(app, FastAPI) else app
    inner = router.lifespan_context

    @asynccontextmanager
    async def lifespan(served: Any) -> AsyncGenerator[Any, None]:
        async with inner(served) as state:
            yield state
        await ShutdownHandler().close()

    router.lifespan_context = lifespan


def _model_response(event: Any) -> Response:
    return JsonResponse(event.model_dump_json(by_alias=True, exclude_none=True).encode())
