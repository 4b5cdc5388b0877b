"""Events that are deferred, redacted and encoded together are those of the plain path: repaired, redacted and encoded one by one."""

from __future__ import annotations

import enum
from collections import defaultdict
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import RedactionFailed
from ambient_runner.ledger.records import RUNTIME, Batch, Encoded, JoinedText
from ambient_runner.projections.redaction import Redactor
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol import events as e
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs import pipeline as pipeline_module
from ambient_runner.runs.pipeline import Pipeline
from ambient_runner.runs.storable import encode_storable
from tests.protocol.strategies import CONTENTS, IDS, RUN, TAGS, THREAD
from tests.runs.test_pipeline import SECRET, Lines, piped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

    from ambient_runner.ledger.base import Writer

OTHER_SECRET = "x12345-a-b"
PIECES = st.sampled_from(
    ["s", "sk", "-1234567890", SECRET, f"is {SECRET} and", "k-", "x", "12345", "-a-b", "a b", " ", "é\n", "a\ud83d"]
)
METADATA = st.sampled_from([None, None, None, {"k": SECRET}, {"summary": True}, {"k2": 1}])
DELTAS: list[st.SearchStrategy[e.Event]] = [
    st.builds(e.TextMessageContent, message_id=IDS, delta=PIECES, subagent_run_id=TAGS, metadata=METADATA),
    st.builds(e.ReasoningMessageContent, message_id=IDS, delta=PIECES, subagent_run_id=TAGS, metadata=METADATA),
    st.builds(e.ToolCallArgs, tool_call_id=IDS, delta=PIECES, subagent_run_id=TAGS, metadata=METADATA),
]
WITH_SECRETS: list[st.SearchStrategy[e.Event]] = [
    st.builds(e.TextMessageStart, message_id=st.just(SECRET), name=st.sampled_from([None, SECRET])),
    st.builds(e.TextMessageContent, message_id=st.just(SECRET), delta=PIECES),
    st.builds(e.ToolCallStart, tool_call_id=IDS, tool_call_name=st.sampled_from(["look", SECRET])),
    st.builds(e.ToolCallResult, message_id=IDS, tool_call_id=IDS, content=PIECES),
]
STREAMS = st.lists(st.one_of(CONTENTS, *DELTAS, *DELTAS, *WITH_SECRETS), max_size=40)
TERMINALS = st.sampled_from(
    [
        e.RunFinished(thread_id=THREAD, run_id=RUN),
        e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=e.Cancelled()),
        e.RunError(message="it broke", code="broken"),
    ]
)


def unstamped(lines: Sequence[bytes]) -> list[bytes]:
    """Return the lines without their timestamps, which differ from one path to the other."""
    return [e.encode_event(msgspec.structs.replace(e.decode_event(line), timestamp=None)) for line in lines]


def deferred_lines(events: Sequence[e.Event], cuts: Sequence[bool], secrets: Sequence[str]) -> list[bytes]:
    """Return what the pipeline writes if the agent pauses where `cuts` says."""
    lines = Lines()
    pipeline = Pipeline(cast("Writer", lines), Repairer(THREAD, RUN), Redactor(secrets))
    pipeline.push(e.RunStarted(thread_id=THREAD, run_id=RUN))
    for event, is_pause in zip(events, cuts, strict=False):
        pipeline.push(event)
        if is_pause:
            lines.run_lazy_append()
    lines.run_lazy_append()
    return unstamped(lines.lines)


def plain_lines(events: Sequence[e.Event], secrets: Sequence[str]) -> list[bytes]:
    """Return what is written if every event is repaired, redacted and encoded alone."""
    repairer, redactor = Repairer(THREAD, RUN), Redactor(secrets)
    lines: list[bytes] = []
    for event in (e.RunStarted(thread_id=THREAD, run_id=RUN), *events):
        for legal in repairer.feed(event):
            lines += [encode_storable(clean) for clean in redactor.feed(legal)]
    return unstamped(lines)


def texts_of(lines: Sequence[bytes]) -> dict[tuple[str, str], str]:
    """Return the text of every message and the arguments of every call, by type and id."""
    found: defaultdict[tuple[str, str], str] = defaultdict(str)
    for event in map(e.decode_event, lines):
        match event:
            case e.TextMessageContent() | e.ReasoningMessageContent():
                found[e.type_of(event), event.message_id] += event.delta
            case e.ToolCallArgs():
                found[e.type_of(event), event.tool_call_id] += event.delta
            case _:
                pass
    return dict(found)


