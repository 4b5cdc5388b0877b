"""A thread of a real graph behind a real Runner: what clients got, in short words, and graphs to try."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.client_tools import back_to_model, backend_tools, client_tools, route_tools
from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.config import Settings
from ambient_runner.ledger import open_ledger
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.private_entries import is_private
from ambient_runner.protocol import events as e
from ambient_runner.runs.run import Run, RunHandler
from ambient_runner.runs.runner import Runner
from tests.bridges.langgraph.scripted import ScriptedModel
from tests.bridges.strands.world import TOOL, five_places, no, tasks_since, tool_message, verify, yes
from tests.bridges.strands.world import summarize as told_plainly
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, events_of, request

__all__ = [
    "STREAMS",
    "TOOL",
    "Thread",
    "agent_graph",
    "five_places",
    "get_weather",
    "in_a_row",
    "langgraph",
    "no",
    "react_agent",
    "steps",
    "summarize",
    "tasks_since",
    "verify",
    "yes",
]

STREAMS: list[list[e.Event]] = []
"""Every run of every test here, for the official clients to judge (`tests/e2e/test_langgraph_streams.py`)."""


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def in_a_row(*nodes: Any, schema: Any = MessagesState, **options: Any) -> Any:
    """A graph of these nodes, one after the other."""
    graph = StateGraph(schema)
    for at, node in enumerate(nodes):
        graph.add_node(f"n{at}", node)
        graph.add_edge(f"n{at - 1}" if at else START, f"n{at}")
    return graph.compile(**options)


def agent_graph(model: ScriptedModel, *tools: Any, **compiled: Any) -> Any:
    """A model that calls tools until it is done; it sees the client's tools too."""

    async def agent(state: MessagesState) -> Any:
        bound = model.bind_tools([*tools, *client_tools()])
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", backend_tools(ToolNode(list(tools))))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route_tools(), ["tools", END])
    graph.add_conditional_edges("tools", back_to_model(), ["agent", END])
    return graph.compile(**compiled)


def react_agent(model: ScriptedModel, *tools: Any, **options: Any) -> Any:
    """The SDK's own agent, in which every tool call is a task. It is about to move to another package, and says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(model, list(tools), **options)


@dataclass
class Thread:
    """One conversation. Each method is one run and gives its events as the graph sent them, inside the frame."""

    runner: Runner
    taps: dict[str, list[e.Event]]
    name: str = "t"
    tools: list[e.Tool] = field(default_factory=list)
    count: int = 0
    events: list[e.Event] = field(default_factory=list)
    """The events of the last run."""
    seen: list[e.Event] = field(default_factory=list)
    """The last run as clients got it, with the server's own events."""
    error: str | None = None
    """The code of the last run's RUN_ERROR."""

    async def say(self, text: Any, **options: Any) -> list[str]:
        self.count += 1
        return await self.run(e.UserMessage(id=f"u{self.count}", content=text), **options)

    async def answer(self, **results: Any) -> list[str]:
        """The client's results by call id."""
        return await self.run(*(tool_message(call, result) for call, result in results.items()))

    async def resume(self, *entries: e.ResumeEntry, **options: Any) -> list[str]:
        return await self.run(resume=list(entries), **options)

    async def run(self, *messages: e.Message, **options: Any) -> list[str]:
        with unless_hung():
            more = {name: options.pop(name) for name in ("context", "forwarded_props") if name in options}
            run_request = request(*messages, thread=self.name, **{"tools": self.tools, **options})
            run_request = dataclasses.replace(run_request, input=msgspec.structs.replace(run_request.input, **more))
            started = await self.runner.start(run_request)
            self.seen = await events_of(self.runner, started)
        last = self.seen[-1]
        self.error = last.code if isinstance(last, e.RunError) else None
        self.events = self.taps[self.name]
        return summarize(self.events)

    @property
    def interrupts(self) -> list[e.Interrupt]:
        end = self.events[-1]
        assert isinstance(end, e.RunFinished)
        assert isinstance(end.outcome, e.Interrupted)
        return end.outcome.interrupts

    @property
    def end(self) -> e.RunFinished:
        end = self.events[-1]
        assert isinstance(end, e.RunFinished)
        return end

    async def messages(self) -> list[str]:
        """The thread's messages in short words, without their ids; a call follows its message."""
        view = await self.runner.view_thread(ThreadKey(KEY.tenant, KEY.owner, self.name))
        return [line for message in view.transcript.messages() for line in _message_lines(message)]

    def text(self) -> str:
        return "".join(event.delta for event in self.events if isinstance(event, e.TextMessageContent))


