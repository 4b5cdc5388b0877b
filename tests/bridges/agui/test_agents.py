"""Every shape an AG-UI agent may have, and every form its events may come in."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from ag_ui.core import (
    AgentCapabilities,
    EventType,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    Tool,
    ToolsCapabilities,
)
from ag_ui.encoder import EventEncoder

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.agui import AGUIBridge, is_agui_agent
from ambient_runner.bridges.base import FrameworkCapabilities, PlatformContext
from ambient_runner.bridges.registry import load_agent
from ambient_runner.errors import ConfigError
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.protocol.events import (
    AssistantMessage,
    Cancelled,
    Custom,
    Event,
    RunError,
    RunFinished,
    TextMessageContent,
    ToolCallEnd,
    ToolCallStart,
)
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Run, current_run
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, request, run_once, said, user


@asynccontextmanager
async def serving(agent: Any) -> AsyncGenerator[Runner, None]:
    def context(run: Run) -> PlatformContext:
        return PlatformContext(session_id=run.thread.id, model="big")

    hosted = AgentHost("agent", AGUIBridge(agent), context=context)
    with unless_hung():
        async with MemoryLedger() as ledger, Runner(ledger, {"agent": hosted}, SETTINGS) as runner:
            yield runner


async def answer(agent: Any, thread: str = "t") -> str:
    async with serving(agent) as runner:
        return await turn(runner, "u1", thread)


async def turn(runner: Runner, message: str, thread: str = "t") -> str:
    events = await run_once(runner, user(message), thread=thread)
    assert isinstance(events[-1], RunFinished), events[-1]
    return "".join(event.delta for event in events if isinstance(event, TextMessageContent))


@dataclass
class Counting:
    """An agent with a memory of its own: it counts its turns."""

    name: str = "shared"
    turns: int = 0
    closed: list[str] = field(default_factory=list)

    async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:
        self.turns += 1
        for event in said(f"{input.run_id}-{self.turns}", f"{self.name} {self.turns}"):
            yield event

    async def aclose(self) -> None:
        self.closed.append(self.name)


class Cloning(Counting):
    def clone(self) -> Counting:
        return Counting("clone")


async def both_threads(agent: Any) -> list[str]:
    """What it says in the two turns of one thread and the only one of another."""
    async with serving(agent) as runner:
        return [
            await turn(runner, "u1", "a"),
            await turn(runner, "u2", "a"),
            await turn(runner, "u3", "b"),
        ]


async def test_an_object_serves_every_thread() -> None:
    agent = Counting()
    assert await both_threads(agent) == ["shared 1", "shared 2", "shared 3"]
    assert agent.closed == []


async def test_an_object_that_can_be_cloned_is_cloned_for_each_thread() -> None:
    assert await both_threads(Cloning()) == ["clone 1", "clone 2", "clone 1"]


async def test_a_factory_makes_one_for_each_thread_and_it_is_closed_with_it() -> None:
    closed: list[str] = []
    assert await both_threads(lambda: Counting("made", closed=closed)) == ["made 1", "made 2", "made 1"]
    assert closed == ["made", "made"]


async def test_a_factory_that_needs_an_argument_gets_the_context() -> None:
    def make(ctx: PlatformContext) -> Counting:
        return Counting(f"{ctx.session_id} {ctx.model}")

    assert await both_threads(make) == ["a big 1", "a big 2", "b big 1"]


async def test_a_class_is_a_factory() -> None:
    assert await both_threads(Counting) == ["shared 1", "shared 2", "shared 1"]


async def test_a_factory_may_be_a_coroutine_function() -> None:
    async def make(ctx: PlatformContext) -> Counting:
        return Counting("awaited")

    assert await both_threads(make) == ["awaited 1", "awaited 2", "awaited 1"]


async def test_an_async_generator_function_is_an_agent() -> None:
    async def agent(input: RunAgentInput) -> AsyncIterator[Event]:
        for event in said("m1", f"{len(input.messages)} messages"):
            yield event

    assert await answer(agent) == "1 messages"


async def test_run_may_return_events_in_any_form() -> None:
    class Awaited:
        async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:
            return Counting("awaited").run(input)

    class Plain:
        def run(self, input: RunAgentInput) -> Iterator[Event]:
            yield from said("m1", "plain")

    class Listed:
        async def run(self, input: RunAgentInput) -> list[Event]:
            return said("m1", "listed")

    assert [await answer(agent) for agent in (Awaited(), Plain(), Listed())] == ["awaited 1", "plain", "listed"]


MODELS = [
    RunStartedEvent(thread_id="foreign", run_id="foreign"),
    TextMessageStartEvent(message_id="m1", role="assistant"),
    TextMessageContentEvent(message_id="m1", delta="hé "),
    TextMessageContentEvent(message_id="m1", delta="there"),
    TextMessageEndEvent(message_id="m1"),
    RunFinishedEvent(thread_id="foreign", run_id="foreign", result={"n": 1}),
]
WIRE = "".join(EventEncoder().encode(event) for event in MODELS)
FORMS: dict[str, list[Any]] = {
    "ag_ui models": MODELS,
    "ours": said("m1", "hé ", "there"),
    "mappings": [event.model_dump(by_alias=True, exclude_none=True) for event in MODELS],
    "snake case": [{"type": EventType.TEXT_MESSAGE_CHUNK, "message_id": "m1", "delta": "hé there"}],
    "sse text": [EventEncoder().encode(event) for event in MODELS],
    "sse bytes cut anywhere": [WIRE.encode()[at : at + 7] for at in range(0, len(WIRE.encode()), 7)],
    "other bytes": [bytearray(WIRE.encode()[:50]), memoryview(WIRE.encode()[50:])],
    "crlf": [WIRE.replace("\n", "\r\n")],
    "ndjson": [f"{event.model_dump_json(by_alias=True, exclude_none=True)}\n" for event in MODELS],
    "no end": [WIRE.rstrip("\n").encode()],
    "mixed": [MODELS[1].model_dump(), EventEncoder().encode(MODELS[2]), said("m1", "there")[1], MODELS[4]],
}


@pytest.mark.parametrize("form", FORMS)
async def test_events_may_come_in_any_form(form: str) -> None:
    async def agent(input: RunAgentInput) -> AsyncIterator[Any]:
        for piece in FORMS[form]:
            yield piece

    async with serving(agent) as runner:
        assert await turn(runner, "u1") == "hé there"
        messages = (await runner.view_thread(KEY)).transcript.messages()
    assert messages == [user("u1"), AssistantMessage(id="m1", content="hé there")]


async def test_the_result_of_the_agent_is_kept_and_the_run_frame_is_ours() -> None:
    async def agent(input: RunAgentInput) -> AsyncIterator[Any]:
        yield WIRE

    async with serving(agent) as runner:
        last = (await run_once(runner, user("u1")))[-1]
    assert isinstance(last, RunFinished)
    assert (last.thread_id, last.run_id, last.result) == ("t", "r", {"n": 1})


async def test_text_that_is_no_event_is_dropped_and_reported() -> None:
    async def agent(input: RunAgentInput) -> AsyncIterator[Any]:
        yield WIRE
        yield "and that is all"

    async with serving(agent) as runner:
        events = await run_once(runner, user("u1"))
    told = [event.value for event in events if isinstance(event, Custom)]
    assert told == [{"type": "", "reason": "not_json"}]


def yielding(*values: Any) -> Any:
    async def agent(input: RunAgentInput) -> AsyncIterator[Any]:
        for value in values:
            yield value

    return agent


def sse(value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"


IN_ANY_FORM = pytest.mark.parametrize("form", [dict, sse], ids=["mapping", "text"])


@IN_ANY_FORM
async def test_a_snapshot_may_have_messages_without_ids_and_of_unknown_roles(form: Any) -> None:
    """Both ended the run with protocol_violation."""
    streamed = [*map(to_agui, said("m1", "one")), *map(to_agui, said("m2", "two"))]
    listed: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "two"},
        *({"id": "z", "role": "narrator", "content": "Meanwhile"}, {"id": "y", "role": []}, 7, None),
        {"role": "assistant", "content": "three", "id": None},
    ]
    async with serving(yielding(*streamed, form({"type": "MESSAGES_SNAPSHOT", "messages": listed}))) as runner:
        events = await run_once(runner, user("u1"))
        messages = (await runner.view_thread(KEY)).transcript.messages()
    assert isinstance(events[-1], RunFinished)
    assert [(message.id, message.content) for message in messages] == [
        *(("u1", "hi"), ("m2", "two"), ("snapshot-3", "three"))
    ]
    assert [event.value for event in events if isinstance(event, Custom)] == [
        {"type": "MESSAGES_SNAPSHOT", "reason": "unknown_role", "count": 4}
    ]


async def test_a_value_that_is_not_an_event_ends_the_run() -> None:
    async def agent(input: RunAgentInput) -> AsyncIterator[Any]:
        yield to_agui(said("m1", "x")[0])
        yield 7

    async with serving(agent) as runner:
        last = (await run_once(runner, user("u1")))[-1]
    assert isinstance(last, RunError)
    assert last.code == "protocol_violation"


async def test_a_factory_that_gives_no_agent_ends_the_run() -> None:
    async with serving(lambda: 7) as runner:
        assert isinstance((await run_once(runner, user("u1")))[-1], RunError)


def test_an_object_that_is_not_an_agent_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="int is not an AG-UI agent"):
        AGUIBridge(7)


def test_capabilities_can_be_set() -> None:
    given = FrameworkCapabilities(file_system=True, mcp=True)
    assert (AGUIBridge(Counting()).capabilities(), AGUIBridge(Counting(), capabilities=given).capabilities()) == (
        FrameworkCapabilities(),
        given,
    )


class Waiting:
    """Speaks, then waits until it is stopped or closed."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.stops: list[str | None] = []
        self.closed = asyncio.Event()

    async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:
        start, content, end = said("m1", "half ")
        try:
            yield start
            yield content
            await self.stopped.wait()
            yield end
        finally:
            self.closed.set()


