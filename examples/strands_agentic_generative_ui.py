"""A plan that the web page shows while the model writes it, with progress for each step.

`PredictStateMapping` lets the page show the steps before the tool call is complete, `custom_result_handler` sends progress as state
deltas, and `stop_streaming_after_result` ends the run after the last step.
Run it with `uvicorn strands_agentic_generative_ui:create --factory`.
"""

from collections.abc import AsyncIterator
from typing import Any

import anyio
from fastapi import FastAPI
from strands import Agent, tool  # pyright: ignore[reportUnknownVariableType]  the SDK's own types
from strands.models import Model

from ambient_runner import Settings
from ambient_runner.protocol.events import StateDelta
from ambient_runner.strands import (
    PredictStateMapping,
    StrandsAgent,
    StrandsAgentConfig,
    ToolBehavior,
    ToolCallContext,
    ToolResultContext,
    create_strands_app,
)

STEP_DURATION = 0.3  # seconds


@tool
def plan_steps(steps: list[str]) -> str:
    """Plan a task.

    Args:
        steps: The steps in order, each in a few words.
    """
    return f"Planned {len(steps)} steps."


def steps_from_args(context: ToolCallContext) -> dict[str, Any]:
    return {"steps": [{"description": step, "status": "pending"} for step in context.tool_input["steps"]]}


async def run_steps(context: ToolResultContext) -> AsyncIterator[StateDelta]:
    """Yield a state delta for each completed step."""
    for index in range(len(context.tool_input["steps"])):
        await anyio.sleep(STEP_DURATION)
        yield StateDelta(delta=[{"op": "replace", "path": f"/steps/{index}/status", "value": "completed"}])


CONFIG = StrandsAgentConfig(
    tool_behaviors={
        "plan_steps": ToolBehavior(
            predict_state=PredictStateMapping(state_key="steps", tool="plan_steps", tool_argument="steps"),
            state_from_args=steps_from_args,
            custom_result_handler=run_steps,
            stop_streaming_after_result=True,
        ),
    },
)


def create(model: Model | None = None, settings: Settings | None = None) -> FastAPI:
    """Create the app with any Strands model."""
    agent = Agent(model=model, tools=[plan_steps], system_prompt="Plan the user's task with plan_steps.")
    return create_strands_app(StrandsAgent(agent, name="agentic_generative_ui", config=CONFIG), settings=settings)
