"""Base classes of the handlers of a `HandlerContext`. A handler need not have one of them: its methods count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import BaseEvent, RunErrorEvent
    from google.adk.events import Event

    from ambient_runner.compat.adk_agui_middleware.data_model.common import InputInfo, SessionLockConfig
    from ambient_runner.compat.adk_agui_middleware.data_model.event import TranslateEvent

__all__ = [
    "BaseADKEventHandler",
    "BaseADKEventTimeoutHandler",
    "BaseAGUIEventHandler",
    "BaseAGUIStateSnapshotHandler",
    "BaseInOutHandler",
    "BaseTranslateHandler",
    "SessionLockHandler",
]


class SessionLockHandler(ABC):
    """A lock of your own, acquired before the lock of the server. One instance per service."""

    @abstractmethod
    def __init__(self, lock_config: SessionLockConfig) -> None: ...

    @abstractmethod
    async def lock(self, input_info: InputInfo) -> bool:
        """Return True if the request may start a run."""

    @abstractmethod
    async def unlock(self, input_info: InputInfo) -> None:
        """Release the lock. Called once for every lock that was acquired."""

    @abstractmethod
    async def get_locked_message(self, input_info: InputInfo) -> RunErrorEvent:
        """Return the error for a request that did not get the lock."""


class BaseTranslateHandler(ABC):
    """Translates ADK events before the default translation."""

    @abstractmethod
    def __init__(self, input_info: InputInfo | None) -> None: ...

    @abstractmethod
    def translate(self, adk_event: Event) -> AsyncGenerator[TranslateEvent, None]:
        """Yield AG-UI events to send, and if the default translation is skipped or gets another ADK event."""


class BaseADKEventHandler(ABC):
    """Changes, filters or adds ADK events."""

    @abstractmethod
    def __init__(self, input_info: InputInfo | None) -> None: ...

    @abstractmethod
    def process(self, event: Event) -> AsyncGenerator[Event | None, None]:
        """Yield the ADK events to continue with."""


class BaseADKEventTimeoutHandler(ABC):
    """Limits the time of a run."""

    @abstractmethod
    def __init__(self, input_info: InputInfo | None) -> None: ...

    @abstractmethod
    async def get_timeout(self) -> int:
        """Return the seconds that the agent may take."""

    @abstractmethod
    def process_timeout_fallback(self) -> AsyncGenerator[Event | None, None]:
        """Yield the ADK events to continue with after the timeout."""


class BaseAGUIEventHandler(ABC):
    """Changes, filters or adds AG-UI events."""

    @abstractmethod
    def __init__(self, input_info: InputInfo | None) -> None: ...

    @abstractmethod
    def process(self, event: BaseEvent) -> AsyncGenerator[BaseEvent | None, None]:
        """Yield the AG-UI events to continue with."""


class BaseAGUIStateSnapshotHandler(ABC):
    """Changes the final state snapshot of a run."""

    @abstractmethod
    def __init__(self, input_info: InputInfo | None) -> None: ...

    @abstractmethod
    async def process(self, state_snapshot: dict[str, Any]) -> dict[str, Any] | None:
        """Return the state to send; None for no snapshot."""


class BaseInOutHandler(ABC):
    """Records the request and every event of its run."""

    @abstractmethod
    async def input_record(self, input_info: InputInfo) -> None:
        """Record the request, before anything is locked."""

    @abstractmethod
    async def output_record(self, agui_event: BaseEvent) -> None:
        """Record an event."""

    @abstractmethod
    async def output_catch_and_change(self, agui_event: BaseEvent) -> BaseEvent:
        """Return the event to send."""
