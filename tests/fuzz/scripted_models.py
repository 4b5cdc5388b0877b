"""Agents of the real SDKs whose scripted models put a planted text into text, reasoning, arguments, a tool's result or the shared state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ambient_runner import PlatformBridge
from tests.fuzz.placements import split_text

__all__ = ["FRAMEWORKS", "ScriptedFramework", "build_framework"]


@dataclass(kw_only=True)
class Play:
    """What the model and its tool do in the next run."""

    turns: list[Any] = field(default_factory=list[Any])
    result: str = "nothing"
    calls: int = 0

    def next_turn(self, otherwise: Any) -> Any:
        return self.turns.pop(0) if self.turns else otherwise

    def new_call_id(self) -> str:
        self.calls += 1
        return f"call-{self.calls}"


@dataclass(frozen=True, kw_only=True)
class ScriptedFramework:
    """A bridge, and the function that prepares its next run: it puts the pieces of a text into a field."""

    bridge: PlatformBridge
    prepare: Callable[[str, Sequence[str]], None]

    def plan_run(self, model_field: str, rng: Random, text: str) -> None:
        """Put the text into this field in the next run. Arguments are JSON, so there the text is escaped once more."""
        is_json = model_field in {"arguments", "state"}
        self.prepare(model_field, list(split_text(rng, json.dumps({"note": text}) if is_json else text)))


def _build_strands() -> ScriptedFramework:
    from strands import tool

    from ambient_runner.bridges.strands.bridge import StrandsBridge
    from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
    from tests.bridges.strands.scripted import ScriptedModel, call, calls, says, text, thought, turn
    from tests.bridges.strands.world import agent_of

    play = Play()

    @tool
    def look(note: str = "") -> str:
        """Look it up."""
        return play.result

    @tool
    def remember(note: str = "") -> str:
        """Remember it."""
        return "ok"

    def prepare(model_field: str, pieces: Sequence[str]) -> None:
        play.result = "".join(pieces) if model_field == "result" else "nothing"
        match model_field:
            case "text":
                play.turns = [says(*pieces)]
            case "reasoning":
                play.turns = [turn(thought(*pieces), text("done"))]
            case "result":
                play.turns = [calls(call(play.new_call_id(), "look", "{}"))]
            case _:
                name = "look" if model_field == "arguments" else "remember"
                play.turns = [calls(call(play.new_call_id(), name, *pieces))]

    model = ScriptedModel(script=lambda messages: play.next_turn(says("done")))
    behaviors = {"remember": ToolBehavior(state_from_args=lambda context: context.tool_input)}
    bridge = StrandsBridge(agent_of(model, look, remember), StrandsAgentConfig(tool_behaviors=behaviors))
    return ScriptedFramework(bridge=bridge, prepare=prepare)


def _build_adk() -> ScriptedFramework:
    from google.adk.agents import LlmAgent
    from google.adk.tools import ToolContext

    from ambient_runner.bridges.adk.bridge import ADKBridge
    from tests.bridges.adk.scripted import Scripted, call, thought

    play = Play()

    def look(note: str = "") -> str:
        """Look it up."""
        return play.result

    def remember(note: str, tool_context: ToolContext) -> str:
        """Remember it."""
        tool_context.state["note"] = note
        return "ok"

    def prepare(model_field: str, pieces: Sequence[str]) -> None:
        text = "".join(pieces)
        play.result = text if model_field == "result" else "nothing"
        match model_field:
            case "text":
                play.turns = [list(pieces)]
            case "reasoning":
                play.turns = [[*(thought(piece) for piece in pieces), "done"]]
            case "result":
                play.turns = [[call("look", play.new_call_id())]]
            case _:
                name = "look" if model_field == "arguments" else "remember"
                play.turns = [[call(name, play.new_call_id(), **json.loads(text))]]

    model = Scripted.of(lambda request: play.next_turn(["done"]), loop=True)
    bridge = ADKBridge(LlmAgent(name="root", model=model, tools=[look, remember]))
    return ScriptedFramework(bridge=bridge, prepare=prepare)


def _build_langgraph() -> ScriptedFramework:
    from langchain_core.tools import tool
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
    from tests.bridges.langgraph.scripted import ScriptedModel, blocks, call, calls, says, text

    play = Play()

    class Notes(MessagesState):
        note: str

    @tool
    def look(note: str = "") -> str:
        """Look it up."""
        return play.result

    async def agent(state: Notes) -> Any:
        answer = await model.bind_tools([look]).ainvoke(state["messages"])
        update = {"messages": [answer], **notes}
        notes.clear()  # They are of this run: the next one is of somebody else.
        return update

    def prepare(model_field: str, pieces: Sequence[str]) -> None:
        play.result = "".join(pieces) if model_field == "result" else "nothing"
        match model_field:
            case "text":
                play.turns = [says(*pieces)]
            case "reasoning":
                thoughts = blocks(*({"type": "thinking", "thinking": piece} for piece in pieces))
                play.turns = [calls(thoughts, text("done"))]
            case "result":
                play.turns = [calls(call(play.new_call_id(), "look", "{}"))]
            case "arguments":
                play.turns = [calls(call(play.new_call_id(), "look", *pieces))]
            case _:
                notes.update(json.loads("".join(pieces)))

    notes: dict[str, str] = {}
    model = ScriptedModel(script=lambda messages: play.next_turn(says("done")))
    graph = StateGraph(Notes)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition, ["tools", END])
    graph.add_edge("tools", "agent")
    return ScriptedFramework(bridge=LangGraphBridge(graph.compile()), prepare=prepare)


FRAMEWORKS: dict[str, Callable[[], ScriptedFramework]] = {
    "strands": _build_strands,
    "adk": _build_adk,
    "langgraph": _build_langgraph,
}


def build_framework(name: str) -> ScriptedFramework:
    """Return a new agent of a framework, with credentials granted to its runs."""
    framework = FRAMEWORKS[name]()
    capabilities = dataclasses.replace(framework.bridge.capabilities(), mcp=True)
    framework.bridge.capabilities = lambda: capabilities  # type: ignore[method-assign]
    return framework
