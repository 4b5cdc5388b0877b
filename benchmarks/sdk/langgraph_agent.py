"""A LangGraph graph whose model counts: `count 2000` is two thousand chunks, unpaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.workload import parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class CountingModel(BaseChatModel):
    """Streams the workload of the last user message."""

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[ChatGenerationChunk]:
        async for text in stream_deltas(parse_workload(messages[-1].content)):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))


_model = CountingModel()


async def _call_model(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await _model.ainvoke(state["messages"])]}


def build_agent() -> Any:
    graph = StateGraph(MessagesState).add_node("model", _call_model).add_edge(START, "model")
    return graph.compile(checkpointer=InMemorySaver())


_graph = build_agent()
_runs = iter(range(1 << 62))


async def run_loop(prompt: str) -> int:
    """Consume the SDK's own stream. Return the number of deltas."""
    config: Any = {"configurable": {"thread_id": str(next(_runs))}}
    count = 0
    async for message, _ in _graph.astream({"messages": [HumanMessage(prompt)]}, config, stream_mode="messages"):
        count += bool(message.content)
    return count


def build_published_app() -> Any:
    """Return the app of the published adapter."""
    from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint  # pyright: ignore  # another environment
    from fastapi import FastAPI

    app = FastAPI()
    add_langgraph_fastapi_endpoint(app, LangGraphAgent(name="bench", graph=build_agent()), path="/")
    return app
