"""Routes for repositories, the workflow, MCP servers, and files (`files.py`). They exist only if an agent of this server uses them.

A job that a request starts (a clone, a change of workflow) belongs to the server: it continues when the client disconnects, and `?wait=0`
returns at once.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from ambient_runner.errors import InvalidInput
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.remote_platform import forward_request, has_remote_agents
from ambient_runner.server.request_parsing import read_object, read_text, request_git_tokens, request_scope
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.server.routes.files import file_routes
from ambient_runner.services.platform_facts import (
    repo_added,
    repo_progress,
    repo_removed,
    setup_error,
    workflow_changed,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ambient_runner.errors import RunnerError
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.platform import FileServices, Platform, RequestGrants
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.services.background_jobs import BackgroundJob
    from ambient_runner.services.credentials import RequestScope
    from ambient_runner.services.platform_facts import PlatformFact
    from ambient_runner.services.workspaces.clone import CloneProgress
    from ambient_runner.services.workspaces.repos import AddedRepo
    from ambient_runner.services.workspaces.workflows import WorkflowChange

    _AppendFact = Callable[[PlatformFact], Awaitable[None]]

T = TypeVar("T")

_PROGRESS_STEP = 10
"""Percent between two progress facts of a clone: facts are stored permanently."""


def platform_routes(runtime: ServerRuntime, guard: Guard) -> list[APIRouter]:
    """Return the routes that this server's agents use. For an agent on another server, that server answers."""
    services, is_gateway = runtime.platform.file_services, has_remote_agents(runtime)
    routers: list[APIRouter] = []
    if services or is_gateway:
        routers += [make(runtime, guard) for make in (_repo_routes, _workflow_routes)]
    if services:
        routers += [file_routes(runtime, guard, services)]
    if runtime.platform.has_mcp or is_gateway:
        routers += [_mcp_routes(runtime, guard)]
    return routers


def _repo_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the routes `POST /repos/add`, `POST /repos/remove` and `GET /repos/status`."""
    router = APIRouter(route_class=YieldingRoute)
    platform = runtime.platform

    @router.post("/repos/add")
    async def add_repo(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        scope = await request_scope(runtime, request, actor, body)
        if forwarded := await forward_request(runtime, request, "/repos/add", scope, body):
            return forwarded
        actions = _PlatformActions(platform, _file_services(runtime), scope, request_git_tokens(request))
        job = await actions.add_repo(body)
        if request.query_params.get("wait") == "0":
            return JsonResponse({"message": "Repository is being cloned", "name": job.key.name}, status_code=202)
        added = await job.wait_for_result()
        fields = {"name": added.name, "path": str(added.path), "newly_cloned": added.newly_cloned}
        return JsonResponse({"message": "Repository added", **fields})

    @router.post("/repos/remove")
    async def remove_repo(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        scope = await request_scope(runtime, request, actor, body)
        if forwarded := await forward_request(runtime, request, "/repos/remove", scope, body):
            return forwarded
        removed = await _file_services(runtime).repos.remove(scope.thread, read_text(body, "name", required=True))
        await platform.append_fact(scope.thread, repo_removed(removed.name))
        return JsonResponse({"message": "Repository removed"})

    @router.get("/repos/status")
    async def repo_status(request: Request) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        if forwarded := await forward_request(runtime, request, "/repos/status", scope):
            return forwarded
        rows = await _file_services(runtime).repos.status(scope.thread)
        return JsonResponse({"repos": platform.secrets.new_redactor(scope.thread).redact_value(rows)})

    return router


def _file_services(runtime: ServerRuntime) -> FileServices:
    """Return the services of this server's own file agents. Raises: HTTPException if it has none."""
    if runtime.platform.file_services is None:
        raise HTTPException(404)
    return runtime.platform.file_services


def _workflow_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the route `POST /workflow`."""
    router = APIRouter(route_class=YieldingRoute)

    @router.post("/workflow")
    async def change_workflow(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        scope = await request_scope(runtime, request, actor, body)
        if forwarded := await forward_request(runtime, request, "/workflow", scope, body):
            return forwarded
        services, tokens = _file_services(runtime), request_git_tokens(request)
        actions = _PlatformActions(runtime.platform, services, scope, tokens)
        if "gitUrl" not in body:
            raise InvalidInput("`gitUrl` is missing. Send an empty string to remove the workflow.")
        return JsonResponse(
            await (actions.change_workflow(body) if read_text(body, "gitUrl") else actions.clear_workflow())
        )

    return router


def _mcp_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the route `GET /mcp/status`."""
    router = APIRouter(route_class=YieldingRoute)

    @router.get("/mcp/status")
    async def mcp_status(request: Request) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        if forwarded := await forward_request(runtime, request, "/mcp/status", scope):
            return forwarded
        if not runtime.platform.has_mcp:
            raise HTTPException(404)
        rows = await runtime.platform.mcp_status(scope)
        return JsonResponse({"servers": rows, "totalCount": len(rows)})

    return router


