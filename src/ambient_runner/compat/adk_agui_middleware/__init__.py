"""The public names of `adk-agui-middleware` 1.5.1 at the same module paths, on `ambient_runner.adk`.

Replace `adk_agui_middleware` by `ambient_runner.compat.adk_agui_middleware` in your imports. `docs/how-to/migrate.md` lists what differs.
"""

from __future__ import annotations

from ambient_runner.compat.adk_agui_middleware.endpoint import (
    register_agui_endpoint,
    register_agui_history_endpoint,
    register_state_endpoint,
)
from ambient_runner.compat.adk_agui_middleware.service.sse_service import SSEService

__all__ = [
    "SSEService",
    "register_agui_endpoint",
    "register_agui_history_endpoint",
    "register_state_endpoint",
]
