"""HistoryService: the threads of a user, and the messages of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.adk import raise_http_errors
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.compat.adk_agui_middleware.service.thread_access import ThreadAccess
from ambient_runner.protocol.agui_models import to_agui

if TYPE_CHECKING:
    from ag_ui.core import MessagesSnapshotEvent
    from fastapi import Request

    from ambient_runner.compat.adk_agui_middleware.data_model.config import HistoryConfig

__all__ = ["HistoryService"]


class HistoryService:
    """Lists, reads and deletes the threads of an SSEService in the same app, or with the same session service."""

    def __init__(self, history_config: HistoryConfig) -> None:
        self.history_config = history_config
        self.threads = ThreadAccess(history_config)

    async def list_threads(self, request: Request) -> list[dict[str, Any]]:
        """Return the threads of the request's user, newest first. Raises: HTTPException."""
        with raise_http_errors():
            sessions = await self.threads.list_sessions(request)
        if self.history_config.get_thread_list is not None:
            return await call_hook(self.history_config.get_thread_list, sessions)
        return [{"threadId": session.id} for session in sessions]

    async def delete_thread(self, request: Request) -> dict[str, str]:
        """Erase a thread and its session; nothing happens if there is none. Raises: HTTPException."""
        with raise_http_errors():
            await self.threads.delete_thread(request)
        return {"status": "deleted"}

    async def get_message_snapshot(self, request: Request) -> MessagesSnapshotEvent:
        """Return the messages of a thread. Raises: HTTPException, 404 for an unknown thread."""
        with raise_http_errors():
            return cast("MessagesSnapshotEvent", to_agui(await self.threads.messages_snapshot(request)))
