"""Ambient Runner: put any agent behind one durable, safe AG-UI endpoint.

A public name is imported when it is first used: commands that need no server start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULES = {
    "SNAPSHOT_MARKER": "ambient_runner.runs.framing",
    "Actor": "ambient_runner.runs.run",
    "CredentialSubject": "ambient_runner.services.credentials",
    "FrameworkCapabilities": "ambient_runner.bridges.base",
    "Middleware": "ambient_runner.runs.run",
    "PlatformBridge": "ambient_runner.bridges.base",
    "PlatformContext": "ambient_runner.bridges.base",
    "Run": "ambient_runner.runs.run",
    "RunHandler": "ambient_runner.runs.run",
    "RunInterrupted": "ambient_runner.errors",
    "RunnerError": "ambient_runner.errors",
    "Settings": "ambient_runner.config",
    "StoredFact": "ambient_runner.projections.projectors",
    "Timeouts": "ambient_runner.config",
    "add_ambient_endpoints": "ambient_runner.server.app",
    "base_environment": "ambient_runner.config",
    "create_app": "ambient_runner.server.app",
    "current_run": "ambient_runner.runs.run",
    "current_run_or_none": "ambient_runner.runs.run",
    "register_projector": "ambient_runner.runs.product_facts",
    "remember": "ambient_runner.bridges.base",
}


def __getattr__(name: str) -> object:
    """Import the module of a public name. Raises: AttributeError if it is none."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
