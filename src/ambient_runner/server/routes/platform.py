"""The doors to what runs stand on: repositories, the workflow, MCP servers, and the files that `files.py` opens. They exist where an agent
of this server has a use for them.

What a request begins (a clone, another workflow) belongs to the server: the client may leave, and `?wait=0` lets it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Request, Response

from ambient_runner.errors import InvalidInput
from ambient_runner.server.error_responses import AmbientRoute, Json
from ambient_runner.server.request_parsing import brought_tokens, read_object, text_of, visit_of
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
    from ambient_runner.server.platform import FileServices, Granted, Platform
    from ambient_runner.server.runtime import Service
    from ambient_runner.services.background_jobs import Job
    from ambient_runner.services.credentials import Visit
    from ambient_runner.services.platform_facts import News
    from ambient_runner.services.workspaces.clone import CloneProgress
    from ambient_runner.services.workspaces.repos import Added
    from ambient_runner.services.workspaces.workflows import Changed

    _Note = Callable[[News], Awaitable[None]]

T = TypeVar("T")

_STEP = 10
"""Percent between two facts about a clone: they are stored for good."""


def platform_routes(service: Service, guard: Guard) -> list[APIRouter]:
    """The routes this server's agents have a use for."""
    services = service.platform.file_services
    routers: list[APIRouter] = []
    if services:
        routers += [make(service, guard, services) for make in (_repo_routes, _workflow_routes, file_routes)]
    if service.platform.has_mcp:
        routers += [_mcp_routes(service, guard)]
    return routers


def _repo_routes(service: Service, guard: Guard, services: FileServices) -> APIRouter:
    """`POST /repos/add`, `POST /repos/remove` and `GET /repos/status`."""
    router = APIRouter(route_class=AmbientRoute)
    platform = service.platform

    @router.post("/repos/add")
    async def add(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        desk = _Desk(platform, services, await visit_of(service, request, actor, body), brought_tokens(request))
        job = await desk.add(body)
        if request.query_params.get("wait") == "0":
            return Json({"message": "Repository is being cloned", "name": job.key.name}, status_code=202)
        added = await job.outcome()
        about = {"name": added.name, "path": str(added.path), "newly_cloned": added.newly_cloned}
        return Json({"message": "Repository added", **about})

    @router.post("/repos/remove")
    async def remove(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        thread = (await visit_of(service, request, actor, body)).thread
        removed = await services.repos.remove(thread, text_of(body, "name", needed=True))
        await platform.note(thread, repo_removed(removed.name))
        return Json({"message": "Repository removed"})

    @router.get("/repos/status")
    async def status(request: Request) -> Response:
        visit = await visit_of(service, request, await guard(request))
        return Json({"repos": await services.repos.status(visit.thread)})

    return router


def _workflow_routes(service: Service, guard: Guard, services: FileServices) -> APIRouter:
    """`POST /workflow`."""
    router = APIRouter(route_class=AmbientRoute)

    @router.post("/workflow")
    async def workflow(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        desk = _Desk(service.platform, services, await visit_of(service, request, actor, body), brought_tokens(request))
        if "gitUrl" not in body:
            raise InvalidInput("`gitUrl` is missing. Send an empty one to have no workflow.")
        return Json(await (desk.change(body) if text_of(body, "gitUrl") else desk.clear()))

    return router


def _mcp_routes(service: Service, guard: Guard) -> APIRouter:
    """`GET /mcp/status`."""
    router = APIRouter(route_class=AmbientRoute)

    @router.get("/mcp/status")
    async def status(request: Request) -> Response:
        visit = await visit_of(service, request, await guard(request))
        rows = await service.platform.mcp_rows(visit)
        return Json({"servers": rows, "totalCount": len(rows)})

    return router


@dataclass(frozen=True, slots=True)
class _Desk:
    """Carries out what one request has asked, and tells those who follow the thread: the one who asked may have left."""

    platform: Platform
    services: FileServices
    visit: Visit
    tokens: dict[str, str] = field(repr=False)

    async def add(self, body: Mapping[str, Any]) -> Job[Added]:
        """The clone that is asked for. Raises: what can be told before anything is fetched."""
        url = text_of(body, "url", needed=True)
        branch, name = text_of(body, "branch") or None, text_of(body, "name") or None

        def news(added: Added) -> list[News]:
            return [repo_added(added.name, url, added.branch)] if added.newly_cloned else []

        begin = partial(self.services.repos.add, self.visit.thread, url, branch=branch, name=name)
        return await self._begin("repos", begin, news)

    async def change(self, body: Mapping[str, Any]) -> dict[str, Any]:
        url = text_of(body, "gitUrl")
        branch, path = text_of(body, "branch") or None, text_of(body, "path") or None

        def news(changed: Changed) -> list[News]:
            return [workflow_changed(changed.url, changed.branch, changed.path, changed.config)]

        begin = partial(self.services.workflows.change, self.visit.thread, url, branch=branch, path=path)
        job = await self._begin("workflow", begin, news)
        changed = await job.outcome()
        about = {"gitUrl": changed.url, "branch": changed.branch, "path": changed.path}
        return {"message": f"Workflow {changed.outcome}", **about}

    async def clear(self) -> dict[str, Any]:
        cleared = await self.services.workflows.clear(self.visit.thread)
        if cleared:
            await self.platform.note(self.visit.thread, workflow_changed("", "", ""))
        message = "Workflow updated" if cleared else "No workflow is active"
        return {"message": message, "gitUrl": "", "branch": "", "path": ""}

    async def _begin(
        self, stage: str, begin: Callable[..., Awaitable[Job[T]]], news: Callable[[T], list[News]]
    ) -> Job[T]:
        """Begin this with what is granted to the request. Those who follow the thread hear how it goes and how it ended."""
        granted = await self.platform.granted(self.visit, self.tokens)
        note = self._noting(granted)

        async def tell(job: Job[T]) -> None:
            if job.error:
                job.error = _cleaned(job.error, granted)
                await note(setup_error(stage, job.error.message))
            for result in job.result:
                for fact in news(result):
                    await note(fact)

        return await begin(environment=granted.environment, progress=_Progress(note), then=tell)

    def _noting(self, granted: Granted) -> _Note:
        """Tells those who follow the thread, without what was granted to this request."""

        async def note(news: News) -> None:
            await self.platform.note(self.visit.thread, news._replace(value=granted.redactor.redact_value(news.value)))

        return note


def _cleaned(error: RunnerError, granted: Granted) -> RunnerError:
    """The same error for whomever waits for the job, without what was granted."""
    clean = copy(error).with_traceback(error.__traceback__)
    clean.args = (granted.redactor.redact_text(error.message),)
    clean.__cause__ = error.__cause__
    return clean


class _Progress:
    """Says how a clone goes on, in few steps: facts are stored for good."""

    def __init__(self, note: _Note) -> None:
        self._note = note
        self._said: CloneProgress | None = None

    async def __call__(self, step: CloneProgress) -> None:
        said = self._said
        if said is None or step.phase != said.phase or step.percent >= said.percent + _STEP:
            self._said = step
            await self._note(repo_progress(step))
