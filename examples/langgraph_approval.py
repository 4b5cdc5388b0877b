"""A LangGraph agent that needs approval before it pays. The interrupt is stored with the thread; the answer resumes the graph.

Install the package of your model (`pip install langchain langchain-openai`), set MODEL and the provider's API key, and run it from this
directory: `uvicorn langgraph_approval:create --factory`. With a persistent checkpointer such as `AsyncSqliteSaver`, interrupts can be
answered after a restart of the server.
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
ANSWER_SCHEMA = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


@tool
def pay(recipient: str, amount: float) -> str:
    """Pay an amount in euros. The user must approve the payment."""
    request = {
        "reason": "confirmation",
        "message": f"Pay {amount:.2f} € to {recipient}?",
        "recipient": recipient,
        "amount": amount,
    }
    answer = interrupt(request, response_schema=ANSWER_SCHEMA)
    # The answer is client input: treat everything except `{"approved": true}` as declined.
    if not isinstance(answer, dict) or answer.get("approved") is not True:  # pyright: ignore[reportUnknownMemberType]
        return "The user declined. Nothing was paid."
    return f"Paid {amount:.2f} € to {recipient}."


def build_graph(model: BaseChatModel) -> Any:
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
    """Create the app with any LangChain chat model. Interrupts expire after an hour."""
    app = FastAPI(title="Approval")
    bridge = LangGraphBridge(build_graph(model or default_model()), LangGraphConfig(interrupt_timeout=3600))
    add_ambient_endpoints(app, bridge, settings=settings)
    return app


def default_model() -> BaseChatModel:
    from langchain.chat_models import init_chat_model  # pyright: ignore

    return init_chat_model(MODEL)  # pyright: ignore
