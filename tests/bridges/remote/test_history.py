"""The MESSAGES_SNAPSHOT of the other server is the truth about what it was shown and has said."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from ambient_runner.bridges.remote.history import Conversation
from ambient_runner.ledger.base import RUNTIME
from ambient_runner.projections.frames import snapshot_places
from ambient_runner.projections.private_entries import is_kept_line, restated
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    ActivityMessage,
    ActivitySnapshot,
    AssistantMessage,
    DeveloperMessage,
    Event,
    FunctionCall,
    Message,
    MessagesSnapshot,
    ReasoningEncryptedValue,
    ReasoningMessage,
    SystemMessage,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCall,
    ToolCallEnd,
    ToolCallStart,
    ToolMessage,
)
from ambient_runner.protocol.ids import fit
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import load_view
from tests.bridges.remote.world import framed, fronting
from tests.world import KEY, SETTINGS, said, user

U1, U2 = user("u1", "one"), user("u2", "two")


def says(id: str, text: str, **more: Any) -> AssistantMessage:
    return AssistantMessage(id=id, content=text, **more)


def call(name: str) -> ToolCall:
    return ToolCall(id=name, function=FunctionCall(name="look", arguments="{}"))


def settled(
    shown: list[Message], streamed: list[Event], told: list[Message], asked: tuple[str, ...] = ("u2",)
) -> list[Message] | None:
    """The messages a thread has after this snapshot; None when there was nothing to store."""
    conversation = Conversation(shown, asked)
    thread = Transcript(shown)
    for event in streamed:
        conversation.apply(event)
        thread.apply(event)
    event = conversation.told(told)
    if event is None:
        return None
    news = restated(event)
    assert news is not None
    thread.restate(news.messages, news.gone)
    assert conversation.told(told) is None
    return thread.messages()


SHOWN: list[Message] = [U1, says("m1", "first"), U2]
STREAMED = said("m2", "second")


@pytest.mark.parametrize(
    "told",
    [
        [U1, says("m1", "first"), U2, says("m2", "second")],
        [U1, says("m1", "first"), U2, says("other-id", "second")],
        [user("x1", "one"), says("x2", "first"), user("x3", "two"), says("x4", "second")],
        [U2, says("m2", "second")][:0],
    ],
    ids=["the same", "under another id than it was streamed", "under other ids than it was shown", "empty"],
)
def test_a_snapshot_that_says_what_is_known_changes_nothing(told: list[Message]) -> None:
    assert settled(SHOWN, STREAMED, told) is None


def test_its_words_replace_what_was_streamed_under_the_id_that_was_streamed() -> None:
    told: list[Message] = [U1, says("m1", "first"), U2, says("m2", "second, put right")]
    assert settled(SHOWN, STREAMED, told) == told


def test_a_conversation_it_has_compacted_is_compact_here_and_in_its_order() -> None:
    summary = SystemMessage(id="s", content="They said hello.")
    told: list[Message] = [summary, U2, says("m2", "second")]
    assert settled(SHOWN, STREAMED, told) == told


def test_messages_it_adds_are_added_where_it_says() -> None:
    told: list[Message] = [U1, says("m1", "first"), says("m1b", "between"), U2, says("m2", "second")]
    assert settled(SHOWN, STREAMED, told) == told


@pytest.mark.parametrize(
    "told",
    [[says("m2", "second")], [U1, says("m1", "first")], [says("new", "something else")]],
    ids=["only its own words", "only what was before", "something else"],
)
def test_a_snapshot_without_the_users_message_takes_nothing_away(told: list[Message]) -> None:
    ours: list[Message] = [*SHOWN, says("m2", "second")]
    now = settled(SHOWN, STREAMED, told) or ours
    assert {message.id for message in ours} <= {message.id for message in now}
    assert [message.id for message in now if message.id in {"u1", "m1", "u2", "m2"}] == ["u1", "m1", "u2", "m2"]


def test_a_snapshot_without_a_call_that_waits_takes_nothing_away() -> None:
    streamed: list[Event] = [ToolCallStart(tool_call_id="c", tool_call_name="paint"), ToolCallEnd(tool_call_id="c")]
    assert settled(SHOWN, streamed, list(SHOWN)) is None


def test_a_call_that_was_given_up_long_ago_does_not_keep_a_conversation_from_being_compacted() -> None:
    shown: list[Message] = [U1, says("m1", "", tool_calls=[call("c")]), U2]
    told: list[Message] = [U2, says("m2", "second")]
    assert settled(shown, STREAMED, told) == told


def test_what_it_leaves_out_of_a_message_stays() -> None:
    whole = says("m1", "first", tool_calls=[call("c")], metadata={"k": 1}, name="helper")
    result = ToolMessage(id="r", tool_call_id="c", content="seen")
    shown: list[Message] = [U1, whole, result, U2]
    told: list[Message] = [U1, says("m1", "first"), ToolMessage(id="r", tool_call_id="c", content="seen"), U2]
    assert settled(shown, [], told) is None
    empty: list[Message] = [U1, replace(whole, content=""), result, U2]
    assert settled(empty, [], [U1, says("m1", "", tool_calls=[call("c")]), result, U2]) is None


def test_a_result_is_known_by_its_call() -> None:
    shown: list[Message] = [
        U1,
        says("m1", "", tool_calls=[call("c")]),
        ToolMessage(id="r", tool_call_id="c", content="seen"),
        U2,
    ]
    told: list[Message] = [*shown[:2], ToolMessage(id="other", tool_call_id="c", content="seen twice"), U2]
    assert settled(shown, [], told) == [*shown[:2], ToolMessage(id="r", tool_call_id="c", content="seen twice"), U2]


def test_an_id_told_twice_is_two_messages_or_one() -> None:
    streamed = said("m1~2", "second")
    told: list[Message] = [U1, says("m1", "first"), U2, says("m1", "second")]
    assert settled(SHOWN, streamed, told) is None
    assert settled(SHOWN, streamed, [*told, says("m1", "third")]) is None


def test_equal_messages_are_told_apart_by_their_order() -> None:
    shown: list[Message] = [user("u1", "yes"), says("m1", "ok"), user("u2", "yes")]
    streamed = said("m2", "ok")
    told: list[Message] = [user("a", "yes"), says("b", "ok"), user("c", "yes"), says("d", "ok")]
    assert settled(shown, streamed, told) is None


def unnamed(*messages: Message) -> list[Message]:
    return [replace(message, id="") for message in messages]


def test_messages_without_an_id_are_known_by_their_words() -> None:
    assert settled(SHOWN, STREAMED, unnamed(*SHOWN, says("m2", "second"))) is None


def test_a_new_message_without_an_id_gets_one_and_told_again_it_changes_nothing() -> None:
    told = unnamed(*SHOWN, says("", "second!"), says("", "third"))
    assert settled(SHOWN, STREAMED, told) == [*SHOWN, says("told-4", "second!"), says("told-5", "third")]


def test_the_id_it_gets_is_nobody_elses() -> None:
    shown: list[Message] = [U1, says("told-1", "first"), U2]
    told: list[Message] = [*unnamed(says("", "zero")), *shown, says("told-2", "second")]
    assert settled(shown, [], told) == [says("told-3", "zero"), *shown, says("told-2", "second")]


def test_snapshots_without_ids_add_what_they_say_and_multiply_nothing() -> None:
    thread, conversation = Transcript(SHOWN), Conversation(SHOWN, ["u2"])
    for word in ("a", "b", "c", "c"):
        event = conversation.told(unnamed(user("", word)))
        news = restated(event) if event else None
        if news is not None:
            thread.restate(news.messages, news.gone)
    added: list[Message] = [user("told-1", "a"), user("told-2", "b"), user("told-3", "c")]
    assert sorted(thread.messages(), key=lambda message: message.id) == sorted(
        [*SHOWN, *added], key=lambda message: message.id
    )


def test_a_thread_that_holds_messages_without_ids_already_does_not_grow_by_them() -> None:
    thread = Transcript([*unnamed(user("", "e"), user("", "e")), *SHOWN])
    for _ in range(3):
        thread.restate(unnamed(user("", "e"), user("", "f")))
    assert thread.messages() == [*unnamed(user("", "e")), *SHOWN, *unnamed(user("", "f"))]


async def test_ids_in_a_snapshot_are_such_as_a_client_can_send_back() -> None:
    carrier = says("m" * 300, "", tool_calls=[call("c" * 300)])
    result = ToolMessage(id="r\n", tool_call_id="c" * 300, content="seen")
    async with fronting(framed(MessagesSnapshot(messages=[U2, carrier, result]))) as thread:
        for _ in range(2):
            await thread.run(U2)
            assert await thread.messages() == [
                U2,
                says(fit("m" * 300), "", tool_calls=[call(fit("c" * 300))]),
                ToolMessage(id=fit("r\n"), tool_call_id=fit("c" * 300), content="seen"),
            ]


def test_reasoning_stays_unless_it_tells_any() -> None:
    thought = ReasoningMessage(id="r1", content="hm")
    shown: list[Message] = [U1, thought, says("m1", "first"), U2]
    without: list[Message] = [U1, says("m1", "first!"), U2]
    other = ReasoningMessage(id="r2", content="aha")
    assert settled(shown, [], without) == [U1, thought, says("m1", "first!"), U2]
    assert settled(shown, [], [*without, other]) == [U1, says("m1", "first!"), U2, other]


def test_messages_it_was_never_shown_stay_where_they_were() -> None:
    setup = DeveloperMessage(id="d", content="Workspace ready")
    thread = Transcript([U1, setup, says("m1", "first"), U2])
    conversation = Conversation([U1, says("m1", "first"), U2], ["u2"])
    event = conversation.told([says("m1", "FIRST"), U2, says("m2", "second")])
    assert event is not None
    news = restated(event)
    assert news is not None
    thread.restate(news.messages, news.gone)
    assert thread.messages() == [setup, says("m1", "FIRST"), U2, says("m2", "second")]


async def snapshots(runner: Runner) -> list[list[str | None]]:
    """The contents of every MESSAGES_SNAPSHOT a reader of the thread gets."""
    batches = await runner.ledger.read(KEY, 0)
    views: list[ThreadView] = [
        await load_view(runner.ledger, KEY, until=seq) for batch in batches for seq in snapshot_places(batch)
    ]
    return [[str(message.content) for message in view.transcript.messages()] for view in views]


async def restatements(runner: Runner) -> int:
    batches = await runner.ledger.read(KEY, 0)
    return sum(is_kept_line(line) for batch in batches if batch.owner == RUNTIME for line in batch.lines)


async def test_the_snapshot_is_stored_and_fed_back() -> None:
    told = MessagesSnapshot(
        messages=[SystemMessage(id="s", content="summary"), user("u2", "two"), says("m2", "put right")]
    )
    async with fronting(framed(*said("m1", "one")), framed(*said("m2", "wrong"), told), framed()) as thread:
        await thread.run(user("u1", "one"))
        await thread.run(user("u2", "two"))
        assert await thread.messages() == told.messages
        await thread.run(user("u3", "three"))
        assert [message["content"] for message in thread.shown()] == ["summary", "two", "put right", "three"]
        assert (await snapshots(thread.runner))[1] == ["summary", "two", "put right"]
        assert await restatements(thread.runner) == 1


async def test_a_snapshot_that_says_nothing_new_costs_nothing_and_is_sent_once() -> None:
    told = MessagesSnapshot(messages=[user("u1"), says("m1", "one")])
    async with fronting(framed(*said("m1", "one"), told)) as thread:
        events = await thread.run(user("u1"))
        assert await restatements(thread.runner) == 0
    assert sum(isinstance(event, MessagesSnapshot) for event in events) == 1


async def test_a_snapshot_in_the_middle_has_its_place_and_the_message_goes_on() -> None:
    start, first, second = (
        TextMessageStart(message_id="m1", role="assistant"),
        TextMessageContent(message_id="m1", delta="a"),
        TextMessageContent(message_id="m1", delta="b"),
    )
    told = MessagesSnapshot(messages=[user("u1"), says("m0", "before"), says("m1", "A")])
    async with fronting(framed(start, first, told, second, TextMessageEnd(message_id="m1"))) as thread:
        await thread.run(user("u1"))
        assert await snapshots(thread.runner) == [["hi", "before", "A"], ["hi", "before", "Ab"]]


async def test_what_clients_alone_see_survives_the_snapshots_of_later_runs() -> None:
    activity = ActivitySnapshot(message_id="a1", activity_type="plan", content={"step": 1})
    setup = [
        TextMessageStart(message_id="d1", role="developer"),
        TextMessageContent(message_id="d1", delta="Workspace ready"),
        TextMessageEnd(message_id="d1"),
    ]
    later = MessagesSnapshot(messages=[user("u1"), says("m1", "one"), user("u2"), says("m2", "TWO")])
    async with fronting(framed(*setup, *said("m1", "one"), activity), framed(*said("m2", "two"), later)) as thread:
        await thread.run(user("u1"))
        await thread.run(user("u2"))
        assert [message["role"] for message in thread.shown()] == ["user", "assistant", "user"]
        assert [message.id for message in await thread.messages()] == ["u1", "d1", "m1", "a1", "u2", "m2"]


async def test_a_secret_in_a_snapshot_is_not_stored() -> None:
    secret = "sk-abcdef-123456"
    told = MessagesSnapshot(messages=[user("u1"), says("m1", f"it is {secret}")])
    settings = dataclasses.replace(SETTINGS, secrets=(secret,))
    async with fronting(framed(*said("m1", "it is"), told), settings=settings) as thread:
        await thread.run(user("u1"))
        assert [message.content for message in await thread.messages()] == ["hi", f"it is {REDACTED}"]
        batches = await thread.runner.ledger.read(KEY, 0)
    assert secret.encode() not in b"".join(line for batch in batches for line in batch.lines)


async def test_a_huge_snapshot_is_passed_over_and_what_was_streamed_stands() -> None:
    told = MessagesSnapshot(messages=[user("u1"), says("m1", "x" * (9 << 20))])
    async with fronting(framed(*said("m1", "one"), told)) as thread:
        await thread.run(user("u1"))
        assert [message.content for message in await thread.messages()] == ["hi", "one"]


async def test_a_restated_thread_survives_a_checkpoint() -> None:
    told = MessagesSnapshot(messages=[user("u1"), says("m1", "put right")])
    async with fronting(framed(*said("m1", "wrong"), told)) as thread:
        await thread.run(user("u1"))
        view = await thread.runner.view(KEY)
        assert ThreadView.from_checkpoint(view.seq, view.to_checkpoint()).transcript.messages() == told.messages


async def test_an_event_about_what_a_user_said_leaves_it_as_it_was() -> None:
    activity = ActivitySnapshot(message_id="u1", activity_type="plan", content={"step": 1})
    sealed = ReasoningEncryptedValue(subtype="message", entity_id="u1", encrypted_value="x")
    plan = ActivityMessage(id="u1~2", activity_type="plan", content={"step": 1})
    async with fronting(framed(), framed(activity, sealed)) as thread:
        await thread.run(U1)
        await thread.run(U2)
        assert await thread.messages() == [U1, U2, plan]
