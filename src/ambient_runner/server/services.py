"""The doors to what runs stand on: repositories, the workflow, MCP servers. They exist where an agent of this server has a use for them.

What a request begins (a clone, another workflow) belongs to the server: the client may leave, and `?wait=0` lets it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from ambient_runner.errors import InvalidInput, RunnerError
from ambient_runner.server.asked import brought_tokens, read_object, text_of, visit_of
from ambient_runner.server.errors import AmbientRoute, Json
from ambient_runner.server.files import file_routes
from ambient_runner.services.facts import repo_added, repo_progress, repo_removed, setup_error, workflow_changed
from ambient_runner.services.jobs import JobKey
from ambient_runner.services.names import check_branch, check_name, name_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.platform import Disk, Platform
    from ambient_runner.server.service import Service
    from ambient_runner.services.credentials import Visit
    from ambient_runner.services.jobs import Job
    from ambient_runner.services.progress import CloneProgress

_STEP = 10
"""Percent between two facts about a clone: they are stored for good."""


def platform_routes(service: Service, guard: Guard) -> list[APIRouter]:
    """The routes this server's agents have a use for."""
    platform = service.platform
    routers = [_repo_routes(service, guard, disk), file_routes(service, guard, disk)] if (disk := platform.disk) else []
    return [*routers, _mcp_routes(service, guard)] if platform.has_mcp else routers


def _repo_routes(service: Service, guard: Guard, disk: Disk) -> APIRouter:
    """`POST /repos/add`, `POST /repos/remove`, `GET /repos/status` and `POST /workflow`."""
    router = APIRouter(route_class=AmbientRoute)
    platform = service.platform

    @router.post("/repos/add")
    async def add(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        desk = _Desk(platform, disk, await visit_of(service, request, actor, body), brought_tokens(request))
        order = _RepoOrder.read(body)
        name = await order.check(disk)
        job = desk.begin(order, lambda: desk.add(order))
        if request.query_params.get("wait") == "0":
            return Json({"message": "Repository is being cloned", "name": name}, status_code=202)
        return Json(await job.outcome())

    @router.post("/repos/remove")
    async def remove(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        thread = (await visit_of(service, request, actor, body)).thread
        removed = await disk.repos.remove(thread, text_of(body, "name", needed=True))
        await platform.note(thread, repo_removed(removed.name))
        return Json({"message": "Repository removed"})

    @router.get("/repos/status")
    async def status(request: Request) -> Response:
        visit = await visit_of(service, request, await guard(request))
        return Json({"repos": await disk.repos.status(visit.thread)})

    @router.post("/workflow")
    async def workflow(request: Request) -> Response:
        actor = await guard(request)
        body = await read_object(request)
        desk = _Desk(platform, disk, await visit_of(service, request, actor, body), brought_tokens(request))
        order = _WorkflowOrder.read(body)
        return Json(await desk.begin(order, lambda: desk.change(order)).outcome())

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


@dataclass(frozen=True, kw_only=True, slots=True)
class _RepoOrder:
    """A repository that somebody wants in a workspace."""

    url: str
    branch: str
    name: str

    @classmethod
    def read(cls, body: dict[str, Any]) -> _RepoOrder:
        return cls(url=text_of(body, "url", needed=True), branch=text_of(body, "branch"), name=text_of(body, "name"))

    async def check(self, disk: Disk) -> str:
        """Its name. Raises: what can be told before anything is fetched."""
        source = await disk.workspaces.rules.checked(self.url)
        if self.branch:
            check_branch(self.branch)
        return check_name(self.name) if self.name else name_of(source.url)


@dataclass(frozen=True, kw_only=True, slots=True)
class _WorkflowOrder:
    """The workflow somebody wants a thread to have; none without a URL."""

    url: str
    branch: str
    path: str

    @classmethod
    def read(cls, body: dict[str, Any]) -> _WorkflowOrder:
        if "gitUrl" not in body:
            raise InvalidInput("`gitUrl` is missing. Send an empty one to have no workflow.")
        return cls(url=text_of(body, "gitUrl"), branch=text_of(body, "branch"), path=text_of(body, "path"))


@dataclass(frozen=True, slots=True)
class _Desk:
    """Carries out what one request has asked, and tells those who follow the thread."""

    platform: Platform
    disk: Disk
    visit: Visit
    tokens: dict[str, str] = field(repr=False)

    def begin(
        self, order: _RepoOrder | _WorkflowOrder, work: Callable[[], Awaitable[dict[str, Any]]]
    ) -> Job[dict[str, Any]]:
        """The work as a job of the server. The same order on the same thread joins it."""
        return self.disk.jobs.begin(JobKey(self.visit.thread, repr(order)), order, work)

    async def add(self, order: _RepoOrder) -> dict[str, Any]:
        async with self._telling("repos"):
            added = await self.disk.repos.add(
                self.visit.thread,
                order.url,
                branch=order.branch or None,
                name=order.name or None,
                environment=await self.platform.granted(self.visit, self.tokens),
                progress=_Progress(self.platform, self.visit.thread),
            )
        if added.newly_cloned:
            await self.platform.note(self.visit.thread, repo_added(added.name, order.url, added.branch))
        about = {"name": added.name, "path": str(added.path), "newly_cloned": added.newly_cloned}
        return {"message": "Repository added", **about}

    async def change(self, order: _WorkflowOrder) -> dict[str, Any]:
        if not order.url:
            return await self._clear()
        async with self._telling("workflow"):
            changed = await self.disk.workflows.change(
                self.visit.thread,
                order.url,
                branch=order.branch or None,
                path=order.path or None,
                environment=await self.platform.granted(self.visit, self.tokens),
                progress=_Progress(self.platform, self.visit.thread),
            )
        if changed.outcome == "updated":
            fact = workflow_changed(changed.url, changed.branch, changed.path, changed.config)
            await self.platform.note(self.visit.thread, fact)
        about = {"gitUrl": changed.url, "branch": changed.branch, "path": changed.path}
        return {"message": f"Workflow {changed.outcome}", **about}

    async def _clear(self) -> dict[str, Any]:
        cleared = await self.disk.workflows.clear(self.visit.thread)
        if cleared:
            await self.platform.note(self.visit.thread, workflow_changed("", "", ""))
        return {
            "message": f"Workflow {'updated' if cleared else 'already active'}",
            "gitUrl": "",
            "branch": "",
            "path": "",
        }

    @asynccontextmanager
    async def _telling(self, stage: str) -> AsyncGenerator[None, None]:
        """A failure is for those who follow the thread too: the one who asked may have left."""
        try:
            yield
        except RunnerError as error:
            await self.platform.note(self.visit.thread, setup_error(stage, error.message))
            raise


class _Progress:
    """Says how a clone goes on, in few steps: facts are stored for good."""

    def __init__(self, platform: Platform, thread: ThreadKey) -> None:
        self._platform = platform
        self._thread = thread
        self._said: CloneProgress | None = None

    async def __call__(self, step: CloneProgress) -> None:
        said = self._said
        if said is None or step.phase != said.phase or step.percent >= said.percent + _STEP:
            self._said = step
            await self._platform.note(self._thread, repo_progress(step))