def _message_lines(message: e.Message) -> list[str]:
    role = type(message).__name__.removesuffix("Message").lower()
    calls = message.tool_calls or [] if isinstance(message, e.AssistantMessage) else []
    return [
        f"{role}: {message.content or ''}".rstrip(),
        *(f"call: {call.id} {call.function.name} {call.function.arguments}" for call in calls),
    ]


def summarize(events: list[e.Event]) -> list[str]:
    """The stream in short words, without the steps: nearly every stream has the same. `m1` is the first message of the graph's own ids."""
    named = _Renamed()
    return told_plainly([named(event) for event in events if not isinstance(event, e.StepStarted | e.StepFinished)])


def steps(events: list[e.Event]) -> list[str]:
    """The steps alone."""
    return [
        f"{'+' if isinstance(event, e.StepStarted) else '-'}{event.step_name}"
        for event in events
        if isinstance(event, e.StepStarted | e.StepFinished)
    ]


class _Renamed:
    """Numbers the ids that a graph makes up: those of its messages and of its subgraphs."""

    _FIELDS = ("message_id", "parent_message_id", "subagent_run_id", "parent_subagent_run_id")

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._counts = {"m": 0, "s": 0}

    def __call__(self, event: e.Event) -> e.Event:
        found = {name: getattr(event, name, None) for name in self._FIELDS}
        renamed = {
            name: self._name(native_id) for name, native_id in found.items() if native_id and _is_made(native_id)
        }
        return msgspec.structs.replace(event, **renamed) if renamed else event

    def _name(self, native_id: str) -> str:
        base, _, again = native_id.partition("~")
        if base not in self._ids:
            letter = "s" if ":" in base else "m"
            self._counts[letter] += 1
            self._ids[base] = f"{letter}{self._counts[letter]}"
        return self._ids[base] + (f"~{again}" if again else "")


def _is_made(name: str) -> bool:
    return name.startswith("lc_run-") or ":" in name or (len(name) == 36 and name.count("-") == 4)


@asynccontextmanager
async def langgraph(
    graph: Any,
    config: LangGraphConfig | None = None,
    *,
    tools: list[e.Tool] | None = None,
    store: Path | None = None,
    settings: Settings = SETTINGS,
    bridge: Callable[[], LangGraphBridge] | None = None,
) -> AsyncGenerator[Thread, None]:
    """A thread on a Runner of its own; with `store` on a file that another one may open later."""
    taps: dict[str, list[e.Event]] = {}
    hosted = AgentHost("agent", bridge() if bridge else LangGraphBridge(graph, config))
    url = f"sqlite:///{store}" if store else "memory://"
    async with open_ledger(url) as ledger, Runner(ledger, {"agent": hosted}, settings, [_tap(taps)]) as runner:
        yield Thread(runner, taps, tools=tools or [])


def _tap(taps: dict[str, list[e.Event]]) -> Any:
    """Middleware that keeps what the graph sent before the Runner repairs anything, and insists that nothing needs repair."""

    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncIterator[e.Event]:
            seen = taps[run.thread.id] = []
            end: list[e.Event] | None = None
            try:
                async for event in handler(run):
                    if not is_private(event):
                        seen.append(event)
                    yield event
                end = []
            except Exception:
                end = [e.RunError(message="failed")]
                raise
            finally:
                if end is not None:
                    verify([*seen, *end])
                    STREAMS.append([*seen, *end])

        return handle

    return wrap
