"""A plan that appears while the model writes it, and is ticked off while it is carried out.

`PredictStateMapping` lets a page show the steps before the call is complete, `custom_result_handler` sends progress as state deltas, and
`stop_streaming_after_result` makes the finished plan the last word. Run it with `uvicorn strands_agentic_generative_ui:create --factory`.
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

PAUSE = 0.3
"""Seconds each step takes."""


@tool
def plan_steps(steps: list[str]) -> str:
    """Plan a task.

    Args:
        steps: What to do, in order, each in a few words.
    """
    return f"{len(steps)} steps are planned."


def as_state(context: ToolCallContext) -> dict[str, Any]:
    return {"steps": [{"description": step, "status": "pending"} for step in context.tool_input["steps"]]}


async def carry_out(context: ToolResultContext) -> AsyncIterator[StateDelta]:
    """One delta for every step that is done."""
    for at in range(len(context.tool_input["steps"])):
        await anyio.sleep(PAUSE)
        yield StateDelta(delta=[{"op": "replace", "path": f"/steps/{at}/status", "value": "completed"}])


CONFIG = StrandsAgentConfig(
    tool_behaviors={
        "plan_steps": ToolBehavior(
            predict_state=PredictStateMapping(state_key="steps", tool="plan_steps", tool_argument="steps"),
            state_from_args=as_state,
            custom_result_handler=carry_out,
            stop_streaming_after_result=True,
        ),
    },
)


def create(model: Model | None = None, settings: Settings | None = None) -> FastAPI:
    """The app, with any Strands model."""
    agent = Agent(model=model, tools=[plan_steps], system_prompt="Plan whatever the user wants with plan_steps.")
    return create_strands_app(StrandsAgent(agent, name="agentic_generative_ui", config=CONFIG), settings=settings)
