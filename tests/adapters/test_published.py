"""Two bridges of the public contract, word for word, with the published adapters: `ag_ui_langgraph` and `ag_ui_claude_sdk`.

They live in an environment of their own, `.venv-adapters`, which `make test-all` makes: nothing of ours needs them. Each app is a child
process there, and what comes out of it is judged here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.aimock import environment, scripted_model
from tests.e2e.contract_samples import CLAUDE_BRIDGE, LANGGRAPH_BRIDGE
from tests.e2e.server import Child
from tests.e2e.sse import open_stream
from tests.e2e.talk import answer_of, ending, events_of, history, new_id, one_run, run, run_input, split_runs, text_of
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-adapters" / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the published adapters are not installed: run `make .venv-adapters/.installed`"
)

GRAPH_APP = """
import asyncio

from ag_ui_langgraph import LangGraphAgent
from fastapi import FastAPI
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from ambient_runner import FrameworkCapabilities, PlatformBridge, add_ambient_endpoints


class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **options):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(_answer(messages)))])

    async def _astream(self, messages, stop=None, run_manager=None, **options):
        for word in _answer(messages).split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(word + " "))
        if messages[-1].content == "hang":
            await asyncio.Event().wait()
        if messages[-1].content == "crash":
            raise RuntimeError("cannot reach db.internal with password sk-demo-5f2a9c71e04b8d36")


def _answer(messages):
    return f"seen {len(messages)}: " + ", ".join(m.content.strip() for m in messages if m.type == "human")


async def speak(state):
    return {"messages": [await Scripted().ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("speak", speak)
builder.add_edge(START, "speak")
builder.add_edge("speak", END)
graph = builder.compile(checkpointer=MemorySaver())
"""

CLAUDE_APP = """
from ag_ui_claude_sdk import ClaudeAgentAdapter
from fastapi import FastAPI

from ambient_runner import FrameworkCapabilities, PlatformBridge, add_ambient_endpoints
"""


def served(directory: Path, source: str, bridge: str, env: Mapping[str, str] | None = None) -> Child:
    (directory / "app.py").write_text(f"{source}\n{bridge}")
    return Child([str(PYTHON), "-m", "uvicorn", "app:app", "--port", "0"], cwd=directory, env=env)


SERVE_GRAPH = f"{LANGGRAPH_BRIDGE}\napp = FastAPI()\nadd_ambient_endpoints(app, bridge=LangGraphBridge(graph))\n"
SERVE_CLAUDE = f"{CLAUDE_BRIDGE}\napp = FastAPI()\nadd_ambient_endpoints(app, bridge=ClaudeBridge())\n"


async def test_the_langgraph_sample_runs_with_the_published_adapter(tmp_path: Path) -> None:
    thread = new_id("thread")
    with served(tmp_path, GRAPH_APP, SERVE_GRAPH) as server, unless_hung():
        turns = [one_run(events_of(await run(server.url, run_input(thread, text)))) for text in ("one", "two")]
        other = one_run(events_of(await run(server.url, run_input(new_id("thread"), "three"))))
        stored = split_runs(events_of(await history(server.url, thread)))
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
            declared = (await http.get("/capabilities")).json()["framework"]
    assert [ending(events) for events in (*turns, other)] == ["success"] * 3
    assert [text_of(events).strip() for events in (*turns, other)] == [
        "seen 1: one",
        "seen 3: one, two",
        "seen 1: three",
    ]
    assert stored == turns
    messages = next(event for event in reversed(turns[1]) if event["type"] == "MESSAGES_SNAPSHOT")["messages"]
    assert [message["content"].strip() for message in messages] == ["one", "seen 1: one", "two", "seen 3: one, two"]
    assert (declared["file_system"], declared["session_persistence"]) == (False, True)


async def test_the_langgraph_sample_is_stopped_and_fails_calmly(tmp_path: Path) -> None:
    thread = new_id("thread")
    with served(tmp_path, GRAPH_APP, SERVE_GRAPH) as server, unless_hung():
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "hang")) as stream:
            frames = await stream.until("TEXT_MESSAGE_CONTENT")
            async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
                assert (await http.post("/interrupt", json={"threadId": thread})).status_code == 200
            frames += await stream.rest()
        crashed = one_run(events_of(await run(server.url, run_input(new_id("thread"), "crash"))))
    assert ending(one_run(events_of(frames))) == "cancelled"
    assert (crashed[-1]["type"], crashed[-1]["code"]) == ("RUN_ERROR", "agent_error")
    assert "sk-demo" not in str(crashed)


async def test_the_claude_sample_runs_with_the_published_adapter(tmp_path: Path) -> None:
    thread = new_id("thread")
    answers = [("quokka", "A quokka is a small wallaby."), ("numbat", "A numbat eats termites.")]
    with scripted_model(tmp_path, answers) as model:
        env = environment(tmp_path, model)
        with served(tmp_path, CLAUDE_APP, SERVE_CLAUDE, env) as server, unless_hung():
            turns = [
                one_run(events_of(await run(server.url, run_input(thread, text))))
                for text in ("What is a quokka?", "And a numbat?")
            ]
    assert [(ending(events), answer_of(events)) for events in turns] == [("success", answer) for _, answer in answers]
