"""The page that `ambient serve` shows a browser at `/`: the agents, their addresses and a request to try each with."""

from __future__ import annotations

import json
import shlex
from html import escape
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from ambient_runner.protocol.events import PROTOCOL_VERSION
from ambient_runner.server.error_responses import AmbientRoute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

__all__ = ["curl_command", "home_page_routes"]

_EXAMPLES = {"demo": "weather Lisbon"}
_PAGE = Template((resources.files("ambient_runner.server") / "home_page.html").read_text(encoding="utf-8"))
_AGENT = "<h2>{name}</h2>\n<p><code>POST {url}</code></p>\n<pre>{command}</pre>"


def home_page_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the route `GET /`. Only a request that accepts HTML gets the page: other clients mean `POST /`."""
    router = APIRouter(route_class=AmbientRoute)

    @router.get("/", include_in_schema=False)
    async def get_home_page(request: Request) -> HTMLResponse:
        if "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(405, headers={"Allow": "POST"})
        await guard(request)
        return HTMLResponse(_render_page(str(request.base_url).rstrip("/"), runtime.agents))

    return router


def curl_command(url: str, agent: str, path: str = "/") -> str:
    """Return a curl command that runs the agent. It has no ids, so each use starts a new thread."""
    message = {"role": "user", "content": _EXAMPLES.get(agent, "hello")}
    body = json.dumps({"protocolVersion": PROTOCOL_VERSION, "messages": [message]}, separators=(",", ":"))
    return f"curl -N {url}{path} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _render_page(url: str, agents: Iterable[str]) -> str:
    paths = {name: f"/agents/{name}" if number else "/" for number, name in enumerate(agents)}
    sections = [
        _AGENT.format(name=escape(name), url=escape(url + path), command=escape(curl_command(url, name, path)))
        for name, path in paths.items()
    ]
    return _PAGE.substitute(agents="\n".join(sections))
