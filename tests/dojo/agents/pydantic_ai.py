"""The dojo's agents as pydantic-ai agents."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

from ag_ui.core import CustomEvent, StateDeltaEvent, StateSnapshotEvent
from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui import StateDeps

from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.bridges.pydantic_ai import PydanticAIBridge
from tests.dojo.differences import features_of
from tests.dojo.pages import WEATHER, WRITTEN, tasks
from tests.dojo.script import RESULT, Call, Reply, Script, ScriptRequest, argument_pieces, find_reply, text_pieces

__all__ = ["create_agents"]

SCRIPTS = {feature.name: feature.script for feature in features_of("pydantic_ai")}
Piece = str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]


def model_of(script: Script) -> FunctionModel:
    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        reply = find_reply(script, _to_request(messages, info))
        if reply.thought:
            yield {0: DeltaThinkingPart(content=reply.thought)}
        for piece in text_pieces(reply.text):
            yield piece
        if reply.call:
            yield {1: DeltaToolCall(name=reply.call.name)}
            for piece in argument_pieces(reply.call):
                yield {1: DeltaToolCall(json_args=piece)}

    return FunctionModel(stream_function=speak)


def _to_request(messages: list[ModelMessage], info: AgentInfo) -> ScriptRequest:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    inputs = [RESULT if isinstance(part, ToolReturnPart) else _words(part.content) for part in parts]
    everything = [str(info.instructions), *(_words(part.content) for part in parts)]
    return ScriptRequest(everything="\n".join(everything), inputs=inputs)


def _words(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_words(item) for item in content)
    if isinstance(content, BinaryContent):
        return base64.b64encode(content.data).decode()
    return content if isinstance(content, str) else json.dumps(content, default=str, ensure_ascii=False)


class State(BaseModel):
    """Whatever a page of the dojo shares."""

    model_config = ConfigDict(extra="allow")


Deps = StateDeps[State]


def agent_of(script: Script, *tools: Any) -> PlatformBridge:
    """An agent whose model knows the state that the page shares."""
    agent = Agent(model_of(script), deps_type=Deps, tools=list(tools))

    @agent.instructions
    def state(context: RunContext[Deps]) -> str:
        return json.dumps(context.deps.state.model_dump(), ensure_ascii=False)

    return PydanticAIBridge(agent, deps=StateDeps(State()))


def get_weather(location: str) -> dict[str, Any]:
    """Return the weather at a location."""
    return WEATHER


def plan_steps(steps: list[dict[str, str]]) -> StateSnapshotEvent:
    """Plan the steps of a task."""
    return StateSnapshotEvent(snapshot={"steps": steps})


def finish_step(index: int) -> StateDeltaEvent:
    """Mark a step as completed."""
    return StateDeltaEvent(delta=[{"op": "replace", "path": f"/steps/{index}/status", "value": "completed"}])


def generate_recipe(recipe: dict[str, Any]) -> StateSnapshotEvent:
    """Write the whole recipe."""
    return StateSnapshotEvent(snapshot={"recipe": recipe})


def predict_document() -> list[CustomEvent]:
    """Let the page show the document while it is written."""
    mapping = {"state_key": "document", "tool": "write_document_local", "tool_argument": "document"}
    return [CustomEvent(name="PredictState", value=[mapping])]


def write_document_local(document: str) -> StateSnapshotEvent:
    """Write the document."""
    return StateSnapshotEvent(snapshot={"document": document})


PLANTING = [
    Reply(call=Call(name="plan_steps", arguments={"steps": tasks("pending", "pending")})),
    Reply(call=Call(name="finish_step", arguments={"index": 0})),
    Reply(call=Call(name="finish_step", arguments={"index": 1})),
    Reply(text="Done."),
]
WRITING = [
    Reply(call=Call(name="predict_document", arguments={})),
    Reply(call=Call(name="write_document_local", arguments=WRITTEN.arguments)),
    Reply(call=Call(name="confirm_changes", arguments={})),
    Reply(text="Written.", saw="accepted"),
]
TOOLS: dict[str, list[Any]] = {
    "backend_tool_rendering": [get_weather],
    "agentic_generative_ui": [plan_steps, finish_step],
    "shared_state": [generate_recipe],
    "predictive_state_updates": [predict_document, write_document_local],
}


def create_agents() -> dict[str, PlatformBridge]:
    """Return the agents by the feature they are for."""
    scripts = SCRIPTS | {
        "agentic_generative_ui": {"Plant a tree": PLANTING},
        "predictive_state_updates": {"Write about a pirate": WRITING},
    }
    return {name: agent_of(script, *TOOLS.get(name, ())) for name, script in scripts.items()}