def others_of(lines: Sequence[bytes]) -> list[bytes]:
    return [line for line in lines if b'"delta":"' not in line]


@given(events=STREAMS, cuts=st.lists(st.booleans(), min_size=40, max_size=40))
def test_without_secrets_the_lines_are_those_of_the_plain_path(events: list[e.Event], cuts: list[bool]) -> None:
    assert deferred_lines(events, cuts, ()) == plain_lines(events, ())


@given(events=STREAMS, cuts=st.lists(st.booleans(), min_size=40, max_size=40))
def test_with_secrets_all_texts_and_events_are_those_of_the_plain_path(events: list[e.Event], cuts: list[bool]) -> None:
    """Only where a text is divided may differ, and what comes before it of other messages."""
    secrets = [SECRET, OTHER_SECRET]
    end = e.RunFinished(thread_id=THREAD, run_id=RUN)
    deferred, plain = deferred_lines([*events, end], [*cuts, True], secrets), plain_lines([*events, end], secrets)
    assert not any(secret.encode() in line for secret in secrets for line in deferred)
    assert others_of(deferred) == others_of(plain)
    assert texts_of(deferred) == texts_of(plain)


@given(
    events=STREAMS,
    cuts=st.lists(st.booleans(), min_size=40, max_size=40),
    long=st.integers(1, 6),
    written_from=st.integers(1, 40),
)
def test_long_deltas_have_the_texts_and_the_joined_text_of_the_plain_path(
    events: list[e.Event], cuts: list[bool], long: int, written_from: int
) -> None:
    """A delta counts as long from a few characters on, and those that are deferred are written after some more."""
    secrets = [SECRET, OTHER_SECRET]
    lines, end = Lines(), e.RunFinished(thread_id=THREAD, run_id=RUN)
    pipeline = Pipeline(cast("Writer", lines), Repairer(THREAD, RUN), Redactor(secrets))
    with patch.multiple(
        pipeline_module, MAX_SHORT_DELTA_CHARS=long, LONG_TEXT_FLUSH_CHARS=written_from, MAX_DEFERRED_DELTA_CHARS=12
    ):
        for event, is_pause in zip(
            (e.RunStarted(thread_id=THREAD, run_id=RUN), *events, end), [*cuts, True, True], strict=False
        ):
            pipeline.push(event)
            if is_pause:
                lines.run_lazy_append()
    lines.run_lazy_append()
    written, plain = unstamped(lines.lines), plain_lines([*events, end], secrets)
    assert not any(secret.encode() in line for secret in secrets for line in written)
    assert others_of(written) == others_of(plain)
    assert texts_of(written) == texts_of(plain)
    for encoded in lines.encoded:
        if text := encoded.text:
            deltas: list[Any] = [e.decode_event(line) for line in encoded.lines]
            assert {each.message_id for each in deltas} == {text.message_id}
            assert text.text == "".join(each.delta for each in deltas)


@given(
    events=STREAMS, cuts=st.lists(st.booleans(), min_size=40, max_size=40), terminal=TERMINALS, seen=st.integers(0, 40)
)
def test_a_run_that_ends_anywhere_leaves_a_legal_stream_with_the_same_texts(
    events: list[e.Event], cuts: list[bool], terminal: e.Terminal, seen: int
) -> None:
    written: list[list[bytes]] = []
    for pauses in (cuts, [True] * len(cuts)):
        lines = Lines()
        pipeline = Pipeline(cast("Writer", lines), Repairer(THREAD, RUN), Redactor([SECRET, OTHER_SECRET]))
        pipeline.push(e.RunStarted(thread_id=THREAD, run_id=RUN))
        for event, is_pause in zip(events[:seen], pauses, strict=False):
            pipeline.push(event)
            if is_pause:
                lines.run_lazy_append()
        pipeline.end_run(terminal)
        lines.run_lazy_append()
        written.append(unstamped(lines.lines))
    together, alone = written
    verifier = Verifier()
    for line in together:
        verifier.check(e.decode_event(line))
    verifier.finish()
    assert SECRET.encode() not in b"".join(together)
    assert others_of(together) == others_of(alone)
    assert texts_of(together) == texts_of(alone)


