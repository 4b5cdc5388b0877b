"""The page that `ambient serve` shows a browser at `/`: the agents, their addresses and a request to try each with."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from html import escape
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from ambient_runner.protocol.events import PROTOCOL_VERSION
from ambient_runner.server.error_responses import AmbientRoute, error_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

__all__ = ["curl_command", "home_page_routes"]

_EXAMPLES = {"demo": "weather Lisbon"}
_PAGE = Template((resources.files("ambient_runner.server") / "home_page.html").read_text(encoding="utf-8"))
_AGENT = "<h2>{name}</h2>\n<p><code>POST {url}</code></p>\n<pre>{command}</pre>"
_STYLE = _PAGE.template.partition("<style>")[2].partition("</style>")[0]
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_VARY = {"Vary": "Accept"}
_PAGE_HEADERS = {
    **_VARY,
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_METHODS = ("GET", "HEAD")
_QUALITY = re.compile(r"0(\.[0-9]*)?|1(\.0*)?")


def home_page_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the route `GET /`. Only a request that asks for HTML gets the page: other clients mean `POST /`."""
    router = APIRouter(route_class=AmbientRoute)

    @router.api_route("/", methods=list(_METHODS), include_in_schema=False)
    async def get_home_page(request: Request) -> Response:
        if not _accepts_html(",".join(request.headers.getlist("accept"))):
            return _refer_to_post()
        await guard(request)
        return HTMLResponse(_render_page(str(request.base_url).rstrip("/"), runtime.agents), headers=_PAGE_HEADERS)

    return router


def _refer_to_post() -> Response:
    message = "`GET /` is a page for browsers: it needs `Accept: text/html`. To start a run, send a RunAgentInput with `POST /`."
    return error_response("method_not_allowed", message, 405, {"Allow": ", ".join((*_METHODS, "POST")), **_VARY})


def _accepts_html(accept: str) -> bool:
    """Return True if an Accept header asks for HTML: `text/html` or else `text/*`, with a quality above 0.

    `*/*` alone does not: curl and HTTP libraries send it for any request.
    """
    qualities: dict[str, float] = {}
    for media_range in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        quality = next((value[2:].strip() for value in parameters if value.startswith("q=")), "1")
        if _QUALITY.fullmatch(quality):
            qualities[media_type] = max(float(quality), qualities.get(media_type, 0))
    return qualities.get("text/html", qualities.get("text/*", 0)) > 0


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
