"""SessionManager: reads and changes the ADK sessions of threads. A session has the id of its thread.

The server stores threads in its ledger and evicts idle sessions itself, so the limits that a manager is created with have no effect.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, ClassVar

from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.adk.sessions import BaseSessionService, Session

__all__ = ["CONTEXT_STATE_KEY", "INVOCATION_ID_STATE_KEY", "SessionManager"]

CONTEXT_STATE_KEY = "_ag_ui_context"
"""State key of the `context` of a run. Clients cannot see it."""
INVOCATION_ID_STATE_KEY = "_ag_ui_invocation_id"


class SessionManager:
    """The sessions of a session service. Several agents may share one manager."""

    _default: ClassVar[SessionManager | None] = None

    def __init__(
        self,
        session_service: BaseSessionService | None = None,
        memory_service: Any = None,
        session_timeout_seconds: int | None = 1200,
        cleanup_interval_seconds: int = 300,
        max_sessions_per_user: int | None = None,
        delete_session_on_cleanup: bool = True,
        save_session_to_memory_on_cleanup: bool = True,
        use_thread_id_as_session_id: bool = False,
        hitl_max_wait_seconds: int | None = None,
    ) -> None:
        self.session_service: BaseSessionService = session_service or InMemorySessionService()
        self._sessions: dict[tuple[str, str, str], float] = {}

    @classmethod
    def get_default(cls, **options: Any) -> SessionManager:
        """Return the manager of this process, created with the options of the first call."""
        if cls._default is None:
            cls._default = cls(**options)
        return cls._default

    @classmethod
    def reset_default(cls) -> None:
        cls._default = None

    get_instance = get_default
    reset_instance = reset_default

    async def get_or_create_session(
        self, thread_id: str, app_name: str, user_id: str, initial_state: Mapping[str, Any] | None = None, **_: Any
    ) -> tuple[Session, str]:
        """Return the session of a thread and its id; it is created if there is none."""
        session = await self.get_session(thread_id, app_name, user_id)
        if session is None:
            session = await self.session_service.create_session(
                app_name=app_name, user_id=user_id, session_id=thread_id, state=dict(initial_state or {})
            )
        self._sessions[app_name, user_id, thread_id] = time.monotonic()
        return session, session.id

    async def get_session(self, session_id: str, app_name: str, user_id: str) -> Session | None:
        return await self.session_service.get_session(app_name=app_name, user_id=user_id, session_id=session_id)

    async def get_session_state(self, session_id: str, app_name: str, user_id: str) -> dict[str, Any] | None:
        """Return the state of a session; None if there is no such session."""
        session = await self.get_session(session_id, app_name, user_id)
        return None if session is None else dict(session.state)

    async def get_state_value(self, session_id: str, app_name: str, user_id: str, key: str, default: Any = None) -> Any:
        return (await self.get_session_state(session_id, app_name, user_id) or {}).get(key, default)

    async def update_session_state(
        self, session_id: str, app_name: str, user_id: str, state_updates: Mapping[str, Any], merge: bool = True
    ) -> bool:
        """Change the state of a session. Without `merge`, keys that are not in the update become None. Return False without a session."""
        session = await self.get_session(session_id, app_name, user_id)
        if session is None:
            return False
        removed: dict[str, Any] = {} if merge else dict.fromkeys(session.state)
        actions = EventActions(state_delta={**removed, **state_updates})
        event = Event(author="system", invocation_id=f"state-{uuid.uuid4()}", actions=actions)
        await self.session_service.append_event(session, event)
        return True

    async def set_state_value(self, session_id: str, app_name: str, user_id: str, key: str, value: Any) -> bool:
        return await self.update_session_state(session_id, app_name, user_id, {key: value})

    async def remove_state_keys(self, session_id: str, app_name: str, user_id: str, keys: str | Iterable[str]) -> bool:
        """Set the keys to None: ADK cannot remove them."""
        names = [keys] if isinstance(keys, str) else list(keys)
        return await self.update_session_state(session_id, app_name, user_id, dict.fromkeys(names))

    def get_session_count(self) -> int:
        """Return the number of sessions that this manager has created or found."""
        return len(self._sessions)

    def get_user_session_count(self, user_id: str) -> int:
        return sum(user == user_id for _, user, _ in self._sessions)

    async def stop_cleanup_task(self) -> None:
        """Do nothing: there is no such task."""
