"""Routes for files: uploads to a thread's workspace, and artifacts that its agent writes.

Files are sent as downloads, never as pages: what an agent wrote must not run in the browser with this server's origin.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from ambient_runner.errors import InvalidInput, UnsupportedMediaType
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.request_parsing import request_scope
from ambient_runner.server.routes.base import YieldingRoute

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from ambient_runner.server.guard import Guard
    from ambient_runner.server.platform import FileServices
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.services.workspaces.uploads import FileInfo, OpenFile

_BYTES_TYPE = "application/octet-stream"


def file_routes(runtime: ServerRuntime, guard: Guard, services: FileServices) -> APIRouter:
    """Return `POST /files`, `GET /files`, `GET /files/{name}`, `DELETE /files/{name}`, `GET /artifacts` and `GET /artifacts/{path}`."""
    router = APIRouter(route_class=YieldingRoute)
    files = services.files

    @router.post("/files")
    async def upload_file(request: Request) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        name = request.query_params.get("name")
        if not name:
            raise InvalidInput("The file name is missing. Add `?name=…` to the URL.")
        _require_bytes(request)
        return JsonResponse(_file_json(await files.save_upload(scope.thread, name, request.stream())), status_code=201)

    @router.get("/files")
    async def list_uploads(request: Request) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return JsonResponse({"files": [_file_json(file) for file in await files.list_uploads(scope.thread)]})

    @router.get("/files/{name}")
    async def download_file(request: Request, name: str) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return await _file_response(files.open_upload(scope.thread, name))

    @router.delete("/files/{name}")
    async def delete_file(request: Request, name: str) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        await files.delete_upload(scope.thread, name)
        return JsonResponse({"name": name, "deleted": True})

    @router.get("/artifacts")
    async def list_artifacts(request: Request) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return JsonResponse({"files": [_file_json(file) for file in await files.list_artifacts(scope.thread)]})

    @router.get("/artifacts/{path:path}")
    async def download_artifact(request: Request, path: str) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return await _file_response(files.open_artifact(scope.thread, path))

    return router


def _require_bytes(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoded = request.headers.get("content-encoding", "identity").lower() not in {"", "identity"}
    if kind != _BYTES_TYPE or encoded:
        raise UnsupportedMediaType(f"Send the raw bytes of the file, with `Content-Type: {_BYTES_TYPE}`.")


def _file_json(file: FileInfo) -> dict[str, object]:
    return asdict(file)


async def _file_response(opening: AbstractAsyncContextManager[OpenFile]) -> Response:
    """Return the file as a response. Raises: UnknownFile, InvalidInput, PayloadTooLarge."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(opening)
        return _DownloadResponse(opened, stack.pop_all())


class _DownloadResponse(Response):
    """Sends a file and closes it, even if the client disconnects. No Content-Length: the agent may be writing the file."""

    def __init__(self, opened: OpenFile, held: AsyncExitStack) -> None:
        name = quote(opened.info.path.rpartition("/")[2])
        super().__init__(
            media_type=_BYTES_TYPE,
            headers={
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "sandbox; default-src 'none'",
                "Cache-Control": "no-store",
            },
        )
        del self.headers["content-length"]
        self._opened = opened
        self._exit_stack = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._exit_stack:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._opened.chunks()) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
