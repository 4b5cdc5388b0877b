"""Ambient Runner: put any agent behind one durable, safe AG-UI endpoint."""

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext, remember
from ambient_runner.config import Settings, Timeouts, base_environment
from ambient_runner.errors import RunInterrupted, RunnerError
from ambient_runner.projections.projectors import StoredFact
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.product_facts import register_projector
from ambient_runner.runs.run import Actor, Middleware, Run, RunHandler, current_run, current_run_or_none
from ambient_runner.server.app import add_ambient_endpoints, create_app
from ambient_runner.services.credentials import CredentialSubject

__all__ = [
    "SNAPSHOT_MARKER",
    "Actor",
    "CredentialSubject",
    "FrameworkCapabilities",
    "Middleware",
    "PlatformBridge",
    "PlatformContext",
    "Run",
    "RunHandler",
    "RunInterrupted",
    "RunnerError",
    "Settings",
    "StoredFact",
    "Timeouts",
    "add_ambient_endpoints",
    "base_environment",
    "create_app",
    "current_run",
    "current_run_or_none",
    "register_projector",
    "remember",
]
