"""A LangGraph graph whose model counts: `count 2000` is two thousand chunks, unpaced; `count 20 after 5 calls` calls a tool first."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.workload import parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class CountingModel(BaseChatModel):
    """Streams the workload of the last prompt, after its tool calls."""

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[ChatGenerationChunk]:
        prompts = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
        work = parse_workload(messages[prompts[-1]].content)
        if (len(messages) - 1 - prompts[-1]) // 2 < work.calls:
            first = {"id": str(uuid.uuid4()), "name": "look_up", "args": '{"city"', "index": 0}
            rest = [{"id": None, "name": None, "args": piece, "index": 0} for piece in (': "Lis', 'bon"}')]
            for piece in (first, *rest):
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
            return
        async for text in stream_deltas(work):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))


_model = CountingModel()


async def _call_model(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await _model.ainvoke(state["messages"])]}


async def _call_tool(state: MessagesState) -> dict[str, Any]:
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return {"messages": [ToolMessage(f"{c['args']['city']} has a harbour.", tool_call_id=c["id"]) for c in calls]}


def _choose_next(state: MessagesState) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", []) else END


def build_agent() -> Any:
    graph = StateGraph(MessagesState).add_node("model", _call_model).add_node("tools", _call_tool)
    graph.add_edge(START, "model").add_conditional_edges("model", _choose_next).add_edge("tools", "model")
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
