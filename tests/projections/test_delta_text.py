"""Text read from many lines together is the text of each of them, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.ledger.records import RUNTIME, Batch, TextRun
from ambient_runner.projections.delta_text import join_deltas_at
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import (
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    encode_event,
)

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

TEXTS = st.lists(
    st.one_of(st.text(), st.sampled_from(['"}', '"}"', "\\", "\n", '","delta":"', "é", "😀"])), max_size=600
)


def delta_line(text: str, **extra: object) -> bytes:
    return encode_event(TextMessageContent(message_id='m","delta":', delta=text, **extra))  # type: ignore[arg-type]


def batch(first: int, *lines: bytes, text: TextRun | None = None) -> Batch:
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
    assert join_deltas_at(lines, 0) is None
    assert join_deltas_at(lines, 1) == (TextRun('m","delta":', "".join(texts)), len(texts) + 1)
    assert join_deltas_at(lines, len(texts) + 1) is None


@given(texts=TEXTS.filter(bool), seen=st.integers(0, 3))
def test_a_batch_whose_text_is_known_folds_as_its_lines_do(texts: list[str], seen: int) -> None:
    lines = list(map(delta_line, texts))
    read, known = begun(), begun()
    for view in (read, known):
        view.apply(batch(3, *lines[:seen]))
    read.apply(batch(3, *lines))
    known.apply(batch(3, *lines, text=TextRun('m","delta":', "".join(texts))))
    assert known.transcript.messages() == read.transcript.messages()
    assert known.seq == read.seq
