"""A LangGraph agent with backend and client tools: the graph looks up the weather, the web page changes its own colors.

The page declares its tools in `RunAgentInput.tools`. `client_tools()` returns them for the model. `route_tools`, `backend_tools` and
`back_to_model` make the graph execute only its own tools; the page sends the results of its tools with the next request.
Set up the model as in `langgraph_approval.py`, then run it from this directory: `uvicorn langgraph_frontend_tools:create --factory`.
"""

from typing import Any

from fastapi import FastAPI
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool  # pyright: ignore[reportUnknownVariableType]  the SDK's own types
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode  # pyright: ignore[reportMissingTypeStubs]

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.langgraph import (
    LangGraphBridge,
    back_to_model,
    backend_tools,
    client_tools,
    request_context,
    route_tools,
)

MODEL = "openai:gpt-4.1-mini"


@tool
def get_weather(city: str) -> str:
    """Return the current weather in a city."""
    return f"It is sunny in {city}."


def system_prompt() -> SystemMessage:
    """Return the system prompt with the context that the page sent."""
    context = "\n".join(f"{item['description']}: {item['value']}" for item in request_context())
    return SystemMessage(f"Be brief. Use the page's tools when they help.\n{context}".strip())


def build_graph(model: BaseChatModel) -> Any:
    async def agent(state: MessagesState) -> dict[str, Any]:
        bound = model.bind_tools([get_weather, *client_tools()])
        return {"messages": [await bound.ainvoke([system_prompt(), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)  # pyright: ignore[reportUnknownMemberType]
    graph.add_node("tools", backend_tools(ToolNode([get_weather])))  # pyright: ignore[reportUnknownMemberType]
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route_tools("tools"), ["tools", END])
    graph.add_conditional_edges("tools", back_to_model("agent"), ["agent", END])
    return graph.compile(checkpointer=InMemorySaver())  # pyright: ignore[reportUnknownMemberType]


def create(model: BaseChatModel | None = None, settings: Settings | None = None) -> FastAPI:
    """Create the app with any LangChain chat model."""
    app = FastAPI(title="Frontend tools")
    add_ambient_endpoints(app, LangGraphBridge(build_graph(model or default_model())), settings=settings)
    return app


def default_model() -> BaseChatModel:
    from langchain.chat_models import init_chat_model  # pyright: ignore

    return init_chat_model(MODEL)  # pyright: ignore
