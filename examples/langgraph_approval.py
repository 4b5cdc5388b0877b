"""A LangGraph agent that asks before it pays. The question waits in the thread, and the answer goes on where the graph stopped.

Install the package of your model (`pip install langchain langchain-openai`), name the model in MODEL, put its key in the environment, and
run it from this directory: `uvicorn langgraph_approval:create --factory`. A checkpointer that keeps its data, such as
`AsyncSqliteSaver`, lets questions survive a restart of the server.
"""

from typing import Any

from fastapi import FastAPI
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool  # pyright: ignore[reportUnknownVariableType]  the SDK's own types
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode, tools_condition  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import interrupt

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.langgraph import LangGraphBridge, LangGraphConfig

MODEL = "openai:gpt-4.1-mini"
ANSWER = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


@tool
def pay(recipient: str, amount: float) -> str:
    """Pay an amount, in euros, after a person has agreed."""
    question = {
        "reason": "confirmation",
        "message": f"Pay {amount:.2f} € to {recipient}?",
        "recipient": recipient,
        "amount": amount,
    }
    answer = interrupt(question, response_schema=ANSWER)
    # What comes back is whatever was posted: anything but a clear yes is a no.
    if not isinstance(answer, dict) or answer.get("approved") is not True:  # pyright: ignore[reportUnknownMemberType]
        return "The user declined. Nothing was paid."
    return f"Paid {amount:.2f} € to {recipient}."


def graph_of(model: BaseChatModel) -> Any:
    bound = model.bind_tools([pay])

    async def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)  # pyright: ignore[reportUnknownMemberType]
    graph.add_node("tools", ToolNode([pay]))  # pyright: ignore[reportUnknownMemberType]
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=InMemorySaver())  # pyright: ignore[reportUnknownMemberType]


def create(model: BaseChatModel | None = None, settings: Settings | None = None) -> FastAPI:
    """The app, with any chat model of LangChain. A question stays open for an hour."""
    app = FastAPI(title="Approval")
    bridge = LangGraphBridge(graph_of(model or named_model()), LangGraphConfig(interrupt_seconds=3600))
    add_ambient_endpoints(app, bridge, settings=settings)
    return app


def named_model() -> BaseChatModel:
    from langchain.chat_models import init_chat_model  # pyright: ignore

    return init_chat_model(MODEL)  # pyright: ignore
