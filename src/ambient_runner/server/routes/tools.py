"""Routes that list the tools an agent has. They describe it and give no right: a client's own tools come with its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter, Request, Response

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.toolkit.tools import unique_tools
from ambient_runner.errors import UnknownAgent
from ambient_runner.projections.redaction import Redactor
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.remote_platform import run_of_request
from ambient_runner.server.request_parsing import THREAD_MEMBERS, forwarded_headers, parse_thread_id
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.services.credentials import RequestScope

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Tool
    from ambient_runner.runs.run import Actor
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

__all__ = ["tool_routes"]


def tool_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the routes `GET /tools`, of the default agent or of `?agent=`, and `GET /agents/{name}/tools`."""
    router = APIRouter(route_class=YieldingRoute)

    @router.get("/tools")
    async def list_default(request: Request) -> Response:
        return await _list_tools(runtime, request, await guard(request), request.query_params.get("agent") or "default")

    @router.get("/agents/{name}/tools")
    async def list_named(request: Request, name: str) -> Response:
        return await _list_tools(runtime, request, await guard(request), name)

    return router


async def _list_tools(runtime: ServerRuntime, request: Request, actor: Actor, name: str) -> Response:
    """Return the response. Secrets are redacted from it: a description or a default value may contain one. Raises: UnknownAgent."""
    agent = runtime.agents.get(runtime.resolve_agent(name))
    if not isinstance(agent, AgentHost):
        raise UnknownAgent
    await runtime.ensure_runner()
    scope = _request_scope(runtime, request, actor)
    run = run_of_request(runtime, agent.name, request, scope)
    tools = unique_tools([*await agent.list_tools(run), *await _mcp_tools(runtime, agent, scope)])
    body = {"agent": agent.name, "tools": msgspec.to_builtins(tools)}
    return JsonResponse(Redactor(run.secrets).redact_value(body))


def _request_scope(runtime: ServerRuntime, request: Request, actor: Actor) -> RequestScope:
    """Return the actor of the request, and the thread if it names one; otherwise the thread's id is empty. Raises: InvalidInput."""
    default = runtime.settings.default_thread
    is_named = default or any(request.query_params.get(member) for member in THREAD_MEMBERS)
    thread_id = parse_thread_id(request.query_params, default=default) if is_named else ""
    headers = forwarded_headers(request, runtime.settings.pass_headers)
    return RequestScope(actor=actor, thread=actor.thread_key(thread_id), headers=headers)


async def _mcp_tools(runtime: ServerRuntime, agent: AgentHost, scope: RequestScope) -> list[Tool]:
    """Return the tools of the thread's MCP servers. The server of a remote agent lists its own."""
    if not scope.thread.id or agent.forwarder is not None or not agent.bridge.capabilities().mcp:
        return []
    return await runtime.platform.mcp_tools(scope, agent.bridge.mcp_tool_name)
