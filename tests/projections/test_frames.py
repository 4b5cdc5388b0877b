from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.ledger.records import RUNTIME, Batch, JoinedText
from ambient_runner.projections.exposure import ExposureRules
from ambient_runner.projections.frames import Framer, WireFormat
from ambient_runner.projections.known_calls import FrameContext
from ambient_runner.projections.private_entries import HISTORY_EVENT, MEMORY_EVENT
from ambient_runner.projections.projectors import FEEDBACK_OWNER, REPOS_OWNER, WORKFLOW_OWNER
from ambient_runner.projections.thread_event import ThreadIdentity, thread_event
from ambient_runner.projections.thread_view import LABELLED, THREAD_OWNER, ThreadView
from ambient_runner.projections.withdrawn import WithdrawnContent
from ambient_runner.protocol.events import (
    AssistantMessage,
    Custom,
    Event,
    MessagesSnapshot,
    StepStarted,
    TextMessageContent,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    encode_event,
)
from ambient_runner.protocol.profiles import Profile


def frames(owner: str, kind: str, body: object) -> bytes:
    fact = Batch(first=7, owner=owner, kind=kind, run="", ts=0, lines=[msgspec.json.encode(body)])
    return Framer("e", wire_format="ndjson").render(fact, {})


@pytest.mark.parametrize(
    ("owner", "kind"),
    [(REPOS_OWNER, "repo_added"), (WORKFLOW_OWNER, "workflow_changed"), (FEEDBACK_OWNER, "feedback")],
)
def test_facts_of_the_platform_are_custom_events_of_their_kind(owner: str, kind: str) -> None:
    expected = encode_event(Custom(name=f"ambient:{kind}", value={"name": "docs"})) + b"\n"
    assert frames(owner, kind, {"name": "docs"}) == expected


def test_facts_of_an_owner_without_a_projector_are_not_sent() -> None:
    assert frames("someone.else", "secret", {"a": 1}) == b""


@pytest.mark.parametrize("profile", Profile)
def test_a_batch_that_was_prepared_has_the_same_frames(profile: Profile) -> None:
    events = [
        StepStarted(step_name="a"),
        TextMessageStart(message_id="m"),
        TextMessageContent(message_id="m", delta="x"),
    ]

    def batch() -> Batch:
        return Batch(first=7, owner=RUNTIME, kind="", run="r", ts=0, lines=[encode_event(event) for event in events])

    prepared, framer = batch(), Framer("e", profile)
    framer.prepare(prepared)
    assert framer.render(prepared, {}) == Framer("e", profile).render(batch(), {})


SAFE = ExposureRules()
CALL = [
    ToolCallStart(tool_call_id="c", tool_call_name="search"),
    ToolCallArgs(tool_call_id="c", delta='{"query":'),
    ToolCallArgs(tool_call_id="c", delta='"hush"}'),
    ToolCallEnd(tool_call_id="c"),
    ToolCallResult(tool_call_id="c", message_id="t", content="hush"),
]
"""A tool call of the agent's own."""


def batches_of(events: Sequence[Event], *, sizes: Sequence[int]) -> list[Batch]:
    """The events in batches of these sizes."""
    lines = [encode_event(event) for event in events]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    return [
        Batch(first=at + 1, owner=RUNTIME, kind="", run="r", ts=0, lines=lines[at : at + size])
        for at, size in zip(starts, sizes, strict=True)
    ]


def read_all(framer: Framer, batches: Sequence[Batch], skipped: int = 0) -> bytes:
    """Return the frames of a reader that joins after `skipped` batches."""
    view, sent = ThreadView(), b""
    for batch in batches:
        view.apply(batch)
        if batch in batches[skipped:]:
            sent += framer.render(batch, {seq: framer.read_view(batch, seq, view) for seq in framer.view_seqs(batch)})
    return sent


@pytest.mark.parametrize("sizes", [[5], [1, 1, 1, 1, 1], [2, 3], [3, 2], [1, 3, 1]])
def test_a_summary_does_not_depend_on_how_a_call_was_committed(sizes: list[int]) -> None:
    whole = read_all(Framer("e", exposure=SAFE), batches_of(CALL, sizes=[5]))
    assert read_all(Framer("e", exposure=SAFE), batches_of(CALL, sizes=sizes)) == whole
    assert b"hush" not in whole
    assert whole.count(b'"TOOL_CALL_ARGS"') == 1


@pytest.mark.parametrize("skipped", range(5))
def test_a_reader_that_joins_in_the_middle_of_a_call_gets_the_same_rest(skipped: int) -> None:
    from_start = [read_all(Framer("e", exposure=SAFE), batches_of(CALL, sizes=[1] * 5)[:count]) for count in range(6)]
    batches = batches_of(CALL, sizes=[1] * 5)
    assert from_start[skipped] + read_all(Framer("e", exposure=SAFE), batches, skipped) == from_start[5]


