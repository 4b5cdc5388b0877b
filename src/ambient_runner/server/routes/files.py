"""Routes for files: uploads to a thread's workspace, and artifacts that its agent writes.

Files are sent as downloads, never as pages: what an agent wrote must not run in the browser with this server's origin.
"""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from ambient_runner.errors import FileWithheld, InvalidInput, UnsupportedMediaType
from ambient_runner.projections.redaction import Redactor
from ambient_runner.runs.client_secrets import report_client_secret
from ambient_runner.server.bounded_send import send_chunks
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.request_parsing import read_chunks, request_scope
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.services.file_search import MAX_SEARCHED_BYTES, CapturedStream, file_contains_secret
from ambient_runner.services.platform_facts import file_deleted, file_uploaded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
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
        captured = CapturedStream(read_chunks(request))
        async with aclosing(captured.chunks()) as chunks:
            saved = await files.save_upload(scope.thread, name, chunks)
        redactor = Redactor(runtime.platform.secrets.without_patterns())
        if await file_contains_secret(name, [captured.data], redactor):
            report_client_secret("upload", scope.thread)
        await runtime.platform.append_fact(scope.thread, file_uploaded(saved.path, saved.size))
        # As the client sent it: no answer tells that it guessed right.
        return JsonResponse(_file_json(saved), status_code=201)

    @router.get("/files")
    async def list_uploads(request: Request) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return _list_response(
            await files.list_uploads(scope.thread), runtime.platform.secrets.new_redactor(scope.thread)
        )

    @router.get("/files/{name}")
    async def download_file(request: Request, name: str) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return await _file_response(
            files.open_upload(scope.thread, name),
            runtime.platform.secrets.new_value_redactor(scope.thread),
            runtime.settings.slow_reader,
        )

    @router.delete("/files/{name}")
    async def delete_file(request: Request, name: str) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        await files.delete_upload(scope.thread, name)
        await runtime.platform.append_fact(scope.thread, file_deleted(name))
        return JsonResponse({"name": name, "deleted": True})

    _add_artifact_routes(router, runtime, guard, services)
    return router


def _add_artifact_routes(router: APIRouter, runtime: ServerRuntime, guard: Guard, services: FileServices) -> None:
    @router.get("/artifacts")
    async def list_artifacts(request: Request) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return _list_response(
            await services.files.list_artifacts(scope.thread), runtime.platform.secrets.new_redactor(scope.thread)
        )

    @router.get("/artifacts/{path:path}")
    async def download_artifact(request: Request, path: str) -> Response:
        scope = await request_scope(runtime, request, await guard(request))
        return await _file_response(
            services.files.open_artifact(scope.thread, path),
            runtime.platform.secrets.new_value_redactor(scope.thread),
            runtime.settings.slow_reader,
        )


def _require_bytes(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoded = request.headers.get("content-encoding", "identity").lower() not in {"", "identity"}
    if kind != _BYTES_TYPE or encoded:
        raise UnsupportedMediaType(f"Send the raw bytes of the file, with `Content-Type: {_BYTES_TYPE}`.")


def _file_json(file: FileInfo) -> dict[str, object]:
    return asdict(file)


def _list_response(files: list[FileInfo], redactor: Redactor) -> JsonResponse:
    """Return a list of files. A secret in a name is replaced: such a file cannot be downloaded until it is renamed."""
    return JsonResponse({"files": redactor.redact_value([_file_json(file) for file in files])})


async def _file_response(
    opening: AbstractAsyncContextManager[OpenFile], redactor: Redactor, slow_reader: float
) -> Response:
    """Return the file as a response. One that is small enough to be searched is sent as it was when it was searched.

    Raises: UnknownFile, InvalidInput, PayloadTooLarge; FileWithheld if its name or its content holds a secret.
    """
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(opening)
        if opened.info.size > MAX_SEARCHED_BYTES:
            return _DownloadResponse(opened, opened.chunks(), stack.pop_all(), slow_reader)
        async with aclosing(opened.chunks()) as chunks:
            data = deque([chunk async for chunk in chunks])
        if await file_contains_secret(opened.info.path, data, redactor):
            raise FileWithheld
        return _DownloadResponse(opened, _release_chunks(data), stack.pop_all(), slow_reader)


async def _release_chunks(chunks: deque[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks. Those that were sent are not held while the client reads the rest."""
    while chunks:
        yield chunks.popleft()


class _DownloadResponse(Response):
    """Sends a file and closes it, even if the client disconnects. No Content-Length: the agent may be writing the file."""

    def __init__(
        self, opened: OpenFile, chunks: AsyncGenerator[bytes, None], held: AsyncExitStack, slow_reader: float
    ) -> None:
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
        self._chunks = chunks
        self._exit_stack = held
        self._slow_reader = slow_reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._exit_stack:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._chunks) as chunks:
                await send_chunks(scope, send, chunks, self._slow_reader)
