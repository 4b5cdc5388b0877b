"""The request of the current run for nodes: the client's tools and context, and the platform's settings.

It is passed in the run's `configurable`, so it also reaches subgraphs, and a graph on a LangGraph server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.config import get_config

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REQUEST_KEY", "platform", "read_request", "request_context"]

REQUEST_KEY = "ag_ui"
"""Key in `configurable` of `{"tools": […], "context": […], "platform": {…}}`."""


def read_request() -> Mapping[str, Any]:
    """Return the request of the current run; empty outside of a run."""
    try:
        return get_config().get("configurable", {}).get(REQUEST_KEY) or {}
    except RuntimeError:
        return {}  # Outside of a run there is no request: a graph can still be tested on its own.


def request_context() -> list[dict[str, str]]:
    """Return the context entries of the client, each with `description` and `value`."""
    return list(read_request().get("context") or ())


def platform() -> dict[str, Any]:
    """Return the platform's settings that have a value: `model`, `max_tokens`, `temperature`, `system_prompt_append`, `workspace_path`,
    `cwd_path`.
    """
    return dict(read_request().get("platform") or {})
