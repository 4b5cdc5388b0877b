"""The dojo's agents as Strands agents."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from ag_ui.core import RunAgentInput
from strands import tool

from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.strands import PredictStateMapping, StrandsAgentConfig, ToolBehavior
from tests.bridges.strands.scripted import ScriptedModel, Turn, call, text, thought, turn
from tests.bridges.strands.world import agent_of
from tests.dojo.differences import features_of
from tests.dojo.pages import WEATHER, tasks
from tests.dojo.script import RESULT, Call, Reply, Script, ScriptRequest, argument_pieces, find_reply, text_pieces

__all__ = ["create_agents"]

SCRIPTS = {feature.name: feature.script for feature in features_of("strands")}


def model_of(script: Script) -> ScriptedModel:
    return ScriptedModel(script=lambda messages: _steps(find_reply(script, _to_request(messages))))


def _to_request(messages: list[Any]) -> ScriptRequest:
    blocks = [block for message in messages if message["role"] == "user" for block in message["content"]]
    inputs = [RESULT if "toolResult" in block else block.get("text", "") for block in blocks]
    return ScriptRequest(everything=json.dumps(messages, default=_base64, ensure_ascii=False), inputs=inputs)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _steps(reply: Reply) -> Turn:
    made = reply.call
    return turn(
        *([thought(reply.thought)] if reply.thought else []),
        *([text(*text_pieces(reply.text))] if reply.text else []),
        *([call(f"call-{uuid4().hex}", made.name, *argument_pieces(made))] if made else []),
        stop="tool_use" if made else "end_turn",
    )


@tool
def get_weather(location: str) -> dict[str, Any]:
    """Return the weather at a location."""
    return {"status": "success", "content": [{"json": WEATHER}]}


@tool
async def plan_steps(steps: list[dict[str, str]]) -> AsyncIterator[Any]:
    """Plan the steps of a task, and carry them out."""
    for step in steps:
        yield {"state": {"steps": steps}}
        step["status"] = "completed"
    yield {"state": {"steps": steps}}
    yield "All steps are done."


@tool
def generate_recipe(recipe: dict[str, Any]) -> str:
    """Write the whole recipe."""
    return "Written."


def add_state(run_input: RunAgentInput, prompt: str) -> str:
    """Return the user's message with the state before it."""
    return f"{json.dumps(run_input.state, ensure_ascii=False)}\n{prompt}" if run_input.state else prompt


def predicted(key: str, tool_name: str) -> ToolBehavior:
    """A tool whose argument is a key of the state, while the model writes it and from then on."""
    mapping = PredictStateMapping(state_key=key, tool=tool_name, tool_argument=key)
    return ToolBehavior(predict_state=mapping, state_from_args=lambda context: {key: context.tool_input[key]})


PLAN = Call(name="plan_steps", arguments={"steps": tasks("pending", "pending")})
TOOLS = {
    "backend_tool_rendering": [get_weather],
    "agentic_generative_ui": [plan_steps],
    "shared_state": [generate_recipe],
}
BEHAVIORS = {
    "agentic_generative_ui": {"plan_steps": predicted("steps", "plan_steps")},
    "shared_state": {"generate_recipe": predicted("recipe", "generate_recipe")},
    "predictive_state_updates": {"write_document": predicted("document", "write_document")},
}


def create_agents() -> dict[str, PlatformBridge]:
    """Return the agents by the feature they are for."""
    scripts = SCRIPTS | {"agentic_generative_ui": {"Plant a tree": [Reply(call=PLAN), Reply(text="Done.")]}}
    return {
        name: StrandsBridge(
            agent_of(model_of(script), *TOOLS.get(name, ())),
            StrandsAgentConfig(state_context_builder=add_state, tool_behaviors=BEHAVIORS.get(name, {})),
        )
        for name, script in scripts.items()
    }
