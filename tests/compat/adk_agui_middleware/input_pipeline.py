"""A recorder of requests and events, and an input that answers the pending call of a tool."""

from adk_agui_middleware import SSEService, register_agui_endpoint
from adk_agui_middleware.base_abc.handler import BaseInOutHandler
from adk_agui_middleware.data_model.common import InputInfo
from adk_agui_middleware.data_model.config import PathConfig
from adk_agui_middleware.data_model.context import ConfigContext, HandlerContext
from ag_ui.core import BaseEvent, RunAgentInput, ToolMessage
from fastapi import FastAPI, Request
from google.adk.agents import LlmAgent
from google.adk.tools import LongRunningFunctionTool

from tests.bridges.adk.scripted import Scripted, call

recorded: list[str] = []


class Recorder(BaseInOutHandler):
    async def input_record(self, input_info: InputInfo) -> None:
        recorded.append(f"{input_info.app_name}/{input_info.user_id}/{input_info.session_id}")

    async def output_record(self, agui_event: BaseEvent) -> None:
        recorded.append(agui_event.type.value)

    async def output_catch_and_change(self, agui_event: BaseEvent) -> BaseEvent:
        return agui_event


def ask_user(question: str) -> None:
    """Ask the user."""


async def user_of_run(_: object, request: Request) -> str:
    return request.headers.get("X-User-Id", "guest")


async def answer_with_message(run_input: RunAgentInput, pending: dict[str, str]) -> RunAgentInput:
    """Make the newest message the result of the call that waits."""
    if pending:
        last = run_input.messages.pop()
        call_id = next(iter(pending))
        content = f'{{"answer": "{last.content}"}}'
        run_input.messages.append(
            ToolMessage(role="tool", id=f"{last.id}-answer", tool_call_id=call_id, content=content)
        )
    return run_input


model = Scripted.of([call("ask_user", "c1", question="Which color?")], ["Blue it is."])
agent = LlmAgent(name="asker", model=model, tools=[LongRunningFunctionTool(ask_user)])
service = SSEService(
    agent,
    ConfigContext(app_name="demo-app", user_id=user_of_run, convert_run_agent_input=answer_with_message),
    handler_context=HandlerContext(in_out_record_handler=Recorder),
)
app = FastAPI(title="Input pipeline")
register_agui_endpoint(app, service, PathConfig(agui_main_path="/api/v1/agui"))
