"""StateService: the state of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ag_ui.core import StateSnapshotEvent

from ambient_runner.adk import raise_http_errors
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.compat.adk_agui_middleware.service.thread_access import ThreadAccess

if TYPE_CHECKING:
    from fastapi import Request

    from ambient_runner.compat.adk_agui_middleware.data_model.config import StateConfig

__all__ = ["StateService"]


class StateService:
    """Reads and patches the state of the threads of an SSEService in the same app, or with the same session service."""

    def __init__(self, state_config: StateConfig) -> None:
        self.state_config = state_config
        self.threads = ThreadAccess(state_config)

    async def get_state_snapshot(self, request: Request) -> StateSnapshotEvent:
        """Return the state of a thread, as `get_state` changes it. Raises: HTTPException, 404 for an unknown thread."""
        with raise_http_errors():
            state = (await self.threads.state_snapshot(request)).snapshot
        if self.state_config.get_state is not None:
            state = await call_hook(self.state_config.get_state, state)
        return StateSnapshotEvent(snapshot=state)

    async def read_patch(self, request: Request) -> list[dict[str, Any]]:
        """Return the JSON Patch in the body of a request, after its user is identified. Raises: HTTPException."""
        with raise_http_errors():
            return await self.threads.read_patch(request)

    async def patch_state(self, request: Request, state_patch: list[dict[str, Any]]) -> dict[str, str]:
        """Apply a JSON Patch to the state of a thread. Raises: HTTPException, 404 for an unknown thread, 400 or 409 for the patch."""
        with raise_http_errors():
            await self.threads.patch_state(request, state_patch)
        return {"status": "updated"}
