"""Functions that make graphs: what they open is closed, and a graph that answers nobody is told about."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.config import LangGraphConfig
from tests.bridges.langgraph.scripted import ScriptedModel, says
from tests.bridges.langgraph.world import agent_graph, langgraph


async def test_what_a_factory_opens_is_opened_once_and_closed_with_the_bridge(tmp_path: Path) -> None:
    model = ScriptedModel(says("one"), says("two"))
    opened: list[str] = []

    @asynccontextmanager
    async def make() -> AsyncGenerator[Any, None]:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
            opened.append("open")
            yield agent_graph(model, checkpointer=saver)
        opened.append("closed")

    async with langgraph(make) as thread:
        await thread.say("a")
        thread.name = "another"
        await thread.say("b")
        assert opened == ["open"]
    assert (opened, model.saw) == (["open", "closed"], [["user: a"], ["user: b"]])


async def test_what_a_factory_opens_for_a_thread_is_closed_with_it() -> None:
    model = ScriptedModel(says("one"), says("two"))
    opened: list[str] = []

    @asynccontextmanager
    async def make(ctx: PlatformContext) -> AsyncGenerator[Any, None]:
        opened.append(f"open {ctx.session_id}")
        yield agent_graph(model)
        opened.append(f"closed {ctx.session_id}")

    async with langgraph(make) as thread:
        await thread.say("a")
        thread.name = "another"
        await thread.say("b")
    assert sorted(opened) == ["closed another", "closed t", "open another", "open t"]


async def test_a_graph_that_takes_no_messages_is_told_about_once(caplog: pytest.LogCaptureFixture) -> None:
    class State(TypedDict):
        history: list[Any]

    graph = StateGraph(State).add_node("node", lambda state: {}).add_edge(START, "node").compile()
    async with langgraph(graph) as thread:
        await thread.say("a")
        thread.name = "another"
        await thread.say("b")
    said = [record.getMessage() for record in caplog.records if "has no key" in record.getMessage()]
    assert said == [
        "The graph's input has no key 'messages', so it does not get what users say. It has: history. "
        "Add the key to its state, or name the right one: LangGraphConfig(messages_key=…)."
    ]


async def test_a_graph_without_an_end_is_stopped_by_default() -> None:
    rounds: list[int] = []

    def node(state: Any) -> Any:
        rounds.append(1)
        return {"n": len(rounds)}

    class State(TypedDict):
        messages: list[Any]
        n: int

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").add_edge("node", "node").compile()
    async with langgraph(graph) as thread:
        await thread.say("go")
    assert (thread.error, len(rounds)) == ("RECURSION_LIMIT", LangGraphConfig().recursion_limit)


async def test_a_bridge_that_was_never_used_closes() -> None:
    await LangGraphBridge(lambda: agent_graph(ScriptedModel())).aclose()
