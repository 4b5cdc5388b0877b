"""A plan that the page shows while the model writes it, and its progress afterwards."""

import json
from collections.abc import AsyncIterator
from typing import Any

from ag_ui.core import EventType, StateDeltaEvent
from ag_ui_strands import PredictStateMapping, StrandsAgent, StrandsAgentConfig, ToolBehavior, create_strands_app
from strands import Agent, tool

from tests.bridges.strands.scripted import ScriptedModel, call, calls, says


@tool
def plan_steps(steps: list[str]) -> str:
    """Plan the steps."""
    return json.dumps({"steps": [{"description": step, "status": "pending"} for step in steps]})


async def steps_from_args(context: Any) -> dict[str, Any]:
    return {"steps": [{"description": step, "status": "pending"} for step in context.tool_input["steps"]]}


async def complete_steps(context: Any) -> AsyncIterator[StateDeltaEvent]:
    for index in range(len(context.result_data["steps"])):
        change = {"op": "replace", "path": f"/steps/{index}/status", "value": "completed"}
        yield StateDeltaEvent(type=EventType.STATE_DELTA, delta=[change])


behavior = ToolBehavior(
    predict_state=[PredictStateMapping("steps", "plan_steps", "steps")],
    state_from_args=steps_from_args,
    custom_result_handler=complete_steps,
    stop_streaming_after_result=True,
)
model = ScriptedModel(calls(call("c1", "plan_steps", '{"steps": ["mix", ', '"bake"]}')), says("never said"))
agent = Agent(model=model, tools=[plan_steps], callback_handler=None)
app = create_strands_app(
    StrandsAgent(agent, "agentic_generative_ui", config=StrandsAgentConfig({"plan_steps": behavior})),
    cors_enabled=False,
)
