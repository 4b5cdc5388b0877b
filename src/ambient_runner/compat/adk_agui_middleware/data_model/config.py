"""Configuration of ADK's services, of the routes, and of the history and state services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ambient_runner.adk import RunnerConfig

if TYPE_CHECKING:
    from fastapi import Request
    from google.adk.sessions import BaseSessionService, Session

__all__ = ["HistoryConfig", "HistoryPathConfig", "PathConfig", "RunnerConfig", "StateConfig", "StatePathConfig"]

RequestExtractor = Callable[["Request"], "str | Awaitable[str]"]
"""Extracts a string from a request. A plain or async function."""


@dataclass(kw_only=True)
class PathConfig:
    """Path of the route that starts a run. Empty: `/`, or the prefix of the router."""

    agui_main_path: str = ""


@dataclass(kw_only=True)
class HistoryPathConfig(PathConfig):
    """Paths of the history routes."""

    agui_message_snapshot_path: str = "/message_snapshot/{thread_id}"
    agui_thread_list_path: str = "/thread/list"
    agui_thread_delete_path: str = "/thread/{thread_id}"


@dataclass(kw_only=True)
class StatePathConfig(PathConfig):
    """Paths of the state routes."""

    agui_patch_state_path: str = "/state/{thread_id}"
    agui_state_snapshot_path: str = "/state_snapshot/{thread_id}"


@dataclass(kw_only=True)
class ThreadConfig:
    """Identity of a request for a thread: fixed values, or plain or async functions of the request.

    `session_service` is that of the RunnerConfig whose threads these are; with one SSEService in the app it is not needed.
    """

    user_id: str | RequestExtractor
    session_id: str | RequestExtractor
    app_name: str | RequestExtractor = "default"
    session_service: BaseSessionService | None = None


@dataclass(kw_only=True)
class HistoryConfig(ThreadConfig):
    """Configuration of a HistoryService. `get_thread_list` makes the response from ADK sessions without events.

    The last four fields have no effect: the history is what clients were sent, after the handlers of the run.
    """

    get_thread_list: Callable[[list[Session]], Awaitable[list[dict[str, Any]]] | list[dict[str, Any]]] | None = None
    retune_on_stream_complete: bool = False
    adk_event_handler: Any = None
    agui_event_handler: Any = None
    translate_handler: Any = None


@dataclass(kw_only=True)
class StateConfig(ThreadConfig):
    """Configuration of a StateService. `get_state` changes the state before it is sent."""

    get_state: Callable[[dict[str, Any]], Awaitable[dict[str, Any]] | dict[str, Any]] | None = None
