"""Ambient Runner: put any agent behind one durable, safe AG-UI endpoint."""

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.config import Settings, Timeouts, harmless_environment
from ambient_runner.errors import Parked, RunnerError
from ambient_runner.runs.run import Actor, Run, current_run
from ambient_runner.server.app import add_ambient_endpoints, create_app
from ambient_runner.services.credentials import Asker

__all__ = [
    "Actor",
    "Asker",
    "FrameworkCapabilities",
    "Parked",
    "PlatformBridge",
    "PlatformContext",
    "Run",
    "RunnerError",
    "Settings",
    "Timeouts",
    "add_ambient_endpoints",
    "create_app",
    "current_run",
    "harmless_environment",
]
