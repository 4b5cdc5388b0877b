"""The lock handler to derive your own from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.compat.adk_agui_middleware.base_abc.handler import SessionLockHandler
from ambient_runner.compat.adk_agui_middleware.event.error_event import AGUIErrorEvent

if TYPE_CHECKING:
    from ag_ui.core import RunErrorEvent

    from ambient_runner.compat.adk_agui_middleware.data_model.common import InputInfo, SessionLockConfig

__all__ = ["DefaultSessionLockHandler"]


class DefaultSessionLockHandler(SessionLockHandler):
    """Admits every request: the server's own lock, which its processes share, follows and waits as `lock_config` says."""

    def __init__(self, lock_config: SessionLockConfig) -> None:
        self.lock_config = lock_config

    async def lock(self, input_info: InputInfo) -> bool:
        return True

    async def unlock(self, input_info: InputInfo) -> None:
        return None

    async def get_locked_message(self, input_info: InputInfo) -> RunErrorEvent:
        return AGUIErrorEvent.create_is_locked_error(input_info.session_id)
