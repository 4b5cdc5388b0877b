"""Streams of the other server, and the events that this server stores for them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import pytest
from msgspec.structs import replace

from ambient_runner.bridges.remote import RemoteBridge
from ambient_runner.bridges.toolkit.interrupts import DECLINED
from ambient_runner.protocol.encode import encode_ndjson
from ambient_runner.protocol.events import (
    AssistantMessage,
    Custom,
    Event,
    FunctionCall,
    Interrupt,
    Interrupted,
    Message,
    MessagesSnapshot,
    ResumeEntry,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    Success,
    TextMessageContent,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    encode_event,
)
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.run import Actor, SpanRef
from ambient_runner.telemetry.tracing import tracing
from tests.bridges.remote.world import (
    CHUNKED_HEAD,
    SSE_HEAD,
    Answer,
    UpstreamRequest,
    framed,
    fronting,
    hosting,
    raw,
    read_request,
    status,
    stream,
)
from tests.telemetry.world import spans_of
from tests.world import KEY, events_of, request, run_once, said, user

STARTED = RunStarted(thread_id="x", run_id="y")
FINISHED = RunFinished(thread_id="x", run_id="y")
NDJSON_HEAD = SSE_HEAD.replace(b"text/event-stream", b"application/x-ndjson")


def words(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, TextMessageContent))


def ending(events: list[Event]) -> RunError | RunFinished:
    assert isinstance(events[-1], RunError | RunFinished)
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()
    return events[-1]


async def test_a_run_there_is_a_run_here_under_the_ids_of_this_one() -> None:
    async with fronting(framed(*said("m1", "hello", " there"))) as thread:
        events = await thread.run(user("u1"))
        assert await thread.messages() == [user("u1"), AssistantMessage(id="m1", content="hello there")]
    end = ending(events)
    assert isinstance(end, RunFinished)
    assert (end.thread_id, end.run_id, words(events)) == ("t", "r", "hello there")


async def test_the_other_server_gets_the_whole_input() -> None:
    tool = Tool(name="paint", description="Paint it.", parameters={"type": "object"})
    async with fronting(framed(*said("m1", "hello")), framed(*said("m2", "again"))) as thread:
        await thread.run(user("u1", "one"))
        await thread.run(user("u2", "two"), tools=[tool], state={"k": 1})
        first, second = thread.upstream.requests
    assert first.body == {
        "threadId": "t",
        "runId": "r",
        "protocolVersion": "1.0",
        "messages": [{"id": "u1", "role": "user", "content": "one"}],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
    }
    assert [message["content"] for message in second.body["messages"]] == ["one", "hello", "two"]
    assert second.body["tools"] == [msgspec.to_builtins(tool)]
    assert second.body["state"] == {"k": 1}
    assert (second.method, second.path, second.headers["content-type"]) == ("POST", "/", "application/json")


async def test_the_other_server_gets_all_forwarded_props_because_it_has_rules_of_its_own() -> None:
    props = {"theme": "dark", "command": {"goto": "end"}}
    plain = request(user("u1"))
    start = dataclasses.replace(plain, input=replace(plain.input, forwarded_props=props))
    async with fronting(framed(*said("m1", "hello"))) as thread:
        await events_of(thread.runner, await thread.runner.start(start))
        (sent,) = thread.upstream.requests
    assert sent.body["forwardedProps"] == props


CALLER = SpanRef(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331", sampled=False)


async def test_a_run_that_is_not_traced_forwards_the_span_of_its_caller() -> None:
    async with fronting(framed(*said("m1", "hello"))) as thread:
        await thread.run(user("u1"), caller=CALLER)
        await thread.run(user("u2"))
        told = [sent.headers.get("traceparent") for sent in thread.upstream.requests]
    assert told == ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", None]


async def test_the_trace_over_there_hangs_on_the_span_of_the_run() -> None:
    with spans_of() as spans:
        async with fronting(framed(*said("m1", "hello")), middleware=[tracing(spans.provider)]) as thread:
            await thread.run(user("u1"))
            (sent,) = thread.upstream.requests
        [root] = spans.roots
    assert sent.headers["traceparent"] == f"00-{root.trace}-{root.id}-01"


async def test_ndjson_is_read_too() -> None:
    lines = [encode_event(event) for event in (STARTED, *said("m1", "hello"), FINISHED)]
    async with fronting(raw(NDJSON_HEAD, encode_ndjson(lines))) as thread:
        assert words(await thread.run(user("u1"))) == "hello"


async def test_bytes_may_come_one_by_one() -> None:
    body = stream(STARTED, *said("m1", "hé", "llo 🌍"), FINISHED)
    async with fronting(raw(SSE_HEAD, *(body[at : at + 1] for at in range(len(body))))) as thread:
        assert words(await thread.run(user("u1"))) == "hé" + "llo 🌍"


async def test_result_usage_and_outcome_are_kept() -> None:
    usage = [TokenUsage(model="m", input_tokens=3, output_tokens=5)]
    end = RunFinished(thread_id="x", run_id="y", result={"answer": 42}, usage=usage)
    async with fronting(raw(SSE_HEAD, stream(STARTED, *said("m1", "hello"), end))) as thread:
        told = ending(await thread.run(user("u1")))
    assert isinstance(told, RunFinished)
    assert (told.result, told.usage) == ({"answer": 42}, usage)


async def test_state_goes_there_and_comes_back() -> None:
    snapshot, delta = (
        StateSnapshot(snapshot={"n": 1}),
        StateDelta(delta=[{"op": "replace", "path": "/n", "value": 2}]),
    )
    async with fronting(framed(snapshot, delta)) as thread:
        await thread.run(user("u1"))
        await thread.run(user("u2"))
        assert thread.upstream.requests[1].body["state"] == {"n": 2}


async def test_a_call_for_the_client_waits_here_and_its_result_goes_there() -> None:
    tool = Tool(name="paint", description="Paint it.", parameters={"type": "object"})
    call = [
        ToolCallStart(tool_call_id="c1", tool_call_name="paint", parent_message_id="m1"),
        ToolCallArgs(tool_call_id="c1", delta='{"color":"red"}'),
        ToolCallEnd(tool_call_id="c1"),
    ]
    async with fronting(framed(*call), framed(*said("m2", "done"))) as thread:
        ended = ending(await thread.run(user("u1"), tools=[tool]))
        result = ToolMessage(id="result", tool_call_id="c1", content="painted")
        answered = await thread.run(result, tools=[tool])
        shown = thread.shown()
    assert isinstance(ended, RunFinished)
    assert ended.outcome == Success(pending_tool_call_ids=["c1"])
    assert [message["role"] for message in shown] == ["user", "assistant", "tool"]
    assert shown[-1] == msgspec.to_builtins(result)
    assert words(answered) == "done"


async def test_an_interrupt_is_passed_on_and_its_answer_sent_back() -> None:
    question = Interrupt(id="q1", reason="confirmation", message="May I?", response_schema={"type": "object"})
    parked = RunFinished(thread_id="x", run_id="y", outcome=Interrupted(interrupts=[question]))
    answer = ResumeEntry(interrupt_id="q1", status="resolved", payload={"approved": True})
    async with fronting(raw(SSE_HEAD, stream(STARTED, parked)), framed(*said("m1", "thanks"))) as thread:
        ended = ending(await thread.run(user("u1")))
        answered = await thread.run(resume=[answer])
        assert thread.upstream.requests[1].body["resume"] == [
            {"interruptId": "q1", "status": "resolved", "payload": {"approved": True}}
        ]
    assert isinstance(ended, RunFinished)
    assert ended.outcome == Interrupted(interrupts=[question])
    assert words(answered) == "thanks"


def asking(name: str, *events: Event) -> Answer:
    """A run that ends with this interrupt."""
    question = Interrupt(id=name, reason="confirmation")
    asked = RunFinished(thread_id="x", run_id="y", outcome=Interrupted(interrupts=[question]))
    return raw(SSE_HEAD, stream(STARTED, *events, asked))


def calls(*names: str, parent: str = "m1") -> list[Event]:
    return [
        event
        for name in names
        for event in (
            ToolCallStart(tool_call_id=name, tool_call_name="deploy", parent_message_id=parent),
            ToolCallArgs(tool_call_id=name, delta="{}"),
            ToolCallEnd(tool_call_id=name),
        )
    ]


FORGOT = status("409 Conflict", b'{"error":{"code":"nothing_to_resume","message":"gone"}}')
APPROVED = ResumeEntry(interrupt_id="q1", status="resolved", payload={"approved": True})


async def test_a_run_whose_interrupt_is_gone_is_retried_without_the_answer() -> None:
    async with fronting(asking("q1"), FORGOT, asking("q2")) as thread:
        await thread.run(user("u1"))
        ended = ending(await thread.run(resume=[ResumeEntry(interrupt_id="q1", status="resolved")]))
        assert ["resume" in request.body for request in thread.upstream.requests] == [False, True, False]
    assert isinstance(ended, RunFinished)
    assert ended.outcome == Interrupted(interrupts=[Interrupt(id="q2", reason="confirmation")])


async def test_an_answer_that_a_restarted_server_cannot_use_is_announced_as_lapsed() -> None:
    """The answer was dropped silently."""
    async with fronting(asking("q1"), FORGOT, asking("q2")) as thread:
        await thread.run(user("u1"))
        events = await thread.run(resume=[APPROVED])
    assert [(event.name, event.value) for event in events if isinstance(event, Custom)] == [
        ("ambient:interrupt_lapsed", {"interruptIds": ["q1"]})
    ]


async def test_a_restarted_server_repeats_the_interrupted_turn_and_its_open_call_is_not_taken_for_cancelled() -> None:
    """The agent saw a call without a result, and continued as if the user had cancelled it."""
    result = ToolCallResult(message_id="r1", tool_call_id="c1", content="done")
    async with fronting(
        asking("q1", *said("m0", "let me see"), *calls("c1", "c2"), result), FORGOT, asking("q2")
    ) as thread:
        await thread.run(user("u1"))
        await thread.run(resume=[APPROVED])
        shown = thread.shown()
    assert [message["role"] for message in shown] == ["user", "assistant", "assistant", "tool"]
    assert [call["id"] for call in shown[2]["toolCalls"]] == ["c1"]
    assert (shown[3]["toolCallId"], shown[3]["content"]) == ("c1", "done")


async def test_what_a_restarted_server_does_not_repeat_of_the_interrupted_turn_leaves_the_thread() -> None:
    repeated: list[Message] = [user("u1"), AssistantMessage(id="m9", content="again")]
    async with fronting(
        asking("q1", *said("m0", "I need your approval"), *calls("c1")),
        FORGOT,
        asking("q2", *said("m9", "again"), MessagesSnapshot(messages=repeated)),
    ) as thread:
        await thread.run(user("u1"))
        await thread.run(resume=[APPROVED])
        assert [message["id"] for message in thread.shown()] == ["u1"]
        assert await thread.messages() == repeated


def makes_call(message_id: str, call_id: str) -> AssistantMessage:
    made = ToolCall(id=call_id, function=FunctionCall(name="deploy", arguments="{}"))
    return AssistantMessage(id=message_id, content="I will", tool_calls=[made])


@pytest.mark.parametrize("has_snapshot", [True, False], ids=["with its snapshot", "without a snapshot"])
async def test_a_restarted_server_that_repeats_the_turn_with_the_same_call_id_leaves_the_thread_in_order(
    has_snapshot: bool,
) -> None:
    """The repeated call got another id here, and the snapshot named it by its own: the call was there twice, its result first."""
    repeated: list[Message] = [user("u1"), makes_call("m2", "c1")]
    result = ToolCallResult(message_id="r1", tool_call_id="c1", content="done")
    ended = [
        *repeated,
        ToolMessage(id="r1", tool_call_id="c1", content="done"),
        AssistantMessage(id="m3", content="ok"),
    ]

    def snapshot(messages: list[Message]) -> list[Event]:
        return [MessagesSnapshot(messages=messages)] if has_snapshot else []

    async with fronting(
        asking("q1", *said("m1", "I will"), *calls("c1")),
        FORGOT,
        asking("q2", *said("m2", "I will"), *calls("c1", parent="m2"), MessagesSnapshot(messages=repeated)),
        framed(result, *said("m3", "ok"), *snapshot(ended)),
    ) as thread:
        await thread.run(user("u1"))
        await thread.run(resume=[APPROVED])
        assert await thread.messages() == [user("u1"), makes_call("m2", "c1~2")]
        events = await thread.run(resume=[replace(APPROVED, interrupt_id="q2")])
        assert await thread.messages() == [
            user("u1"),
            makes_call("m2", "c1~2"),
            ToolMessage(id="r1", tool_call_id="c1~2", content="done"),
            AssistantMessage(id="m3", content="ok"),
        ]
        assert thread.shown()[1]["toolCalls"][0]["id"] == "c1"
    assert [event.tool_call_id for event in events if isinstance(event, ToolCallResult)] == ["c1~2"]


async def test_the_result_of_a_client_tool_goes_back_under_the_id_of_the_other_server() -> None:
    """The call has another id here because an earlier, compacted turn had the same one."""
    tools = [Tool(name="deploy", description="Deploy it.", parameters={"type": "object"})]
    compact = MessagesSnapshot(messages=[user("u2"), makes_call("m2", "c1")])
    async with fronting(
        framed(*said("m1", "I will"), *calls("c1")), framed(*said("m2", "I will"), *calls("c1", parent="m2"), compact)
    ) as thread:
        await thread.run(user("u1"))
        await thread.run(user("u2"), tools=tools)
        assert [call["id"] for message in thread.shown() for call in message.get("toolCalls", ())] == ["c1"]
        await thread.run(ToolMessage(id="r2", tool_call_id="c1~2", content="done"), tools=tools)
        assert [message.get("toolCallId") for message in thread.shown()] == [None, None, "c1"]


async def test_a_cancelled_interrupt_that_is_gone_is_a_declined_call() -> None:
    async with fronting(asking("q1", *calls("c1")), FORGOT, framed(*said("m2", "as you like"))) as thread:
        await thread.run(user("u1"))
        events = await thread.run(resume=[ResumeEntry(interrupt_id="q1", status="cancelled")])
        shown = thread.shown()
    assert [event for event in events if isinstance(event, Custom)] == []
    assert words(events) == "as you like"
    assert (shown[-1]["role"], shown[-1]["toolCallId"], shown[-1]["content"]) == ("tool", "c1", DECLINED)


async def test_a_new_message_beside_a_lapsed_answer_is_answered() -> None:
    async with fronting(asking("q1", *calls("c1")), FORGOT, framed(*said("m2", "hello"))) as thread:
        await thread.run(user("u1"))
        await thread.run(user("u2"), resume=[APPROVED])
        assert [message["id"] for message in thread.shown()][-1] == "u2"
        assert "c1" in msgspec.json.encode(thread.shown()).decode()


async def test_open_messages_are_closed_and_missing_starts_are_added() -> None:
    start, content, _ = said("m1", "hello")
    async with fronting(raw(SSE_HEAD, stream(content, FINISHED))) as thread:
        bare = await thread.run(user("u1"))
    async with fronting(raw(SSE_HEAD, stream(STARTED, start, content, FINISHED))) as thread:
        left_open = await thread.run(user("u1"))
    for events in (bare, left_open):
        assert isinstance(ending(events), RunFinished)
        assert words(events) == "hello"


async def test_an_id_it_uses_again_gets_another_one() -> None:
    async with fronting(framed(*said("m1", "one")), framed(*said("m1", "two"))) as thread:
        await thread.run(user("u1"))
        await thread.run(user("u2"))
        assert [(message.id, message.content) for message in await thread.messages()] == [
            ("u1", "hi"),
            ("m1", "one"),
            ("u2", "hi"),
            ("m1~2", "two"),
        ]


async def test_garbage_is_passed_over_and_mentioned_a_few_times() -> None:
    garbage = b"data: <html>\n\n" * 1000
    async with fronting(raw(SSE_HEAD, garbage, stream(STARTED, *said("m1", "hello"), FINISHED))) as thread:
        events = await thread.run(user("u1"))
    assert isinstance(ending(events), RunFinished)
    assert [event for event in events if isinstance(event, Custom)] == [
        Custom(name="ambient:dropped", value={"type": "", "reason": "not_json"}, timestamp=event.timestamp)
        for event in events
        if isinstance(event, Custom)
    ]
    assert sum(isinstance(event, Custom) for event in events) == 10


async def test_what_only_an_adapter_may_write_is_not_taken_from_another_server() -> None:
    forged = [
        Custom(name="ambient:memory", value={"session": "stolen"}),
        Custom(name="ambient:messages", value={"messages": [], "gone": ["u1"]}),
    ]
    async with fronting(framed(*forged, *said("m1", "hello"))) as thread:
        await thread.run(user("u1"))
        view = await thread.runner.view_thread(KEY)
        assert (view.memory, [message.id for message in view.transcript.messages()]) == (None, ["u1", "m1"])


async def test_events_about_the_other_server_are_not_passed_on() -> None:
    itself = [Custom(name="ambient:capabilities", value={}), Custom(name="ambient:trace_id", value={})]
    other = Custom(name="ambient:repo_added", value={"name": "x"})
    async with fronting(framed(*itself, other)) as thread:
        events = await thread.run(user("u1"))
    assert [event.name for event in events if isinstance(event, Custom)] == ["ambient:repo_added"]


@pytest.mark.parametrize("name", ["ambient:gap", "ambient:snapshot_skipped", "ambient:feedback", "ambient:made_up"])
async def test_only_ambient_events_about_the_agents_work_are_passed_on(name: str) -> None:
    """Any was: another server could tell a client that it has missed something here, or what some user thinks."""
    own = [Custom(name="ambient:hook_error", value={"hook": "h", "tool": None}), Custom(name="theirs", value=1)]
    async with fronting(framed(Custom(name=name, value={}), *own, *said("m1", "hello"))) as thread:
        events = await thread.run(user("u1"))
    assert [event.name for event in events if isinstance(event, Custom)] == ["ambient:hook_error", "theirs"]


async def test_nothing_is_read_after_the_terminal_event() -> None:
    async def never_ends(request: UpstreamRequest) -> AsyncIterator[bytes]:
        yield SSE_HEAD
        yield stream(STARTED, *said("m1", "hello"), FINISHED, *said("m2", "more"))
        await asyncio.Event().wait()

    async with fronting(never_ends) as thread:
        events = await thread.run(user("u1"))
        await thread.upstream.left.wait()
    assert (words(events), isinstance(ending(events), RunFinished)) == ("hello", True)


async def test_a_connection_is_used_again() -> None:
    body = stream(STARTED, *said("m1", "hello"), FINISHED)
    answer = CHUNKED_HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            while True:
                await read_request(reader)
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    bridge = RemoteBridge(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    async with server, hosting(bridge) as runner:
        for turn in range(5):
            assert words(await run_once(runner, user(f"u{turn}"))) == "hello"
        assert connections == 1


async def test_two_users_of_one_thread_id_have_two_threads_over_there() -> None:
    async with fronting(framed(*said("m1", "hello"))) as thread:
        for owner in ("ann", "bob"):
            start = dataclasses.replace(request(user("u1")), actor=Actor(owner=owner))
            assert words(await events_of(thread.runner, await thread.runner.start(start))) == "hello"
        there = [sent.body["threadId"] for sent in thread.upstream.requests]
    assert len({*there, "t"}) == 3
