"""The doors to files: what people bring into a thread's workspace, and what its agent leaves for them.

Files go out as bytes to be saved, never as pages: what an agent wrote must not act in the browser as this server.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from ambient_runner.errors import InvalidInput, WrongType
from ambient_runner.server.error_responses import AmbientRoute, Json
from ambient_runner.server.request_parsing import visit_of

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from ambient_runner.server.guard import Guard
    from ambient_runner.server.platform import FileServices
    from ambient_runner.server.runtime import Service
    from ambient_runner.services.workspaces.uploads import FileInfo, Opened

_BYTES = "application/octet-stream"


def file_routes(service: Service, guard: Guard, services: FileServices) -> APIRouter:
    """`POST /files`, `GET /files`, `GET /files/{name}`, `DELETE /files/{name}`, `GET /artifacts` and `GET /artifacts/{path}`."""
    router = APIRouter(route_class=AmbientRoute)
    files = services.files

    @router.post("/files")
    async def upload(request: Request) -> Response:
        visit = await visit_of(service, request, await guard(request))
        name = request.query_params.get("name")
        if not name:
            raise InvalidInput("Say what the file is called: `?name=…`.")
        _require_bytes(request)
        return Json(_shown(await files.save(visit.thread, name, request.stream())), status_code=201)

    @router.get("/files")
    async def uploads(request: Request) -> Response:
        visit = await visit_of(service, request, await guard(request))
        return Json({"files": [_shown(file) for file in await files.uploads(visit.thread)]})

    @router.get("/files/{name}")
    async def download(request: Request, name: str) -> Response:
        visit = await visit_of(service, request, await guard(request))
        return await _sent(files.upload(visit.thread, name))

    @router.delete("/files/{name}")
    async def delete(request: Request, name: str) -> Response:
        visit = await visit_of(service, request, await guard(request))
        await files.delete(visit.thread, name)
        return Json({"name": name, "deleted": True})

    @router.get("/artifacts")
    async def artifacts(request: Request) -> Response:
        visit = await visit_of(service, request, await guard(request))
        return Json({"files": [_shown(file) for file in await files.artifacts(visit.thread)]})

    @router.get("/artifacts/{path:path}")
    async def artifact(request: Request, path: str) -> Response:
        visit = await visit_of(service, request, await guard(request))
        return await _sent(files.artifact(visit.thread, path))

    return router


def _require_bytes(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoded = request.headers.get("content-encoding", "identity").lower() not in {"", "identity"}
    if kind != _BYTES or encoded:
        raise WrongType(f"Send the file's bytes as they are, with `Content-Type: {_BYTES}`.")


def _shown(file: FileInfo) -> dict[str, object]:
    return asdict(file)


async def _sent(opening: AbstractAsyncContextManager[Opened]) -> Response:
    """The file as an answer. Raises: UnknownFile, InvalidInput, TooLarge."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(opening)
        return _Download(opened, stack.pop_all())


class _Download(Response):
    """Sends a file and closes it, whatever becomes of the client. Its length is not promised: the agent may be writing it."""

    def __init__(self, opened: Opened, held: AsyncExitStack) -> None:
        name = quote(opened.info.path.rpartition("/")[2])
        super().__init__(
            media_type=_BYTES,
            headers={
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "sandbox; default-src 'none'",
                "Cache-Control": "no-store",
            },
        )
        del self.headers["content-length"]
        self._opened = opened
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._opened.chunks()) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
