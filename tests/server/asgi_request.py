"""A request whose response is read while it is sent, and whose client can leave. httpx's transport waits for the whole response."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import FastAPI

from tests.machine_speed import unless_hung


class AsgiRequest:
    """A POST to an app that is open. `run` returns when the response has ended."""

    def __init__(self, app: FastAPI, path: str, body: Any, headers: dict[str, str] | None = None) -> None:
        self.status = 0
        self.body = b""
        self._app = app
        self._path = path
        self._content: list[bytes] = [json.dumps(body).encode()]
        self._headers = {"host": "127.0.0.1:8000", "content-type": "application/json", **(headers or {})}
        self._is_over = False
        self._leaves = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in self._headers.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
        }
        await self._app(scope, self._receive, self._send)
        self._is_over = True
        self._changed.set()

    def leave(self) -> None:
        self._leaves.set()

    async def shows(self, part: bytes) -> None:
        """Return when the response has this part."""
        with unless_hung():
            while part not in self.body:
                assert not self._is_over, f"the response has ended: {self.body!r}"
                await self._changed.wait()

    async def _receive(self) -> dict[str, Any]:
        if self._content:
            return {"type": "http.request", "body": self._content.pop(), "more_body": False}
        await self._leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            assert self.status == 0, "a response has one status"
            self.status = message["status"]
        self.body += message.get("body", b"")
        self._changed.set()
        self._changed = asyncio.Event()