class Stoppable(Waiting):
    async def interrupt(self) -> None:
        self.stops.append(None)
        self.stopped.set()


class StoppableByThread(Waiting):
    def interrupt(self, thread_id: str | None = None) -> None:
        self.stops.append(thread_id)
        self.stopped.set()


async def stopped(agent: Any) -> RunFinished:
    async with serving(agent) as runner:
        started = await runner.start(request(user("u1")))
        async for event in follow_run(runner.ledger, started):
            if isinstance(event, TextMessageContent):
                await runner.stop(KEY)
            last = event
        assert isinstance(last, RunFinished)
        return last


@pytest.mark.parametrize(
    ("agent", "own", "stops"),
    [
        (Waiting(), False, []),
        (Stoppable(), False, []),
        (Stoppable(), True, [None]),
        (StoppableByThread(), False, ["t"]),
        (StoppableByThread(), True, ["t"]),
    ],
    ids=[
        "not stoppable",
        "shared: it would stop every thread",
        "of the thread",
        "shared, by thread",
        "of the thread, by thread",
    ],
)
async def test_a_stop_reaches_the_agent_or_closes_its_events(
    agent: Waiting, own: bool, stops: list[str | None]
) -> None:
    last = await stopped((lambda: agent) if own else agent)
    assert last.outcome == Cancelled()
    assert agent.stops == stops
    assert agent.closed.is_set()


