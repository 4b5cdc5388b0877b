"""Features that do not work, by feature and framework, each with its reason for the docs."""

from __future__ import annotations

from tests.dojo.features import FEATURES, Feature

__all__ = ["CLIENT_LIMITATIONS", "FRAMEWORKS", "KNOWN_FAILURES", "NO_AGENT", "features_of"]

FRAMEWORKS = {
    "langgraph": "LangGraph",
    "strands": "Strands",
    "adk": "ADK",
    "claude": "Claude",
    "pydantic_ai": "pydantic-ai",
}

_LANGGRAPH_ONLY = (
    "The dojo has this page for LangGraph only: its questions are LangGraph interrupts with keys of their own."
)

NO_AGENT: dict[tuple[str, str], str] = {
    ("subgraphs", "strands"): _LANGGRAPH_ONLY,
    ("subgraphs", "adk"): _LANGGRAPH_ONLY,
    ("subgraphs", "claude"): _LANGGRAPH_ONLY,
    ("subgraphs", "pydantic_ai"): _LANGGRAPH_ONLY,
}
"""No agent can be written for the page, and why."""

KNOWN_FAILURES: dict[tuple[str, str], str] = {}
"""Features whose page does not get what it reads from the agent, and why. A test fails when one works."""

CLIENT_LIMITATIONS: dict[tuple[str, str], str] = {
    ("agentic_chat_reasoning", "ag-ui-client-0.0.42"): "It knows no reasoning.",
}
"""Features that an older client cannot show, by feature and package."""


def features_of(framework: str) -> list[Feature]:
    """Return the features that the framework has an agent for."""
    return [feature for feature in FEATURES if (feature.name, framework) not in NO_AGENT]