def test_audiences_do_not_share_frames_and_readers_of_one_do() -> None:
    batches = batches_of(CALL, sizes=[2, 3])
    frames = {name: read_all(Framer("e", exposure=rules), batches) for name, rules in AUDIENCES.items()}
    assert len(set(frames.values())) == len(AUDIENCES)
    for name, rules in AUDIENCES.items():
        second = Framer("e", exposure=rules)
        assert all(second.is_rendered(batch) for batch in batches)
        assert b"".join(second.render(batch, {}) for batch in batches) == frames[name]


AUDIENCES = {
    "open": None,
    "safe": SAFE,
    "arguments": ExposureRules(by_name={"search": "arguments"}),
    "result": ExposureRules(by_name={"search": "result"}),
}


def test_text_needs_no_folded_thread_in_either_audience() -> None:
    text = [TextMessageStart(message_id="m"), TextMessageContent(message_id="m", delta="x")]
    [batch] = batches_of(text, sizes=[2])
    for rules in AUDIENCES.values():
        framer = Framer("e", exposure=rules)
        assert framer.view_seqs(batch) == []
        assert framer.render(batch, {}) == Framer("e").render(batch, {})


def test_withdrawn_arguments_are_not_summarised() -> None:
    [batch] = batches_of(CALL, sizes=[5])
    withdrawn = WithdrawnContent(ids=frozenset({"c", "t"}), messages={}, until=5)
    for rules in AUDIENCES.values():
        sent = read_all(Framer("e", exposure=rules, withdrawn=withdrawn), [batch])
        assert b"hush" not in sent
        assert b"query" not in sent


STAMPED = [
    Batch(first=1, owner=RUNTIME, kind="", run="r", ts=5, lines=[encode_event(TextMessageStart(message_id="m"))]),
    Batch(first=2, owner=RUNTIME, kind="", run="r", ts=6, lines=[encode_event(MessagesSnapshot(messages=[]))]),
    Batch(first=3, owner=THREAD_OWNER, kind=LABELLED, run="", ts=7, lines=[b'{"title":"A"}', b'{"archived":true}']),
    Batch(
        first=5,
        owner=FEEDBACK_OWNER,
        kind="feedback",
        run="",
        ts=8,
        lines=[b'{"messageId":"m","metaType":"thumbs_up"}'],
    ),
    Batch(first=6, owner=RUNTIME, kind="", run="r", ts=9, lines=[encode_event(MessagesSnapshot(messages=[]))]),
]
"""A message, a snapshot, two labels, feedback, and another snapshot."""
THREAD = ThreadIdentity(id="t", agent="demo", created=1)


def entries_read(framer: Framer) -> list[bytes]:
    """The frames of each batch for a reader, folded entry by entry."""
    view, sent = ThreadView(), list[bytes]()
    for stored in STAMPED:
        batch = msgspec.structs.replace(stored, derived={})
        seqs, contexts = framer.view_seqs(batch), dict[int, FrameContext]()
        for seq in range(batch.first, batch.last + 1):
            view.apply(msgspec.structs.replace(batch, lines=batch.lines[: seq + 1 - batch.first]))
            if seq in seqs:
                contexts[seq] = framer.read_view(batch, seq, view)
        sent.append(framer.render(batch, contexts))
    return sent


def seen_at(seq: int) -> ThreadView:
    view = ThreadView()
    for batch in STAMPED:
        if batch.first <= seq:
            view.apply(msgspec.structs.replace(batch, lines=batch.lines[: seq + 1 - batch.first]))
    return view


def test_snapshots_and_facts_have_the_time_of_their_batch_and_the_thread_follows_the_facts_that_change_it() -> None:
    rated = {"ambient": {"feedback": "thumbs_up"}}
    given = Custom(name="ambient:feedback", value={"messageId": "m", "metaType": "thumbs_up"}, timestamp=8)
    expected: list[list[Event]] = [
        [TextMessageStart(message_id="m")],
        [MessagesSnapshot(messages=[AssistantMessage(id="m", content="")], timestamp=6)],
        [thread_event(THREAD, seen_at(3), 7), thread_event(THREAD, seen_at(4), 7)],
        [given, thread_event(THREAD, seen_at(5), 8)],
        [MessagesSnapshot(messages=[AssistantMessage(id="m", content="", metadata=rated)], timestamp=9)],
    ]
    lines = [b"".join([encode_event(event) + b"\n" for event in events]) for events in expected]
    assert entries_read(Framer("e", wire_format="ndjson", thread=THREAD)) == lines
    assert entries_read(Framer("e", wire_format="ndjson", thread=THREAD, exposure=SAFE)) == lines


def test_only_the_last_frame_of_an_entry_has_its_id() -> None:
    labels, feedback = entries_read(Framer("e", thread=THREAD))[2:4]
    ids = [[line for line in frames.splitlines() if line.startswith(b"id: ")] for frames in (labels, feedback)]
    assert ids == [[b"id: e.3", b"id: e.4"], [b"id: e.5"]]
    assert feedback.index(b"ambient:feedback") < feedback.index(b"id: e.5") < feedback.index(b"ambient:thread")


