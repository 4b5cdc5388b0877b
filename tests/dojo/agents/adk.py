"""The dojo's agents as ADK agents."""

from __future__ import annotations

import base64
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from ambient_runner.adk import ADKBridge, PredictStateMapping
from ambient_runner.bridges.base import PlatformBridge
from tests.bridges.adk.scripted import Scripted, call, piece, text, thought
from tests.bridges.adk.scripted import reply as reply_of
from tests.dojo.differences import features_of
from tests.dojo.pages import WEATHER, WRITTEN, tasks
from tests.dojo.script import RESULT, Call, Reply, Script, ScriptRequest, find_reply, text_pieces

__all__ = ["create_agents"]

SCRIPTS = {feature.name: feature.script for feature in features_of("adk")}


def model_of(script: Script) -> Scripted:
    return Scripted.of(lambda request: _parts(find_reply(script, _to_request(request))), loop=True)


def _to_request(request: LlmRequest) -> ScriptRequest:
    parts = [part for content in request.contents if content.role == "user" for part in content.parts or []]
    inputs = [RESULT if part.function_response else part.text or "" for part in parts]
    everything = [str(request.config.system_instruction), *(_words(part) for part in parts)]
    return ScriptRequest(everything="\n".join(everything), inputs=inputs)


def _words(part: types.Part) -> str:
    if part.inline_data is not None:
        return base64.b64encode(part.inline_data.data or b"").decode()
    return part.text or str(part.function_response or part.function_call)


def _parts(reply: Reply) -> list[Any]:
    made = reply.call
    if made and isinstance(made.arguments.get("document"), str):
        return _streamed_call(made)
    return [
        *([thought(reply.thought)] if reply.thought else []),
        *(text(word) for word in text_pieces(reply.text)),
        *([call(made.name, **made.arguments)] if made else []),
    ]


def _streamed_call(made: Call) -> list[Any]:
    """Return a call with one text, as a model streams it that can."""
    ((key, value),) = made.arguments.items()
    begun = types.FunctionCall(name=made.name, will_continue=True)
    parts = [
        types.FunctionCall(
            partial_args=[types.PartialArg(json_path=f"$.{key}", string_value=word, will_continue=True)],
            will_continue=True,
        )
        for word in text_pieces(value)
    ]
    return [
        *(piece(types.Part(function_call=one)) for one in (begun, *parts)),
        reply_of(call(made.name, **made.arguments)),
    ]


def get_weather(location: str) -> dict[str, Any]:
    """Return the weather at a location."""
    return WEATHER


def plan_steps(descriptions: list[str], tool_context: ToolContext) -> str:
    """Plan the steps of a task."""
    tool_context.state["steps"] = [{"description": one, "status": "pending"} for one in descriptions]
    return "Planned."


def finish_step(index: int, tool_context: ToolContext) -> str:
    """Mark a step as completed."""
    steps = [dict(step) for step in tool_context.state["steps"]]
    steps[index]["status"] = "completed"
    tool_context.state["steps"] = steps
    return "Completed."


def generate_recipe(recipe: dict[str, Any], tool_context: ToolContext) -> str:
    """Write the whole recipe."""
    tool_context.state["recipe"] = recipe
    return "Written."


def write_document_local(document: str, tool_context: ToolContext) -> str:
    """Write the document."""
    tool_context.state["document"] = document
    return "Written."


WRITING = [
    Reply(call=Call(name="write_document_local", arguments=WRITTEN.arguments)),
    Reply(call=Call(name="confirm_changes", arguments={})),
    Reply(text="Written.", saw="accepted"),
]
PLANTING = [
    Reply(call=Call(name="plan_steps", arguments={"descriptions": [task["description"] for task in tasks("", "")]})),
    Reply(call=Call(name="finish_step", arguments={"index": 0})),
    Reply(call=Call(name="finish_step", arguments={"index": 1})),
    Reply(text="Done."),
]
TOOLS: dict[str, list[Any]] = {
    "backend_tool_rendering": [get_weather],
    "agentic_generative_ui": [plan_steps, finish_step],
    "shared_state": [generate_recipe],
    "predictive_state_updates": [write_document_local],
}

PREDICTED = {
    "predictive_state_updates": [
        PredictStateMapping(state_key="document", tool="write_document_local", tool_argument="document")
    ],
}


def create_agents() -> dict[str, PlatformBridge]:
    """Return the agents by the feature they are for. Their instructions have the state that the page shares."""
    scripts = SCRIPTS | {
        "agentic_generative_ui": {"Plant a tree": PLANTING},
        "predictive_state_updates": {"Write about a pirate": WRITING},
    }
    return {
        name: ADKBridge(
            LlmAgent(
                name=name,
                model=model_of(script),
                instruction="The recipe: {recipe?}. The model: {model?}.",
                tools=TOOLS.get(name, []),
            ),
            predict_state=PREDICTED.get(name, ()),
        )
        for name, script in scripts.items()
    }
