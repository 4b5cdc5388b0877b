"""A recipe that the user and a LangGraph agent edit together. It is a key of the graph's state, so both see every change.

The page edits `state.recipe` and sends it with the next run; the graph reads it from its state. While the model writes a new recipe, the
page shows it word by word (`PredictStateMapping`); the node `save` then writes it to the state. The key `drafts` is hidden: clients
neither see nor set it.
Set up the model as in `langgraph_approval.py`, then run it from this directory: `uvicorn langgraph_shared_state:create --factory`.
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
WRITE_RECIPE = {
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


def build_graph(model: BaseChatModel) -> Any:
    bound = model.bind_tools([WRITE_RECIPE])

    async def agent(state: State) -> dict[str, Any]:
        prompt = f"You improve recipes with write_recipe. The current recipe: {json.dumps(state.get('recipe'))}"
        return {"messages": [await bound.ainvoke([SystemMessage(prompt), *state["messages"]])]}

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
    """Create the app with any LangChain chat model."""
    app = FastAPI(title="Shared state")
    add_ambient_endpoints(app, LangGraphBridge(build_graph(model or default_model()), CONFIG), settings=settings)
    return app


def default_model() -> BaseChatModel:
    from langchain.chat_models import init_chat_model  # pyright: ignore

    return init_chat_model(MODEL)  # pyright: ignore