@dataclass(frozen=True, slots=True)
class _PlatformActions:
    """Carries out one request and stores facts for the readers of the thread: the client may have disconnected."""

    platform: Platform
    services: FileServices
    scope: RequestScope
    tokens: dict[str, str] = field(repr=False)

    async def add_repo(self, body: Mapping[str, Any]) -> BackgroundJob[AddedRepo]:
        """Start the clone. Raises: errors that are detected before anything is fetched."""
        url = read_text(body, "url", required=True)
        branch, name = read_text(body, "branch") or None, read_text(body, "name") or None

        def facts_of(added: AddedRepo) -> list[PlatformFact]:
            return [repo_added(added.name, url, added.branch)] if added.newly_cloned else []

        start = partial(self.services.repos.add, self.scope.thread, url, branch=branch, name=name)
        return await self._start_job("repos", start, facts_of)

    async def change_workflow(self, body: Mapping[str, Any]) -> dict[str, Any]:
        url = read_text(body, "gitUrl")
        branch, path = read_text(body, "branch") or None, read_text(body, "path") or None

        def facts_of(changed: WorkflowChange) -> list[PlatformFact]:
            return [workflow_changed(changed.url, changed.branch, changed.path, changed.config)]

        start = partial(self.services.workflows.change, self.scope.thread, url, branch=branch, path=path)
        job = await self._start_job("workflow", start, facts_of)
        changed = await job.wait_for_result()
        fields = {"gitUrl": changed.url, "branch": changed.branch, "path": changed.path}
        return {"message": f"Workflow {changed.outcome}", **fields}

    async def clear_workflow(self) -> dict[str, Any]:
        cleared = await self.services.workflows.clear(self.scope.thread)
        if cleared:
            await self.platform.append_fact(self.scope.thread, workflow_changed("", "", ""))
        message = "Workflow updated" if cleared else "No workflow is active"
        return {"message": message, "gitUrl": "", "branch": "", "path": ""}

    async def _start_job(
        self, stage: str, start: Callable[..., Awaitable[BackgroundJob[T]]], facts_of: Callable[[T], list[PlatformFact]]
    ) -> BackgroundJob[T]:
        """Start a job with the credentials of the request. Its progress and outcome are stored as facts of the thread."""
        grants = await self.platform.grants_for_request(self.scope, self.tokens)
        append_fact = self._fact_writer(grants)

        async def report_job(job: BackgroundJob[T]) -> None:
            if job.error:
                job.error = _redact_error(job.error, grants)
                await append_fact(setup_error(stage, job.error.message))
            for result in job.result:
                for fact in facts_of(result):
                    await append_fact(fact)

        return await start(environment=grants.environment, on_progress=_ProgressFacts(append_fact), on_done=report_job)

    def _fact_writer(self, grants: RequestGrants) -> _AppendFact:
        """Return a function that stores a fact with the request's credentials redacted."""

        async def append_redacted(fact: PlatformFact) -> None:
            await self.platform.append_fact(
                self.scope.thread, fact._replace(value=grants.redactor.redact_value(fact.value))
            )

        return append_redacted


def _redact_error(error: RunnerError, grants: RequestGrants) -> RunnerError:
    """Return a copy of the error with the request's credentials redacted."""
    clean = copy(error).with_traceback(error.__traceback__)
    clean.args = (grants.redactor.redact_text(error.message),)
    clean.__cause__ = error.__cause__
    return clean


class _ProgressFacts:
    """Stores the progress of a clone in few steps: facts are stored permanently."""

    def __init__(self, append_fact: _AppendFact) -> None:
        self._append_fact = append_fact
        self._last_step: CloneProgress | None = None

    async def __call__(self, step: CloneProgress) -> None:
        last = self._last_step
        if last is None or step.phase != last.phase or step.percent >= last.percent + _PROGRESS_STEP:
            self._last_step = step
            await self._append_fact(repo_progress(step))
