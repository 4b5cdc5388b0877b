"""A recipe that the user and a LangGraph agent write together. It is a key of the graph's state, so both see every change.

The page edits `state.recipe` and posts it; the graph finds it in its state. What the agent writes is shown word by word while the model
writes it (`PredictStateMapping`), and is there for good when the node `save` has put it into the state. The key `drafts` is the graph's
own business: clients neither see nor set it.
Run it as `langgraph_approval.py` says: `uvicorn langgraph_shared_state:create --factory`.
"""

import json
from typing import Any

from fastapi import FastAPI
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.langgraph import LangGraphBridge, LangGraphConfig, PredictStateMapping

MODEL = "openai:gpt-4.1-mini"
WRITE = {
    "type": "function",
    "function": {
        "name": "write_recipe",
        "description": "Write the whole recipe.",
        "parameters": {
            "type": "object",
            "properties": {
                "recipe": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "steps": {"type": "array", "items": {"type": "string"}},
                    },
                }
            },
            "required": ["recipe"],
        },
    },
}
CONFIG = LangGraphConfig(
    hidden_state=["drafts"],
    predict_state=[PredictStateMapping(state_key="recipe", tool="write_recipe", tool_argument="recipe")],
)


class State(MessagesState):
    recipe: dict[str, Any]
    drafts: int


def graph_of(model: BaseChatModel) -> Any:
    bound = model.bind_tools([WRITE])

    async def agent(state: State) -> dict[str, Any]:
        now = SystemMessage(f"You improve recipes with write_recipe. The recipe now: {json.dumps(state.get('recipe'))}")
        return {"messages": [await bound.ainvoke([now, *state["messages"]])]}

    def save(state: State) -> dict[str, Any]:
        calls: list[Any] = getattr(state["messages"][-1], "tool_calls", [])
        results = [ToolMessage("Written.", tool_call_id=call["id"]) for call in calls]
        return {"recipe": calls[-1]["args"]["recipe"], "drafts": state.get("drafts", 0) + 1, "messages": results}

    def after_agent(state: State) -> str:
        return "save" if getattr(state["messages"][-1], "tool_calls", None) else END

    graph = StateGraph(State)
    graph.add_node("agent", agent)  # pyright: ignore[reportUnknownMemberType]
    graph.add_node("save", save)  # pyright: ignore[reportUnknownMemberType]
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", after_agent, ["save", END])
    graph.add_edge("save", "agent")
    return graph.compile(checkpointer=InMemorySaver())  # pyright: ignore[reportUnknownMemberType]


def create(model: BaseChatModel | None = None, settings: Settings | None = None) -> FastAPI:
    """The app, with any chat model of LangChain."""
    app = FastAPI(title="Shared state")
    add_ambient_endpoints(app, LangGraphBridge(graph_of(model or named_model()), CONFIG), settings=settings)
    return app


def named_model() -> BaseChatModel:
    from langchain.chat_models import init_chat_model  # pyright: ignore

    return init_chat_model(MODEL)  # pyright: ignore
