"""The request of the current run for nodes: the client's tools and context, and the platform's settings.

It is passed in the run's `configurable`, so it also reaches subgraphs, and a graph on a LangGraph server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.config import get_config

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REQUEST_KEY", "OfferedTools", "platform", "read_request", "request_context"]

REQUEST_KEY = "ag_ui"
"""Key in `configurable` of `{"tools": […], "context": […], "platform": {…}}`."""


class OfferedTools(list[dict[str, Any]]):
    """The client's tools in the request of a run. It records if the graph offers them to a model."""

    is_offered = False
    """True if a node has read them, or a model was offered one of them."""
    has_model_call = False
    """True if the graph has called a model."""

    def record_model_call(self, offered: Any) -> None:
        """Record a model call with these tools, in any provider's format."""
        self.has_model_call = True
        text = str(offered) if offered and not self.is_offered else ""
        self.is_offered = self.is_offered or any(tool["function"]["name"] in text for tool in self)

    def ignored_names(self) -> list[str]:
        """Return the names of the tools if the graph's models were not offered any of them."""
        is_ignored = self.has_model_call and not self.is_offered
        return [tool["function"]["name"] for tool in self] if is_ignored else []


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
