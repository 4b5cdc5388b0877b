"""Text read from many lines together is the text of each of them, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.ledger.records import RUNTIME, Batch, JoinedText
from ambient_runner.projections.delta_text import join_deltas_at
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import (
    Custom,
    ReasoningMessageContent,
    ReasoningMessageStart,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallStart,
    encode_event,
)

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

TEXTS = st.lists(
    st.one_of(st.text(), st.sampled_from(['"}', '"}"', "\\", "\n", '","delta":"', "é", "😀"])), max_size=600
)


def delta_line(text: str, **extra: object) -> bytes:
    return encode_event(TextMessageContent(message_id='m","delta":', delta=text, **extra))  # type: ignore[arg-type]


def batch(first: int, *lines: bytes, text: JoinedText | None = None) -> Batch:
    return Batch(first=first, owner=RUNTIME, kind="", run="r", ts=0, lines=list(lines), text=text)


def begun(*more: Event) -> ThreadView:
    view = ThreadView()
    opening = [RunStarted(thread_id="t", run_id="r"), TextMessageStart(message_id='m","delta":'), *more]
    view.apply(batch(1, *map(encode_event, opening)))
    return view


@given(texts=TEXTS.filter(bool))
def test_consecutive_deltas_are_joined_up_to_another_event(texts: list[str]) -> None:
    end = encode_event(TextMessageEnd(message_id='m","delta":'))
    lines = [end, *map(delta_line, texts), delta_line("x", metadata={"a": 1}), end]
    joined = TextMessageContent(message_id='m","delta":', delta="".join(texts))
    assert join_deltas_at(lines, 0) is None
    assert join_deltas_at(lines, 1) == ([joined], len(texts) + 1)
    assert join_deltas_at(lines, len(texts) + 1) is None


NAMES = st.sampled_from(["a", "b"])
STREAMS: list[Event] = [
    *(TextMessageStart(message_id=name) for name in ("a", "b")),
    *(ReasoningMessageStart(message_id=f"r{name}") for name in ("a", "b")),
    *(ToolCallStart(tool_call_id=f"c{name}", tool_call_name="look") for name in ("a", "b")),
]
MIXED = st.lists(
    st.one_of(
        st.builds(TextMessageContent, message_id=NAMES, delta=st.text()),
        st.builds(TextMessageContent, message_id=NAMES, delta=st.text(), metadata=st.just({"k": 1})),
        st.builds(TextMessageContent, message_id=NAMES, delta=st.text(), subagent_run_id=st.just("s")),
        st.builds(ReasoningMessageContent, message_id=NAMES.map("r{}".format), delta=st.text()),
        st.builds(ToolCallArgs, tool_call_id=NAMES.map("c{}".format), delta=st.text()),
        st.builds(Custom, name=st.just("x"), value=st.just(1)),
    ),
    max_size=60,
)


@given(events=MIXED, times=st.integers(1, 40))
def test_deltas_of_several_messages_and_calls_fold_as_one_by_one(events: list[Event], times: int) -> None:
    repeated = [event for event in events for _ in range(times)] + events
    view, plain = ThreadView(), ThreadView()
    opening: list[Event] = [RunStarted(thread_id="t", run_id="r"), *STREAMS]
    view.apply(batch(1, *map(encode_event, [*opening, *repeated])))
    for event in (*opening, *repeated):
        plain.apply_event("r", event)
    assert view.transcript.messages() == plain.transcript.messages()


def test_messages_that_alternate_cost_no_more_than_the_deltas_of_one() -> None:
    """The search for the end of each text looked at 256 lines: a thread of such a run stopped the server for seconds."""
    lines = [encode_event(TextMessageContent(message_id="ab"[n % 2], delta="x")) for n in range(2000)]
    seen = _CountedLines(lines)
    found = join_deltas_at(seen, 0)
    assert found == ([TextMessageContent(message_id=name, delta="x" * 1000) for name in "ab"], 2000)
    assert seen.read_count < 4 * len(lines)


class _CountedLines(list[bytes]):
    """Lines that count how many of them are looked at."""

    read_count = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.read_count += len(found) if isinstance(at, slice) else 1
        return found


@given(texts=TEXTS.filter(bool), seen=st.integers(0, 3))
def test_a_batch_whose_text_is_known_folds_as_its_lines_do(texts: list[str], seen: int) -> None:
    lines = list(map(delta_line, texts))
    read, known = begun(), begun()
    for view in (read, known):
        view.apply(batch(3, *lines[:seen]))
    read.apply(batch(3, *lines))
    known.apply(batch(3, *lines, text=JoinedText('m","delta":', "".join(texts))))
    assert known.transcript.messages() == read.transcript.messages()
    assert known.seq == read.seq