@given(events=STREAMS, cuts=st.lists(st.booleans(), min_size=40, max_size=40))
def test_a_joined_text_is_that_of_its_lines(events: list[e.Event], cuts: list[bool]) -> None:
    lines = Lines()
    pipeline = Pipeline(cast("Writer", lines), Repairer(THREAD, RUN), Redactor([SECRET, OTHER_SECRET]))
    pipeline.push(e.RunStarted(thread_id=THREAD, run_id=RUN))
    for event, is_pause in zip(events, cuts, strict=False):
        pipeline.push(event)
        if is_pause:
            lines.run_lazy_append()
    for encoded in lines.encoded:
        if text := encoded.text:
            deltas: list[Any] = [e.decode_event(line) for line in encoded.lines]
            assert deltas == [e.TextMessageContent(message_id=text.message_id, delta=each.delta) for each in deltas]
            assert text.text == "".join(each.delta for each in deltas)


class RecordedAppends(Lines):
    """A writer that keeps what each append had, as events and as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.appended: list[Encoded] = []

    def append(self, line: bytes) -> None:
        super().append(line)
        self._collect()
        self.appended.append(Encoded([line], events=[line]))

    def append_lazily(self, make: Callable[[], Encoded], pending: Sized = ()) -> None:
        super().append_lazily(make, pending)
        self._collect()

    def run_lazy_append(self) -> list[e.Event]:
        written = super().run_lazy_append()
        self._collect()
        return written

    def _collect(self) -> None:
        self.appended += self.encoded
        self.encoded.clear()


@given(
    events=STREAMS,
    cuts=st.lists(st.booleans(), min_size=40, max_size=40),
    secrets=st.sampled_from([(), (SECRET, OTHER_SECRET)]),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=40),
)
def test_a_thread_folded_from_the_events_is_the_one_folded_from_their_lines(
    events: list[e.Event], cuts: list[bool], secrets: tuple[str, ...], sizes: list[int]
) -> None:
    """However many appends a batch has: `sizes` of them, in turn."""
    writer = RecordedAppends()
    pipeline = Pipeline(cast("Writer", writer), Repairer(THREAD, RUN), Redactor(secrets))
    pipeline.push(e.RunStarted(thread_id=THREAD, run_id=RUN))
    for event, is_pause in zip(events, cuts, strict=False):
        pipeline.push(event)
        if is_pause:
            writer.run_lazy_append()
    pipeline.end_run(e.RunFinished(thread_id=THREAD, run_id=RUN))
    writer.run_lazy_append()
    from_events, from_lines = ThreadView(), ThreadView()
    appended = iter(writer.appended)
    for size in cycle(sizes):
        taken = list(islice(appended, size))
        if not taken:
            break
        lines = [line for each in taken for line in each.lines]
        known = [event for each in taken for event in each.events or each.lines]
        batch = Batch(first=from_lines.seq + 1, owner=RUNTIME, kind="", run="run", ts=5, lines=lines)
        from_lines.apply(batch)
        from_events.apply(msgspec.structs.replace(batch, events=known))
    assert from_events.seq == from_lines.seq
    assert from_events.to_checkpoint() == from_lines.to_checkpoint()


@pytest.mark.parametrize("is_summary_first", [True, False])
def test_a_delta_with_metadata_is_not_joined_to_others(is_summary_first: bool) -> None:
    """A held delta that was marked as a summary made hidden reasoning a summary too, which clients may see."""
    writer = RecordedAppends()
    pipeline = Pipeline(cast("Writer", writer), Repairer(THREAD, RUN), Redactor([SECRET]))
    deltas = [
        e.ReasoningMessageContent(message_id="m", delta="Plan", metadata={"summary": True}),
        e.ReasoningMessageContent(message_id="m", delta="ned: private "),
        e.ReasoningMessageContent(message_id="m", delta="thoughts "),
    ]
    for event in (
        e.RunStarted(thread_id=THREAD, run_id=RUN),
        e.ReasoningMessageStart(message_id="m"),
        *(deltas if is_summary_first else deltas[::-1]),
        e.ReasoningMessageEnd(message_id="m"),
    ):
        pipeline.push(event)
    writer.run_lazy_append()
    from_events, from_lines = ThreadView(), ThreadView()
    for each in writer.appended:
        batch = Batch(first=from_lines.seq + 1, owner=RUNTIME, kind="", run="run", ts=5, lines=each.lines)
        from_lines.apply(batch)
        from_events.apply(msgspec.structs.replace(batch, events=each.events or each.lines))
    assert from_events.transcript.messages() == from_lines.transcript.messages()


class ToolName(enum.StrEnum):
    LOOK = "look"


def test_a_view_has_no_object_of_the_agent() -> None:
    """A tool was named by the member of an Enum: the stored line has its text, and the next run would have got the member."""
    writer = RecordedAppends()
    pipeline = Pipeline(cast("Writer", writer), Repairer(THREAD, RUN), Redactor(()))
    pipeline.push(e.RunStarted(thread_id=THREAD, run_id=RUN))
    pipeline.push(e.ToolCallStart(tool_call_id="c", tool_call_name=ToolName.LOOK))
    pipeline.push(e.ToolCallEnd(tool_call_id="c"))
    writer.run_lazy_append()
    view = ThreadView()
    for each in writer.appended:
        known = each.events or each.lines
        view.apply(Batch(first=view.seq + 1, owner=RUNTIME, kind="", run="r", ts=5, lines=each.lines, events=known))
    call = view.transcript.find_call("c")
    assert call is not None
    assert type(call.function.name) is str


def test_the_joined_text_is_known_for_plain_deltas_of_one_message() -> None:
    pipeline, lines = piped(SECRET)
    for deltas in (["a ", "b "], ["c "], ["d", "e f "]):
        for delta in deltas:
            pipeline.push(e.TextMessageContent(message_id="m", delta=delta))
        lines.run_lazy_append()
    assert [encoded.text for encoded in lines.encoded][-3:] == [
        JoinedText("m", text) for text in ("a b ", "c ", "de f ")
    ]


def test_a_call_after_held_text_and_an_event_that_is_dropped_is_written() -> None:
    """The writer still calls back for the text that was deferred and held: what is deferred next was taken for more of that text."""
    pipeline, lines = piped(SECRET)
    pipeline.push(e.TextMessageContent(message_id="m", delta="held"))
    pipeline.push(e.TextMessageContent(message_id="m", delta=""))
    pipeline.push(e.ToolCallStart(tool_call_id="c", tool_call_name="look"))
    pipeline.push(e.ToolCallArgs(tool_call_id="c", delta="{} "))
    written = [e.type_of(event) for event in lines.run_lazy_append()]
    assert written[-2:] == ["TOOL_CALL_START", "TOOL_CALL_ARGS"]


def test_a_delta_after_a_pause_is_refused_once_redaction_has_failed() -> None:
    lines = Lines()
    pipeline = Pipeline(cast("Writer", lines), Repairer(THREAD, RUN), Redactor([SECRET]))
    pipeline.push(e.RunStarted(thread_id=THREAD, run_id=RUN))
    pipeline.push(e.TextMessageStart(message_id="m"))
    for text in ("one ", "two "):
        pipeline.push(e.TextMessageContent(message_id="m", delta=text))
        lines.run_lazy_append()
    written = list(lines.lines)
    pipeline.redaction_guard.error = RedactionFailed()
    with pytest.raises(RedactionFailed):
        pipeline.push(e.TextMessageContent(message_id="m", delta="three "))
    lines.run_lazy_append()
    assert lines.lines == written


def test_long_deltas_of_one_message_have_a_joined_text() -> None:
    pipeline, lines = piped(SECRET)
    deltas = [f"{number} " * 2000 for number in range(3)]
    assert [pipeline.push(e.TextMessageContent(message_id="m", delta=delta)) for delta in deltas] == [False] * 3
    lines.run_lazy_append()
    assert lines.encoded[-1].text == JoinedText("m", "".join(deltas))


def test_many_characters_are_written_without_waiting_for_the_agent_to_pause() -> None:
    pipeline, _ = piped(SECRET)
    is_written = [pipeline.push(e.TextMessageContent(message_id="m", delta="a " * 5000)) for _ in range(5)]
    assert is_written == [False, False, False, True, False]


def test_many_characters_of_results_and_patches_are_written_too() -> None:
    text = "a " * 2000
    for long, others in (
        (lambda n: e.StateDelta(delta=[{"op": "add", "path": f"/key{n}", "value": text}]), []),
        (
            lambda n: e.ToolCallResult(message_id=f"result{n}", tool_call_id=f"call{n}", content=text),
            [e.ToolCallStart(tool_call_id=f"call{n}", tool_call_name="look") for n in range(9)],
        ),
    ):
        pipeline, _ = piped(SECRET)
        for event in others:
            pipeline.push(event)
        assert [pipeline.push(long(number)) for number in range(9)] == [False] * 8 + [True]
