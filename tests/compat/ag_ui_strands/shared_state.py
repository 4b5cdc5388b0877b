"""A recipe that the page and the agent edit together."""

import json
from typing import Any

from ag_ui_strands import StrandsAgent, StrandsAgentConfig, ToolBehavior, create_strands_app
from strands import Agent, tool

from tests.bridges.strands.scripted import ScriptedModel, call, calls, says


@tool
def generate_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """Write the recipe."""
    return {"recipe": recipe}


def add_recipe_to_prompt(input_data: Any, prompt: str) -> str:
    return f"Current recipe: {json.dumps(input_data.state['recipe'])}\n{prompt}"


async def recipe_from_args(context: Any) -> dict[str, Any]:
    return {"recipe": context.tool_input["recipe"]}


async def recipe_from_result(context: Any) -> dict[str, Any]:
    return {"recipe": context.result_data["recipe"], "is_saved": True}


config = StrandsAgentConfig(
    tool_behaviors={
        "generate_recipe": ToolBehavior(
            skip_messages_snapshot=True, state_from_args=recipe_from_args, state_from_result=recipe_from_result
        )
    },
    state_context_builder=add_recipe_to_prompt,
)
model = ScriptedModel(calls(call("c1", "generate_recipe", '{"recipe": {"title": "Soup"}}')), says("Enjoy."))
agent = Agent(model=model, tools=[generate_recipe], callback_handler=None)
app = create_strands_app(StrandsAgent(agent, "shared_state", config=config), cors_enabled=False)
