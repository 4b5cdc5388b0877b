"""Forward platform requests to the server that runs a thread's agent: it has the thread's workspace, MCP servers and trace."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.exceptions import HTTPException

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import PlatformRequest
from ambient_runner.errors import UnknownAgent
from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.events import RunAgentInput
from ambient_runner.runs.loop_detection import VIA, parse_via_header
from ambient_runner.runs.run import Run
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.request_parsing import THREAD_MEMBERS, git_token_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import Request

    from ambient_runner.bridges.base import PlatformResponse
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.services.credentials import RequestScope

__all__ = ["agent_of_thread", "forward_request", "forward_to_agent", "has_remote_agents", "run_of_request"]


_OWN_PARAMETERS = frozenset({*THREAD_MEMBERS, "agent"})
"""Query parameters that are about this server's thread and agents."""


def has_remote_agents(runtime: ServerRuntime) -> bool:
    """Return True if an agent of this server runs on another one, which may have platform routes."""
    return any(host.forwarder for host in _agent_hosts(runtime).values())


async def forward_request(
    runtime: ServerRuntime, request: Request, path: str, scope: RequestScope, body: Mapping[str, Any] | None = None
) -> JsonResponse | None:
    """Send a request for this route to the server that runs the thread's agent, and return its response; None if the agent runs here.

    Raises: HTTPException if the other server has no such route; RunnerError.
    """
    host = await agent_of_thread(runtime, scope.thread, request.query_params.get("agent"))
    if host is None or host.forwarder is None:
        return None
    response = await forward_to_agent(runtime, host, request, path, scope, body)
    if response is None:
        raise HTTPException(404)
    return JsonResponse(response.body, status_code=response.status)


async def agent_of_thread(runtime: ServerRuntime, thread: ThreadKey, name: str | None = None) -> AgentHost | None:
    """Return the agent of a thread. One without runs has none yet: then the agent of this name, or the first that uses platform routes.

    Raises: UnknownAgent.
    """
    hosts = _agent_hosts(runtime)
    info = await (await runtime.ensure_runner()).ledger.get_thread(thread)
    if info is not None:
        return hosts.get(info.agent)
    if name:
        if name not in hosts:
            raise UnknownAgent
        return hosts[name]
    return next((host for host in hosts.values() if host.forwarder or runtime.platform.features_of(host.name)), None)


async def forward_to_agent(
    runtime: ServerRuntime,
    host: AgentHost,
    request: Request,
    path: str,
    scope: RequestScope,
    body: Mapping[str, Any] | None,
) -> PlatformResponse | None:
    """Send the request to this route of the agent's server, and return its response without the credentials of the request.

    Return None if that server has no such route, or the agent runs here. Raises: RunnerError.
    """
    if host.forwarder is None:
        return None
    tokens = git_token_headers(request)
    run = run_of_request(runtime, host.name, request, scope)
    await to_thread.run_sync(run.secrets.add, list(tokens.values()))  # A client chooses them.
    query = {name: value for name, value in request.query_params.items() if name not in _OWN_PARAMETERS}
    sent = None if body is None else {name: value for name, value in body.items() if name not in THREAD_MEMBERS}
    response = await host.forwarder.forward_platform_request(
        run, PlatformRequest(method=request.method, path=path, query=query, headers=tokens, body=sent)
    )
    return response and replace(response, body=Redactor(run.secrets).redact_value(response.body))


def _agent_hosts(runtime: ServerRuntime) -> dict[str, AgentHost]:
    return {name: agent for name, agent in runtime.agents.items() if isinstance(agent, AgentHost)}


def run_of_request(runtime: ServerRuntime, agent: str, request: Request, scope: RequestScope) -> Run:
    """Return a Run that is not executed: it gives `headers` of a RemoteBridge the actor and headers of this request."""
    key = uuid.uuid4().hex
    return Run(
        key=key,
        thread=scope.thread,
        agent=agent,
        actor=scope.actor,
        trace_id=key,
        input=RunAgentInput(thread_id=scope.thread.id, run_id=key, messages=[]),
        headers=scope.headers,
        via=parse_via_header(request.headers.get(VIA)),
        secrets=runtime.platform.secrets.for_thread(scope.thread),
    )
