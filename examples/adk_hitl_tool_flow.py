"""Human in the loop: a long-running tool whose result a person sends, and a tool that needs confirmation.

A long-running call ends the run with `pendingToolCallIds`; send the result as a tool message. A confirmation ends the run with an
interrupt; answer it in `resume`. Both can be answered after a restart of the server.
Set the API key of your model in the environment, then run it from this directory: `uvicorn adk_hitl_tool_flow:app`.
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
    """Ask a human expert a question."""
    # A long-running tool that returns None leaves the call pending until a client sends the result.


def refund(amount: float) -> dict[str, float]:
    """Refund an amount to the customer."""
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
