"""The dojo's agents on the Claude Agent SDK and its command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from claude_agent_sdk import tool

from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.claude import ClaudeBridge, PredictStateMapping
from tests.dojo.anthropic_api import start_api
from tests.dojo.differences import features_of
from tests.dojo.pages import PASTA, WEATHER, tasks
from tests.dojo.script import Call, Reply

__all__ = ["CUSTOM_TOOLS", "create_agents"]


@tool("get_weather", "Return the weather at a location.", {"location": str})
async def get_weather(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(WEATHER)}]}


CUSTOM_TOOLS = [get_weather]


def set_state(**changes: Any) -> Call:
    return Call(name="update_state", arguments={"changes": changes})


PLANTING = [
    Reply(call=set_state(steps=tasks("pending", "pending"))),
    Reply(call=set_state(steps=tasks("completed", "pending"))),
    Reply(call=set_state(steps=tasks("completed", "completed"))),
    Reply(text="Done."),
]
COOKING = [
    Reply(text="Let me see.", saw="Make Your Recipe", call=set_state(recipe=PASTA)),
    Reply(text="It is Italian now."),
]


def create_agents() -> dict[str, PlatformBridge]:
    """Return the agents by the feature they are for. The CLI keeps its files in the working directory."""
    scripts = {feature.name: dict(feature.script) for feature in features_of("claude")}
    scripts["agentic_generative_ui"] |= {"Plant a tree": PLANTING}
    scripts["shared_state"] |= {"Make it Italian": COOKING}
    api, home = start_api(scripts), Path.cwd() / "claude"
    home.mkdir(exist_ok=True)
    variables = {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_API_KEY": "sk-ant-scripted-model",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    return {
        name: ClaudeBridge(
            tools=["Read"],
            state_tool="always",
            predict_state=[PredictStateMapping("document", "write_document", "document")],
            env={**variables, "ANTHROPIC_BASE_URL": f"{api}/{name}"},
        )
        for name in scripts
    }
