"""The doors for operators and front ends: health, readiness, capabilities, metrics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ambient_runner.bridges.agent_host import Hosted
from ambient_runner.protocol.capabilities import agent_capabilities
from ambient_runner.server.error_responses import AmbientRoute, Json

if TYPE_CHECKING:
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import Service


def status_routes(service: Service, guard: Guard) -> APIRouter:
    """`GET /health`, `/ready`, `/capabilities` and `/metrics`."""
    router = APIRouter(route_class=AmbientRoute)

    @router.get("/health")
    async def health() -> Response:
        return Json({"status": "healthy"})

    @router.get("/ready")
    async def ready() -> Response:
        await service.runner()
        return Json({"status": "ready"}) if service.is_ready else Json({"status": "draining"}, status_code=503)

    @router.get("/capabilities")
    async def capabilities(request: Request) -> Response:
        await guard(request)
        return Json(_capabilities(service))

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        await guard(request)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return router


def _capabilities(service: Service) -> dict[str, Any]:
    hosted = [agent for agent in service.agents.values() if isinstance(agent, Hosted)]
    durable = service.settings.is_durable
    return {
        "framework": asdict(hosted[0].bridge.capabilities()),
        "platform": {
            "history": service.settings.history_mode,
            "resumable": True,
            "durable": durable,
            "interrupts": True,
            "onBusy": service.settings.on_busy,
            "features": service.platform.features,
            "model": service.settings.model or None,
            "defaultThread": service.settings.default_thread or None,
        },
        "agents": {
            agent.name: agent_capabilities(agent.name, agent.bridge.capabilities(), durable=durable) for agent in hosted
        },
    }
