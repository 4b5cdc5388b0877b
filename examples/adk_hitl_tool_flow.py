"""A human in the loop, in both ways: a long-running tool that someone answers, and a tool that has to be confirmed.

The first ends the run with `pendingToolCallIds`; send the result as a tool message. The second ends it with an interrupt; answer it in
`resume`. Both may be answered after a restart of this server.
Run it from this directory with a key of your model in the environment: `uvicorn adk_hitl_tool_flow:app`.
"""

from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.tools import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from ambient_runner import Settings
from ambient_runner.adk import ConfigContext, RunnerConfig, SSEService, register_agui_endpoint

MODEL = "gemini-2.5-flash"


def ask_expert(question: str) -> None:
    """Ask a human expert. The answer comes later: a tool that gives nothing waits for it."""


def refund(amount: float) -> dict[str, float]:
    """Pay money back to the customer."""
    return {"refunded": amount}


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(
        name="support",
        model=model,
        instruction="Help the customer. Ask an expert when in doubt.",
        tools=[LongRunningFunctionTool(ask_expert), FunctionTool(refund, require_confirmation=True)],
    )
    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id="local"), settings=settings)
    app = FastAPI(title="Human in the loop")
    register_agui_endpoint(app, service)
    return app


app = create()
