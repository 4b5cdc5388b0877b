"""Graph factories: what they open is closed, and a graph without a messages key is reported."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.bridges.registry import load_agent
from ambient_runner.errors import ConfigError
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


async def test_a_factory_is_called_with_no_more_than_it_needs() -> None:
    arguments: list[Any] = []

    def with_a_default(model: Any = "small") -> Any:
        arguments.append(model)
        return agent_graph(ScriptedModel(says("ok")))

    def with_options(**options: Any) -> Any:
        arguments.append(options)
        return agent_graph(ScriptedModel(says("ok")))

    @asynccontextmanager
    async def opened(name: str = "graph") -> AsyncGenerator[Any, None]:
        arguments.append(name)
        yield agent_graph(ScriptedModel(says("ok"), says("ok")))

    for make in (with_a_default, with_options, opened):
        async with langgraph(make) as thread:
            await thread.say("a")
            assert thread.text() == "ok"
    assert arguments == ["small", {}, "graph"]


async def test_a_graph_without_a_messages_key_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    class State(TypedDict):
        history: list[Any]

    graph = StateGraph(State).add_node("node", lambda state: {}).add_edge(START, "node").compile()
    async with langgraph(graph) as thread:
        await thread.say("a")
        thread.name = "another"
        await thread.say("b")
    warnings = [record.getMessage() for record in caplog.records if "has no key" in record.getMessage()]
    assert warnings == [
        "Thread t: the input of its graph has no key 'messages', so the graph does not receive the user's messages. Its "
        "keys are: history. Add the key to its state, or name the right one: LangGraphConfig(messages_key=…)."
    ]


@pytest.mark.parametrize(
    ("own", "ours", "steps"),
    [(None, None, 100), (130, None, 130), (130, 20, 20), (20, 130, 130)],
    ids=["by default", "by the graph's own limit", "by ours", "by ours, which is higher"],
)
async def test_a_graph_without_an_end_is_stopped(own: int | None, ours: int | None, steps: int) -> None:
    rounds: list[int] = []

    def node(state: Any) -> Any:
        rounds.append(1)
        return {"n": len(rounds)}

    class State(TypedDict):
        messages: list[Any]
        n: int

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").add_edge("node", "node").compile()
    limited = graph if own is None else graph.with_config(recursion_limit=own)
    config = LangGraphConfig() if ours is None else LangGraphConfig(recursion_limit=ours)
    async with langgraph(limited, config) as thread:
        await thread.say("go")
    assert (thread.error, len(rounds)) == ("recursion_limit", steps)


MODULE = """
from contextlib import asynccontextmanager

from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from tests.bridges.langgraph.scripted import ScriptedModel, says
from tests.bridges.langgraph.world import agent_graph

async def make():
    return agent_graph(ScriptedModel(says("hello")))

@asynccontextmanager
async def opened():
    yield agent_graph(ScriptedModel(says("hello")))

class Entered(LangGraphBridge):
    async def __aenter__(self):
        raise NotImplementedError

    async def __aexit__(self, *error):
        raise NotImplementedError

def make_entered():
    return Entered(make)

bridge = LangGraphBridge(make)
opened_bridge = LangGraphBridge(opened)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"served_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("factory", ["make", "opened"])
def test_an_async_factory_on_the_command_line_is_refused_with_what_to_write_instead(module: str, factory: str) -> None:
    """A coroutine that is left alone warns when it is collected, and here that is an error."""
    with pytest.raises(ConfigError) as refused:
        load_agent(f"mine={module}:{factory}")
    gc.collect()
    assert f"bridge = LangGraphBridge({factory})" in refused.value.message
    assert f"{module}:bridge" in refused.value.message


@pytest.mark.parametrize("attribute", ["bridge", "opened_bridge", "make_entered"])
async def test_what_is_written_instead_is_served(module: str, attribute: str) -> None:
    _, bridge = load_agent(f"mine={module}:{attribute}")
    assert isinstance(bridge, LangGraphBridge)
    async with langgraph(None, bridge=lambda: bridge) as thread:
        await thread.say("hi")
    assert thread.text() == "hello"


async def test_a_bridge_that_was_never_used_closes() -> None:
    await LangGraphBridge(lambda: agent_graph(ScriptedModel())).aclose()


def test_a_checkpointer_without_asynchronous_methods_is_refused_at_start_with_advice() -> None:
    class PostgresSaver(BaseCheckpointSaver[Any]):
        """A saver that inherits the asynchronous methods, which raise."""

    graph = StateGraph(MessagesState).add_node("n", lambda state: {}).add_edge(START, "n")
    with SqliteSaver.from_conn_string(":memory:") as sqlite:
        for saver, better in ((sqlite, "AsyncSqliteSaver"), (PostgresSaver(), "AsyncPostgresSaver")):
            with pytest.raises(ConfigError) as refused:
                LangGraphBridge(graph.compile(checkpointer=saver))
            assert better in refused.value.message
    LangGraphBridge(graph.compile(checkpointer=InMemorySaver()))
