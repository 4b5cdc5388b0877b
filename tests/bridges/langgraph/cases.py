"""Runs to cut short: the model's script, the graph and the input. One for every kind of stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.langgraph.scripted import ScriptedModel, Turn, blocks, call, calls, says, text
from tests.bridges.langgraph.world import TOOL, agent_graph, get_weather

ROME = '{"city": "Rome"}'
WEATHER = call("c1", "get_weather", ROME[:6], ROME[6:])


@tool
def book(city: str) -> str:
    """Books a trip after asking."""
    return f"booked {city}: {interrupt(city)}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """`turns` are what the model plays in the first run; "again" is always answered with "ok"."""

    turns: list[Turn]
    build: Callable[[ScriptedModel], Any]
    tools: list[e.Tool] = field(default_factory=list)

    def model(self) -> ScriptedModel:
        left = list(self.turns)

        def play(messages: list[Any]) -> Turn:
            again = any("again" in str(message.content) for message in messages)
            return says("ok") if again or not left else left.pop(0)

        return ScriptedModel(script=play)

    def build_input(self, *texts: str) -> Any:
        messages: list[e.Message] = [e.UserMessage(id=f"u-{text}", content=text) for text in texts or ("go",)]
        return input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=messages, tools=self.tools))


def _agent(*tools: Any) -> Callable[[ScriptedModel], Any]:
    return lambda model: agent_graph(model, *tools, checkpointer=InMemorySaver())


def _plain(model: ScriptedModel) -> Any:
    return agent_graph(model, get_weather)


def _nested(model: ScriptedModel) -> Any:
    inner = agent_graph(model, get_weather)
    graph = StateGraph(MessagesState).add_node("helper", inner).add_edge(START, "helper")
    return graph.compile(checkpointer=InMemorySaver())


EVERYWHERE = {
    "text": Case(turns=[says("Hel", "lo", " there")], build=_agent()),
    "tool": Case(turns=[calls(text("Look:"), WEATHER), says("sun", "ny")], build=_agent(get_weather)),
    "question": Case(turns=[calls(text("Well:"), call("c2", "book", ROME))], build=_agent(book)),
}
"""Cut at every event."""

SOMEWHERE = {
    "tool, not stored": Case(turns=[calls(text("Look:"), WEATHER), says("sun", "ny")], build=_plain),
    "frontend and backend": Case(
        turns=[calls(call("f1", "change_background", "{}"), call("c1", "get_weather", ROME, index=1))],
        build=_agent(get_weather),
        tools=[TOOL],
    ),
    "subgraph": Case(
        turns=[
            calls(blocks({"type": "thinking", "thinking": "Hm"}), WEATHER),
            says("sun", "ny"),
        ],
        build=_nested,
    ),
}
"""Cut at five places."""
