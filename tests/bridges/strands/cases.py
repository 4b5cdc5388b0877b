"""Runs to cut short: the model's script, the agent and the run input. One for every kind of stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import ag_ui.core as ag
from strands import ToolContext, tool
from strands.multiagent import GraphBuilder, Swarm

from ambient_runner.bridges.strands.config import PredictStateMapping, StrandsAgentConfig, ToolBehavior
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.strands.scripted import ScriptedModel, Turn, call, calls, redacted, says, text, thought, turn
from tests.bridges.strands.world import TOOL, agent_of


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool(context=True)
def book(city: str, tool_context: ToolContext) -> str:
    """Books a trip after asking."""
    return f"booked {city}: {tool_context.interrupt('confirm', reason=city)}"


@tool
async def plan() -> AsyncGenerator[Any, None]:
    """Plans in steps."""
    yield {"state": {"steps": 1}}
    yield {"state": {"steps": 2}}
    yield "planned"


def pieces(context: Any) -> list[str]:
    return [context.args_str[:5], context.args_str[5:]]


def custom_events(context: Any) -> list[Any]:
    return [ag.CustomEvent(name="mine", value=1), ag.StateSnapshotEvent(snapshot={"seen": True})]


BUSY = ToolBehavior(
    predict_state=PredictStateMapping(state_key="city", tool="get_weather", tool_argument="city"),
    args_streamer=pieces,
    state_from_args=lambda context: {"city": 1},
    state_from_result=lambda context: {"weather": 1},
    custom_result_handler=custom_events,
)
ROME = '{"city": "Rome"}'


@dataclass(frozen=True, kw_only=True)
class Case:
    """`turns` are what the first run's models play, by the name of the agent; "again" is always answered with "ok"."""

    turns: dict[str, list[Turn]]
    build: Callable[[dict[str, ScriptedModel]], Any]
    config: StrandsAgentConfig = field(default_factory=StrandsAgentConfig)
    tools: list[e.Tool] = field(default_factory=list)

    def models(self) -> dict[str, ScriptedModel]:
        return {name: ScriptedModel(script=_player(turns)) for name, turns in self.turns.items()}

    def run_input(self, text: str = "go", **more: Any) -> ag.RunAgentInput:
        words = e.UserMessage(id=f"u-{text}", content=text)
        return input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=[words], tools=self.tools, **more))


def _player(turns: list[Turn]) -> Callable[[list[Any]], Turn]:
    """Which turn it is, the messages tell: many threads may talk to one model."""

    def play(messages: list[Any]) -> Turn:
        again = any("again" in str(block.get("text", "")) for message in messages for block in message["content"])
        words = sum(message["role"] == "assistant" for message in messages)
        return says("ok") if again or words >= len(turns) else turns[words]

    return play


def _single(*tools: Any) -> Callable[[dict[str, ScriptedModel]], Any]:
    return lambda models: agent_of(models["main"], *tools)


def _graph(models: dict[str, ScriptedModel]) -> Any:
    def build() -> Any:
        builder = GraphBuilder()
        for name, model in models.items():
            builder.add_node(agent_of(model, get_weather, name=name), name)
        builder.add_edge("a", "b")
        builder.add_edge("a", "c")
        builder.set_entry_point("a")
        builder.set_execution_timeout(60)
        return builder.build()

    return build


def _swarm(models: dict[str, ScriptedModel]) -> Any:
    return lambda: Swarm([agent_of(model, name=name) for name, model in models.items()])


def _with_helper(models: dict[str, ScriptedModel]) -> Any:
    helper = agent_of(models["helper"], get_weather, name="helper", description="Helps.")
    return agent_of(models["main"], helper.as_tool(name="helper"))


WEATHER = call("c1", "get_weather", ROME[:6], ROME[6:])
EVERYWHERE = {
    "text": Case(turns={"main": [says("Hel", "lo", " there")]}, build=_single()),
    "tool": Case(turns={"main": [calls(text("Look:"), WEATHER), says("sun", "ny")]}, build=_single(get_weather)),
    "frontend_and_backend": Case(
        turns={"main": [calls(call("f1", "change_background", '{"color": "red"}'), WEATHER)]},
        build=_single(get_weather),
        tools=[TOOL],
    ),
    "interrupt": Case(
        turns={"main": [calls(text("Well:"), call("c2", "book", ROME), WEATHER)]}, build=_single(book, get_weather)
    ),
    "reasoning": Case(
        turns={"main": [turn(thought("Hm", " well", signature="s"), redacted(b"x"), text("Yes", "."))]},
        build=_single(),
    ),
}
"""Cut at every event."""

SOMEWHERE = {
    "behaviours": Case(
        turns={"main": [calls(text("Look:"), WEATHER), says("sunny")]},
        build=_single(get_weather),
        config=StrandsAgentConfig(tool_behaviors={"get_weather": BUSY}),
    ),
    "state": Case(turns={"main": [calls(call("c1", "plan")), says("done")]}, build=_single(plan)),
    "approval": Case(
        turns={"main": [calls(WEATHER)]},
        build=_single(get_weather),
        config=StrandsAgentConfig(tool_behaviors={"get_weather": ToolBehavior(interrupt_on_call=True)}),
    ),
    "continuing": Case(
        turns={"main": [calls(call("f1", "change_background", "{}")), says("It will be.")]},
        build=_single(),
        config=StrandsAgentConfig(
            tool_behaviors={"change_background": ToolBehavior(continue_after_frontend_call=True)}
        ),
        tools=[TOOL],
    ),
    "graph": Case(
        turns={"a": [calls(text("A:"), WEATHER), says("A")], "b": [says("B", "b")], "c": [says("C", "c")]}, build=_graph
    ),
    "swarm": Case(
        turns={
            "a": [calls(call("h1", "handoff_to_agent", '{"agent_name": "b", "message": "yours"}')), says("out")],
            "b": [says("B")],
        },
        build=_swarm,
    ),
    "agent_as_tool": Case(
        turns={
            "main": [calls(call("o1", "helper", '{"input": "do"}')), says("outer")],
            "helper": [calls(text("in:"), WEATHER), says("inner")],
        },
        build=_with_helper,
    ),
}
"""Cut at five places."""
