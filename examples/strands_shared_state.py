"""A recipe that the user and a Strands agent write together. It is shared state: both see every change at once.

The agent reads the recipe in the prompt (`state_context_builder`), shows its own as soon as the arguments are complete (`state_from_args`)
and adds what only the result knows (`state_from_result`). Run it with `uvicorn strands_shared_state:create --factory`.
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
        title: Its name.
        ingredients: What is needed.
        steps: What to do, in order.
    """
    return json.dumps({"minutes": 5 + 10 * len(steps), "shopping": len(ingredients)})


def with_recipe(given: RunAgentInput, prompt: str) -> str:
    """What the user said, after the recipe as it is now."""
    recipe = given.state.get("recipe") if isinstance(given.state, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return f"The recipe now:\n{json.dumps(recipe)}\n\n{prompt}" if recipe else prompt


def recipe_from_args(context: ToolCallContext) -> dict[str, Any]:
    return {"recipe": context.tool_input}


def facts_from_result(context: ToolResultContext) -> dict[str, Any]:
    return {"facts": context.result_data}


CONFIG = StrandsAgentConfig(
    state_context_builder=with_recipe,
    tool_behaviors={
        "write_recipe": ToolBehavior(state_from_args=recipe_from_args, state_from_result=facts_from_result),
    },
)


def create(model: Model | None = None, settings: Settings | None = None) -> FastAPI:
    """The app, with any Strands model."""
    agent = Agent(model=model, tools=[write_recipe], system_prompt=PROMPT)
    return create_strands_app(StrandsAgent(agent, name="shared_state", config=CONFIG), settings=settings)