def test_a_reader_of_runs_only_gets_no_fact_and_needs_no_folded_thread_for_it() -> None:
    framer = Framer("e", thread=THREAD, strict=True)
    assert [framer.view_seqs(batch) for batch in STAMPED[2:4]] == [[], []]
    assert entries_read(framer)[2:4] == [b"", b""]


@pytest.mark.parametrize("rules", [None, SAFE], ids=["open", "safe"])
@pytest.mark.parametrize("profile", Profile)
def test_a_reader_without_snapshots_needs_no_folded_thread_and_shares_no_frames(
    profile: Profile, rules: ExposureRules | None
) -> None:
    snapshot = msgspec.structs.replace(STAMPED[1], derived={})
    with_snapshots = Framer("e", profile, exposure=rules)
    context = with_snapshots.read_view(snapshot, 2, seen_at(2))
    whole = with_snapshots.render(snapshot, {2: context})
    without = Framer("e", profile, exposure=rules, snapshots=False)
    assert without.view_seqs(snapshot) == []
    assert without.render(snapshot, {}) == b""
    assert with_snapshots.render(snapshot, {2: context}) == whole != b""


def test_the_last_of_the_frames_that_stand_for_an_entry_has_its_id() -> None:
    events = [Custom(name="a", value=1), Custom(name="b", value=2)]
    first, second = [encode_event(event) for event in events]
    assert Framer("e").render_at(events, 9, ThreadView()) == b"data: %b\n\nid: e.9\ndata: %b\n\n" % (first, second)
    assert Framer("e", wire_format="ndjson").render_at(events, 9, ThreadView()) == b"%b\n%b\n" % (first, second)


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("exposure", [None, SAFE], ids=["open", "safe"])
@pytest.mark.parametrize("wire_format", ["sse", "ndjson"])
@pytest.mark.parametrize("event_lines", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_of_known_text_has_the_frames_of_its_lines(
    profile: Profile, exposure: ExposureRules | None, wire_format: WireFormat, event_lines: bool, count: int
) -> None:
    texts = [f'{number} "ambient:private" MESSAGES_SNAPSHOT ' for number in range(count)]
    lines = [encode_event(TextMessageContent(message_id="m", delta=text)) for text in texts]

    def render(text: JoinedText | None, snapshots: bool) -> bytes:
        framer = Framer(
            "e", profile, wire_format=wire_format, event_lines=event_lines, exposure=exposure, snapshots=snapshots
        )
        batch = Batch(first=7, owner=RUNTIME, kind="", run="r", ts=0, lines=lines, text=text)
        assert not framer.view_seqs(batch)
        rendered = framer.render(batch, {})
        assert framer.is_rendered(batch)
        return rendered

    for snapshots in (True, False):
        assert render(JoinedText("m", "".join(texts)), snapshots) == render(None, snapshots)


SOME_LINES = [
    encode_event(TextMessageContent(message_id="m", delta="x")),
    encode_event(
        TextMessageContent(message_id="m", delta='{"type":"MESSAGES_SNAPSHOT" {"type":"CUSTOM","name":"ambient:me')
    ),
    encode_event(MessagesSnapshot(messages=[])),
    encode_event(MessagesSnapshot(messages=[AssistantMessage(id="m", content="x")])),
    encode_event(Custom(name=MEMORY_EVENT, value={"a": 1})),
    encode_event(Custom(name=HISTORY_EVENT, value={"messages": []})),
    encode_event(Custom(name="ambient:merged", value=1)),
]


@pytest.mark.parametrize("wire_format", ["sse", "ndjson"])
@given(lines=st.lists(st.sampled_from(SOME_LINES), min_size=1, max_size=8))
def test_a_batch_has_the_frames_of_its_lines_without_snapshots_and_private_entries(
    wire_format: WireFormat, lines: list[bytes]
) -> None:
    framer = Framer("e", wire_format=wire_format, snapshots=False)

    def render(first: int, lines: list[bytes]) -> bytes:
        return framer.render(Batch(first=first, owner=RUNTIME, kind="", run="r", ts=0, lines=lines), {})

    sent = [(seq, line) for seq, line in enumerate(lines, 7) if line not in SOME_LINES[2:6]]
    assert render(7, lines) == b"".join(render(seq, [line]) for seq, line in sent)


@given(lines=st.lists(st.sampled_from(SOME_LINES), min_size=1, max_size=8))
def test_a_batch_with_folded_snapshots_has_the_frames_of_its_lines(lines: list[bytes]) -> None:
    framer, view = Framer("e"), ThreadView()

    def render(first: int, lines: list[bytes]) -> bytes:
        batch = Batch(first=first, owner=RUNTIME, kind="", run="r", ts=0, lines=lines)
        return framer.render(batch, {seq: framer.read_view(batch, seq, view) for seq in framer.view_seqs(batch)})

    assert render(7, lines) == b"".join(render(seq, [line]) for seq, line in enumerate(lines, 7))
