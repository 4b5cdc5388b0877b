"""A recipe that the user and a Strands agent edit together, as shared state: both see every change immediately.

`state_context_builder` adds the recipe to the prompt. `state_from_args` sets it as soon as the arguments of the tool call are complete,
and `state_from_result` adds values from the tool's result. Run it with `uvicorn strands_shared_state:create --factory`.
"""

import json
from typing import Any

from ag_ui.core import RunAgentInput
from fastapi import FastAPI
from strands import Agent, tool  # pyright: ignore[reportUnknownVariableType]  the SDK's own types
from strands.models import Model

from ambient_runner import Settings
from ambient_runner.strands import (
    StrandsAgent,
    StrandsAgentConfig,
    ToolBehavior,
    ToolCallContext,
    ToolResultContext,
    create_strands_app,
)

PROMPT = (
    "You improve recipes. Always call write_recipe with the whole recipe, then say in one sentence what you changed."
)


@tool
def write_recipe(title: str, ingredients: list[str], steps: list[str]) -> str:
    """Write the whole recipe.

    Args:
        title: The title of the recipe.
        ingredients: The ingredients with their amounts.
        steps: The steps in order.
    """
    return json.dumps({"minutes": 5 + 10 * len(steps), "shopping": len(ingredients)})


def add_recipe_to_prompt(run_input: RunAgentInput, prompt: str) -> str:
    """Return the user's message with the current recipe before it."""
    recipe = run_input.state.get("recipe") if isinstance(run_input.state, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return f"The current recipe:\n{json.dumps(recipe)}\n\n{prompt}" if recipe else prompt


def recipe_from_args(context: ToolCallContext) -> dict[str, Any]:
    return {"recipe": context.tool_input}


def facts_from_result(context: ToolResultContext) -> dict[str, Any]:
    return {"facts": context.result_data}


CONFIG = StrandsAgentConfig(
    state_context_builder=add_recipe_to_prompt,
    tool_behaviors={
        "write_recipe": ToolBehavior(state_from_args=recipe_from_args, state_from_result=facts_from_result),
    },
)


def create(model: Model | None = None, settings: Settings | None = None) -> FastAPI:
    """Create the app with any Strands model."""
    agent = Agent(model=model, tools=[write_recipe], system_prompt=PROMPT)
    return create_strands_app(StrandsAgent(agent, name="shared_state", config=CONFIG), settings=settings)