class Chatty:
    async def run(self, prompt: str) -> str:
        return prompt


class Streaming:
    async def run(self, input_data):  # type: ignore[no-untyped-def]
        yield input_data


class Typed:
    def run(self, input_data: RunAgentInput) -> AsyncIterator[Any]:
        raise NotImplementedError


async def generator(anything: Any) -> AsyncIterator[Any]:
    yield anything


async def of_two(one: Any, two: Any) -> AsyncIterator[Any]:
    yield one, two


async def of_none() -> AsyncIterator[Any]:
    yield None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Streaming(), True),
        (Streaming, True),
        (Typed(), True),
        (Typed, True),
        (generator, True),
        (Chatty(), False),
        (Chatty, False),
        (of_two, False),
        (of_none, False),
        (7, False),
        (lambda: Streaming(), False),
        (asyncio, False),
    ],
)
def test_only_an_unambiguous_agui_agent_is_accepted_as_one(found: Any, expected: bool) -> None:
    assert is_agui_agent(found) is expected


@pytest.mark.parametrize("form", ["model", "mapping", "sse", "ours"])
async def test_an_error_with_a_code_is_for_the_client_and_one_without_for_the_log(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    def formed(error: RunError) -> Any:
        model = to_agui(error)
        mapping = model.model_dump(by_alias=True, exclude_none=True)
        return {"model": model, "mapping": mapping, "sse": EventEncoder().encode(model), "ours": error}[form]

    async def fails(error: RunError) -> RunError:
        async def agent(input: RunAgentInput) -> AsyncIterator[Any]:
            yield formed(error)

        async with serving(agent) as runner:
            last = (await run_once(runner, user("u1")))[-1]
        assert isinstance(last, RunError)
        return last

    meant, slipped = (
        await fails(RunError(message="Sign in first.", code="sign_in")),
        await fails(RunError(message="no route to db.internal:5432")),
    )
    assert (meant.message, meant.code) == ("Sign in first.", "sign_in")
    assert (slipped.code, "db.internal" in slipped.message) == ("agent_error", False)
    assert "no route to db.internal:5432" in caplog.text


def plain(input):  # type: ignore[no-untyped-def]
    """An agent as a plain generator function, without annotations."""
    in_thread = threading.current_thread() is not threading.main_thread()
    yield from said("m1", f"thread {in_thread}, run of {current_run().thread.id}")


async def test_a_plain_generator_is_an_agent_and_is_stepped_in_a_thread_of_its_run() -> None:
    assert is_agui_agent(plain)
    assert await answer(plain) == "thread True, run of t"
    _, bridge = load_agent("mine=tests.bridges.agui.test_agents:plain")
    assert isinstance(bridge, AGUIBridge)


class Declaring:
    """An agent that declares its tools as AG-UI has it, and calls one whose result it does not send."""

    def __init__(self) -> None:
        self.offered: list[str] = []

    def get_capabilities(self) -> AgentCapabilities:
        return AgentCapabilities(tools=ToolsCapabilities(items=[Tool(name="search", description="Search the web.")]))

    async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:
        self.offered = [tool.name for tool in input.tools]
        for event in (
            ToolCallStart(tool_call_id="c1", tool_call_name="search"),
            ToolCallEnd(tool_call_id="c1"),
        ):
            yield event


async def test_a_declared_tool_of_the_agent_is_not_the_clients() -> None:
    """Its call was reported as one that waits for the client, whose result would have been taken."""
    agent = Declaring()
    tools = [e.Tool(name=name, description="the page's") for name in ("search", "paint")]
    async with serving(agent) as runner:
        events = await run_once(runner, user("u1"), tools=tools)
    assert agent.offered == ["paint"]
    assert [event.value for event in events if isinstance(event, Custom) and event.name == "ambient:dropped"] == [
        {"type": "TOOLS", "reason": "name_taken", "names": ["search"]}
    ]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == e.Success()


async def test_the_tools_that_an_agent_declares_are_listed() -> None:
    class Asynchronous(Declaring):
        async def get_capabilities(self) -> Any:
            return {"tools": {"items": [{"name": "search", "parameters": {"properties": {"q": {}}}}]}}

    class Failing(Declaring):
        def get_capabilities(self) -> Any:
            raise RuntimeError("unknown")

    agents = (Declaring(), Asynchronous(), Failing(), Counting(), Declaring)
    found = [await AGUIBridge(agent).list_tools(PlatformContext()) for agent in agents]
    assert [[tool.name for tool in tools] for tools in found] == [["search"], ["search"], [], [], []]
    assert found[1][0].parameters == {"type": "object", "properties": {"q": {}}}
