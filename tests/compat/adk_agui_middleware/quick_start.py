"""An agent behind one endpoint."""

from adk_agui_middleware import SSEService
from adk_agui_middleware.data_model.config import PathConfig, RunnerConfig
from adk_agui_middleware.data_model.context import ConfigContext
from adk_agui_middleware.endpoint import register_agui_endpoint
from fastapi import FastAPI, Request
from google.adk.agents import LlmAgent

from tests.bridges.adk.scripted import Scripted

model = Scripted.of(["Good ", "day."])
agent = LlmAgent(name="GenericAgent", model=model, instruction="Be helpful.")


async def extract_user_id(_: object, request: Request) -> str:
    return request.headers.get("X-User-Id", "default-user")


service = SSEService(
    agent=agent,
    config_context=ConfigContext(app_name="my-app", user_id=extract_user_id, event_source_response_mode=True),
    runner_config=RunnerConfig(),
)
app = FastAPI(title="AI Agent Service")
register_agui_endpoint(app, service, path_config=PathConfig(agui_main_path="/agui"))
