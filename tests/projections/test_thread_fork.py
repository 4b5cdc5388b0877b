"""The copy of a fork: which messages it has, and how a view begins with it."""

from __future__ import annotations

import msgspec
import pytest

from ambient_runner.errors import InvalidInput, UnknownMessage
from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.thread_event import ThreadIdentity, thread_event
from ambient_runner.projections.thread_fork import (
    FORK_MARKER,
    ForkedFact,
    ForkOrigin,
    ThreadFork,
    messages_before,
    texts_only,
)
from ambient_runner.projections.thread_view import FORKED, INPUT, RUN_OWNER, THREAD_OWNER, ThreadView
from ambient_runner.protocol import events as e

CALL = e.ToolCall(id="c1", function=e.FunctionCall(name="look", arguments="{}"))
TOLD: list[e.Message] = [
    e.DeveloperMessage(id="d1", content="A repository was added."),
    e.UserMessage(id="u1", content="Look", metadata={"hidden": True}),
    e.ReasoningMessage(id="r1", content="Hm."),
    e.AssistantMessage(id="a1", content="I look.", tool_calls=[CALL], encrypted_value="x"),
    e.ToolMessage(id="t1", tool_call_id="c1", content="seen"),
    e.AssistantMessage(id="s1", content="Inside.", subagent_run_id="sub"),
    e.ActivityMessage(id="p1", activity_type="PLAN", content={}),
    e.AssistantMessage(id="a2"),
    e.UserMessage(
        id="u2", content=[e.TextPart(text="And this?"), e.ImagePart(source=e.UrlSource(value="https://a/b"))]
    ),
    e.UserMessage(id="u3", content=[e.ImagePart(source=e.UrlSource(value="https://a/b"))]),
    e.UserMessage(id="u4", content="Now"),
]
FACT = ForkedFact(
    origin=ForkOrigin(thread_id="t", message_id="u4"),
    epoch="epoch",
    messages=TOLD[1:5],
    state={"a": 1},
    client_call_ids=["c1"],
)


def batch(first: int, owner: str, kind: str, *lines: bytes, run: str = "run") -> Batch:
    return Batch(first=first, owner=owner, kind=kind, run=run, ts=1000 + first, lines=list(lines))


def forked() -> list[Batch]:
    """The first entries of a fork."""
    accepted = e.RunAgentInput(thread_id="f", run_id="r", messages=[e.UserMessage(id="n", content="New")])
    started = e.RunStarted(thread_id="f", run_id="r", input=accepted)
    return [
        batch(1, THREAD_OWNER, FORKED, msgspec.json.encode(FACT)),
        batch(2, RUN_OWNER, INPUT, b"{}"),
        batch(3, RUNTIME, "", e.encode_event(started), e.encode_event(FORK_MARKER)),
    ]


def viewed(*batches: Batch) -> ThreadView:
    view = ThreadView()
    for each in batches:
        view.apply(each)
    return view


def test_everything_before_the_message_is_copied_but_what_the_set_up_said() -> None:
    assert messages_before(TOLD, "u2") == TOLD[1:8]
    assert messages_before(TOLD, "u1") == []


@pytest.mark.parametrize(("name", "error"), [("a1", InvalidInput), ("d1", InvalidInput), ("x", UnknownMessage)])
def test_only_a_user_message_can_be_replaced(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        messages_before(TOLD, name)


def test_another_agent_gets_texts_of_the_user_and_the_assistant() -> None:
    assert texts_only(TOLD) == [
        e.UserMessage(id="u1", content="Look", metadata={"hidden": True}),
        e.AssistantMessage(id="a1", content="I look."),
        e.UserMessage(id="u2", content=[e.TextPart(text="And this?")]),
        e.UserMessage(id="u4", content="Now"),
    ]


def test_a_view_begins_with_the_copy() -> None:
    view = viewed(*forked())
    assert view.transcript.messages() == [*FACT.messages, e.UserMessage(id="n", content="New")]
    assert (view.state.value, view.client_state) == ({"a": 1}, {})
    assert view.client_call_ids == {"c1"}
    assert view.fork == ThreadFork(origin=FACT.origin, epoch="epoch", copied_count=4)
    assert view.accepted_after == {"n": 1}
    assert view.annotations.title == "New", "no person wrote the hidden message"


def test_a_copy_of_a_view_is_as_it_was() -> None:
    view = viewed(*forked())
    copied = view.copy()
    view.accepted_after["later"] = 9
    assert (copied.fork, copied.accepted_after) == (view.fork, {"n": 1})


def test_the_checkpoint_has_the_origin_and_older_ones_none() -> None:
    view = viewed(*forked())
    saved = view.to_checkpoint()
    read = ThreadView.from_checkpoint(view.seq, saved)
    assert (read.fork, read.to_checkpoint()) == (view.fork, saved)
    older = msgspec.json.encode({k: v for k, v in msgspec.json.decode(saved).items() if k != "fork"})
    assert ThreadView.from_checkpoint(view.seq, older).fork is None


def test_a_rewind_forgets_where_removed_messages_were_accepted() -> None:
    view = viewed(*forked(), batch(5, THREAD_OWNER, "rewound", b'{"to": "u1"}'))
    assert view.accepted_after == {}


def test_the_event_of_the_thread_says_where_it_is_from() -> None:
    identity = ThreadIdentity(id="f", agent="demo")
    assert thread_event(identity, viewed(*forked())).value["forkedFrom"] == {"threadId": "t", "messageId": "u4"}
    assert "forkedFrom" not in thread_event(identity, ThreadView()).value


@pytest.mark.parametrize("snapshots", [True, False])
def test_the_marker_becomes_the_copy_the_whole_and_the_thread(snapshots: bool) -> None:
    batches = forked()
    view = viewed(*batches)
    framer = Framer("epoch", wire_format="ndjson", thread=ThreadIdentity(id="f", agent="demo"), snapshots=snapshots)
    assert [framer.view_seqs(each) for each in batches] == [[], [], [4]]
    frames = framer.render(batches[2], {4: framer.read_view(batches[2], 4, view)})
    _, copied, whole, thread = [msgspec.json.decode(line) for line in frames.splitlines()]
    assert [message["id"] for message in copied["messages"]] == ["u1", "r1", "a1", "t1"]
    assert [message["id"] for message in whole["messages"]] == ["u1", "r1", "a1", "t1", "n"]
    assert (copied["timestamp"], "metadata" in copied, thread["name"]) == (1003, False, "ambient:thread")
    assert [framer.render(each, {}) for each in batches[:2]] == [b"", b""]
