"""The scripted upstream of `tests/contract/test_bridges.py`: the real SDK, and a scripted model."""

from __future__ import annotations

from typing import Any

import anyio
from langgraph.checkpoint.memory import InMemorySaver

from tests.bridges.langgraph.scripted import ScriptedModel, Turn, says
from tests.bridges.langgraph.world import agent_graph, get_weather


def scripted_graph() -> Any:
    """A compiled graph as it is: the server finds the bridge by its class."""
    return agent_graph(ScriptedModel(script=_played), get_weather, checkpointer=InMemorySaver())


def _played(messages: list[Any]) -> Turn:
    match messages[-1].content:
        case "history":
            return says(str([message.content for message in messages]))
        case "crash":
            return [*says("Well, "), RuntimeError("upstream is gone")]
        case "hang":
            return [*says("Well, "), anyio.Event()]
        case _:
            return says("hello ", "there")
