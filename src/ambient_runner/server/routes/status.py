"""Routes for operators and front ends: health, readiness, capabilities, metrics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import DescribesIsolation
from ambient_runner.errors import LedgerError, UnknownAgent
from ambient_runner.protocol.capabilities import agent_capabilities
from ambient_runner.runs.metrics import OPERATOR_METRICS
from ambient_runner.runs.run import Actor
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.routes.base import YieldingRoute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime


def status_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the routes `GET /health`, `/ready`, `/capabilities` and `/metrics`."""
    router = APIRouter(route_class=YieldingRoute)

    @router.head("/health", include_in_schema=False)  # Load balancers and monitors ask with HEAD too.
    @router.get("/health")
    async def check_health(request: Request) -> Response:
        guard.check_host(request)
        return JsonResponse({"status": "healthy"})

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready")
    async def check_ready(request: Request) -> Response:
        guard.check_host(request)
        await runtime.ensure_runner()
        if not runtime.is_ready:
            return JsonResponse({"status": "draining"}, status_code=503)
        if reason := runtime.store_failure:
            return JsonResponse({"status": LedgerError.code, "reason": reason}, status_code=503)
        return JsonResponse({"status": "ready"})

    @router.get("/capabilities")
    async def get_capabilities(request: Request) -> Response:
        await guard(request)
        return JsonResponse(_describe_capabilities(runtime, request.query_params.get("agent")))

    @router.get("/metrics")
    async def get_metrics(request: Request) -> Response:
        actor = await guard(request)
        registry = REGISTRY if _is_operator(actor, runtime.settings.operators) else _ClientMetrics()
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _is_operator(actor: Actor, operators: Sequence[str]) -> bool:
    """Return True for the user of this machine, and for the owners that the setting names."""
    names = {f"{actor.tenant}/{actor.owner}", *([actor.owner] if actor.tenant == Actor().tenant else [])}
    return actor == Actor() or not names.isdisjoint(operators)


class _ClientMetrics(CollectorRegistry):
    """The metrics that every client may read."""

    def collect(self) -> Iterator[Metric]:
        return (metric for metric in REGISTRY.collect() if metric.name not in OPERATOR_METRICS)


def _describe_capabilities(runtime: ServerRuntime, name: str | None) -> dict[str, Any]:
    """Return the capabilities of the server and its default agent, or of the agent of this name. Raises: UnknownAgent."""
    hosted = {agent.name: agent for agent in runtime.agents.values() if isinstance(agent, AgentHost)}
    described = hosted.get(name or runtime.default_agent)
    if described is None:
        raise UnknownAgent
    is_durable = runtime.settings.is_durable
    return {
        "framework": asdict(described.bridge.capabilities()),
        "platform": {
            "history": runtime.settings.history_mode,
            "audience": runtime.audiences.name_for(described.name),
            "resumable": True,
            "durable": is_durable,
            "interrupts": True,
            "onBusy": runtime.settings.on_busy,
            "features": runtime.platform.features_of(*([name] if name else hosted)),
            "model": runtime.settings.model or None,
            "defaultThread": runtime.settings.default_thread or None,
            **_isolation_of(described),
        },
        "agents": {
            agent.name: agent_capabilities(
                agent.name,
                agent.bridge.capabilities(),
                durable=is_durable,
                audience=runtime.audiences.name_for(agent.name),
                features=runtime.platform.features_of(agent.name),
            )
            for agent in hosted.values()
        },
    }


def _isolation_of(agent: AgentHost) -> dict[str, Any]:
    """Return the limits of an agent that is a process of its own; nothing for others."""
    bridge = agent.bridge
    return {"isolation": dict(bridge.describe_isolation())} if isinstance(bridge, DescribesIsolation) else {}
