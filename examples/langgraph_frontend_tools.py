"""A LangGraph agent with tools on both sides: it looks up the weather itself, and the page it is shown on changes its own colours.

The page declares its tools in `RunAgentInput.tools`. `frontend_tools()` offers them to the model; `route_tools`, `backend_tools` and
`back_to_model` see to it that the graph carries out its own calls and leaves the page's to the page, which answers in its next request.
Run it as `langgraph_approval.py` says: `uvicorn langgraph_frontend_tools:create --factory`.
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
    frontend_tools,
    request_context,
    route_tools,
)

MODEL = "openai:gpt-4.1-mini"


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


def prompt() -> SystemMessage:
    """What the model is told first, with what the page says about itself."""
    said = "\n".join(f"{one['description']}: {one['value']}" for one in request_context())
    return SystemMessage(f"Be brief. Use the page's tools when they help.\n{said}".strip())


def graph_of(model: BaseChatModel) -> Any:
    async def agent(state: MessagesState) -> dict[str, Any]:
        bound = model.bind_tools([get_weather, *frontend_tools()])
        return {"messages": [await bound.ainvoke([prompt(), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)  # pyright: ignore[reportUnknownMemberType]
    graph.add_node("tools", backend_tools(ToolNode([get_weather])))  # pyright: ignore[reportUnknownMemberType]
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route_tools("tools"), ["tools", END])
    graph.add_conditional_edges("tools", back_to_model("agent"), ["agent", END])
    return graph.compile(checkpointer=InMemorySaver())  # pyright: ignore[reportUnknownMemberType]


def create(model: BaseChatModel | None = None, settings: Settings | None = None) -> FastAPI:
    """The app, with any chat model of LangChain."""
    app = FastAPI(title="Frontend tools")
    add_ambient_endpoints(app, LangGraphBridge(graph_of(model or named_model())), settings=settings)
    return app


def named_model() -> BaseChatModel:
    from langchain.chat_models import init_chat_model  # pyright: ignore

    return init_chat_model(MODEL)  # pyright: ignore
