"""Two agents, each with its own part of the tools of the page."""

from adk_agui_middleware import SSEService, register_agui_endpoint
from adk_agui_middleware.data_model.context import ConfigContext
from adk_agui_middleware.tools.frontend_tool import FrontendToolset
from fastapi import APIRouter, FastAPI, Request
from google.adk.agents import LlmAgent

from tests.bridges.adk.scripted import Scripted, call

greeter_model = Scripted.of([call("sayHello", "h1", to="Sam")], ["Sam was greeted."])
greeter = LlmAgent(
    name="greeter",
    description="Greets people.",
    model=greeter_model,
    tools=[FrontendToolset(tool_filter=["sayHello"])],
)
model = Scripted.of([call("transfer_to_agent", "t1", agent_name="greeter")])
agent = LlmAgent(name="root", model=model, sub_agents=[greeter])


async def user_of_run(_: object, request: Request) -> str:
    return request.headers.get("X-User-Id", "guest")


router = APIRouter(prefix="/agui")
register_agui_endpoint(router, SSEService(agent, ConfigContext(user_id=user_of_run)))
app = FastAPI(title="Tools of the page")
app.include_router(router)
