"""The scripted upstream of `tests/contract/test_bridges.py`: the real SDK, and a scripted model."""

from __future__ import annotations

from typing import Any

import anyio
from strands import tool

from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.bridges.strands.bridge import StrandsBridge
from tests.bridges.strands.scripted import ScriptedModel, Turn, says
from tests.bridges.strands.world import agent_of


def scripted_bridge() -> PlatformBridge:
    return StrandsBridge(agent_of(ScriptedModel(script=_played), look))


@tool
def look(city: str) -> str:
    """Look at a city."""
    raise NotImplementedError


def _played(messages: list[Any]) -> Turn:
    beginning = says("Well, ")[:3]
    match messages[-1]["content"][-1]["text"]:
        case "history":
            return says(str(messages))
        case "crash":
            return [*beginning, RuntimeError("upstream is gone")]
        case "hang":
            return [*beginning, anyio.Event()]
        case _:
            return says("hello ", "there")
