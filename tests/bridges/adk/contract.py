"""The scripted upstream of `tests/contract/test_bridges.py`: the real SDK, and a scripted model."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest

from tests.bridges.adk.scripted import HANG, Scripted, piece, text


def scripted_agent() -> LlmAgent:
    """An agent as a user would have it: the registry finds the bridge for it."""
    return LlmAgent(name="scripted", model=Scripted.of(_played, loop=True), tools=[look])


def look(city: str) -> str:
    """Look at a city."""
    raise NotImplementedError


def _played(request: LlmRequest) -> list[Any]:
    match (request.contents[-1].parts or [text("")])[-1].text:
        case "history":
            return [str([part.text for content in request.contents for part in content.parts or ()])]
        case "crash":
            return [piece(text("Well, ")), RuntimeError("upstream is gone")]
        case "hang":
            return [piece(text("Well, ")), HANG]
        case _:
            return ["hello ", "there"]
