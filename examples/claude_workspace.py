"""Serve Claude with a workspace per thread, a custom tool, and permission requests as interrupts.

Needs `pip install 'ambient-runner[claude]'` and ANTHROPIC_API_KEY. Run it from this directory with
`uvicorn claude_workspace:create --factory` and post a message:

    {"threadId": "tide", "messages": [{"role": "user", "content": "Write a haiku about the tide to haiku.txt"}]}

Claude writes files in the thread's workspace without asking. A command that needs permission ends the run with an interrupt. Answer it:

    {"threadId": "tide", "messages": [],
     "resume": [{"interruptId": "...", "status": "resolved", "payload": {"approved": true}}]}
"""

from typing import Any

from claude_agent_sdk import tool
from fastapi import FastAPI

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.claude import ClaudeBridge

TIDES = {"lisbon": "03:12 and 15:40", "brest": "04:55 and 17:21"}


@tool("tides", "Return the times of high tide in a town today.", {"town": str})
async def tides(arguments: dict[str, Any]) -> dict[str, Any]:
    # Custom tools run in this process, so they can use your application's data and connections.
    times = TIDES.get(str(arguments["town"]).lower(), "unknown")
    return {"content": [{"type": "text", "text": f"High tide: {times}"}]}


def create(bridge: ClaudeBridge | None = None, settings: Settings | None = None) -> FastAPI:
    app = FastAPI()
    claude = bridge or ClaudeBridge(disallowed_tools=["WebSearch"], allowed_tools=["Bash(git status)"])
    add_ambient_endpoints(app, claude, settings=settings, custom_tools=[tides])
    return app
