"""Patches of the state that are deferred and applied together leave the lines and the state of the plain path, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections import state as state_module
from ambient_runner.projections.redaction import Redactor
from ambient_runner.projections.redaction.spans import REDACTED
from ambient_runner.projections.state import SharedState
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol import events as e
from ambient_runner.protocol.dropped_events import drop_oversized_event
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.deferred_patch import stamp_lines
from ambient_runner.runs.pipeline import Pipeline
from ambient_runner.runs.storable import encode_dropped, encode_storable
from tests.protocol.strategies import RUN, THREAD
from tests.runs.test_deferred_events import OTHER_SECRET, PIECES, TERMINALS, others_of, texts_of, unstamped
from tests.runs.test_pipeline import SECRET, Lines, piped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.base import Writer

DIGITS = 9_182_736_455_463
"""A number whose digits are a secret."""
SECRETS = [SECRET, OTHER_SECRET, str(DIGITS)]


def _operation(name: str, path: str, operands: dict[str, Any]) -> dict[str, Any]:
    return {"op": name, "path": path, **operands}


PATHS = st.sampled_from(
    [
        "/a",
        "/a",
        "/b",
        "/é",
        "/ ",
        "/",
        "",
        "/a/b",
        "/l/0",
        "/l/-",
        "/~0",
        "/~2",
        "/__proto__",
        f"/{SECRET}",
        "a",
        "a/b",
    ]
)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([SECRET, DIGITS, -DIGITS, f"is {OTHER_SECRET}", "a\ud83d", '"\n\\', "x" * 5000, 2**63, 2**64]),
)
VALUES = st.one_of(SCALARS, SCALARS, SCALARS, st.dictionaries(st.sampled_from("ab"), SCALARS), st.lists(SCALARS))
OPERATIONS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"op": st.sampled_from(["add", "replace"]), "path": PATHS, "value": VALUES}),
    st.fixed_dictionaries({"value": SCALARS, "path": st.sampled_from(["/a", "/b"]), "op": st.just("add")}),
    st.builds(
        _operation,
        st.sampled_from(["add", "replace", "remove", "move", "copy", "test", "other"]),
        PATHS,
        st.dictionaries(st.sampled_from(["value", "from"]), st.one_of(PATHS, VALUES)),
    ),
)
SIMPLE = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "add", "replace"]),
        "path": st.sampled_from(["/a", "/b", "/c", "/d", "/", "/~0", "/__proto__", "/a/b", f"/{SECRET}"]),
        "value": st.one_of(st.integers(0, 9), st.integers(0, 9), SCALARS),
    }
)


def _is_patch(event: e.Event) -> bool:
    return isinstance(event, e.StateDelta | e.StateSnapshot)


PATCHES: st.SearchStrategy[e.Event] = st.one_of(
    *(st.builds(e.StateDelta, delta=st.tuples(SIMPLE).map(list)) for _ in range(4)),
    st.builds(
        e.StateDelta,
        delta=st.lists(OPERATIONS, max_size=2),
        subagent_run_id=st.sampled_from([None, None, "s"]),
        timestamp=st.sampled_from([None, None, 5]),
        metadata=st.sampled_from([None, None, {"k": SECRET}]),
        raw_event=st.sampled_from([None, None, {"k": SECRET}]),
    ),
    st.builds(e.StateSnapshot, snapshot=st.dictionaries(st.sampled_from("abl"), VALUES)),
)
OTHERS: st.SearchStrategy[e.Event] = st.one_of(
    st.builds(e.TextMessageContent, message_id=st.just("m"), delta=PIECES),
    st.builds(e.TextMessageStart, message_id=st.just("m")),
    st.builds(e.TextMessageEnd, message_id=st.just("m")),
    st.builds(e.StepStarted, step_name=st.sampled_from(["x", SECRET])),
    st.builds(e.Custom, name=st.just("c"), value=VALUES),
)
CUTS = st.lists(st.booleans(), min_size=40, max_size=40)
MIXED = st.lists(st.one_of(PATCHES, PATCHES, PATCHES, OTHERS), max_size=40)
LIMITS = st.tuples(st.sampled_from([8 << 20, 20, 60, 150, 300, 8 << 20]), st.sampled_from([3, 4, 6, 100_000]))
"""Bytes and values that a state may have."""
STARTED = e.RunStarted(thread_id=THREAD, run_id=RUN)


def limited_to(limits: tuple[int, int]) -> Any:
    return patch.multiple(state_module, MAX_STATE_BYTES=limits[0], MAX_VALUES=limits[1])


def write_deferred(
    events: Sequence[e.Event], cuts: Sequence[bool], secrets: Sequence[str], end: e.Terminal | None = None
) -> list[bytes]:
    """Return what the pipeline writes if the agent pauses where `cuts` says."""
    lines = Lines()
    pipeline = Pipeline(cast("Writer", lines), Repairer(THREAD, RUN), Redactor(secrets))
    pipeline.push(STARTED)
    for event, is_pause in zip(events, cuts, strict=False):
        pipeline.push(event)
        if is_pause:
            lines.run_lazy_append()
    if end is not None:
        pipeline.end_run(end)
    lines.run_lazy_append()
    return lines.lines


def write_plainly(events: Sequence[e.Event], secrets: Sequence[str]) -> list[bytes]:
    """Return what is written if every event is limited, repaired, redacted and encoded alone."""
    repairer, redactor, state = Repairer(THREAD, RUN), Redactor(secrets), SharedState()
    lines: list[bytes] = []
    for event in (STARTED, *events):
        limited = msgspec.structs.replace(drop_oversized_event(event), raw_event=None)
        for clean in (clean for legal in repairer.feed(limited) for clean in redactor.feed(legal)):
            line = encode_storable(clean)
            reason = state.apply(e.decode_event(line)) if _is_patch(clean) else ""
            lines.append(encode_dropped(clean, reason) if reason else line)
    return lines


def fold(lines: Sequence[bytes], slices: Sequence[int]) -> tuple[bytes, int]:
    """Return the state, its members in order, and the number of events that did not apply, of a view that gets so many lines at a time."""
    view, at = ThreadView(), 0
    for count in (*slices, len(lines)):
        part = lines[at : at + count]
        if part:
            view.apply(Batch(first=at + 1, owner=RUNTIME, kind="", run="r", ts=0, lines=part))
        at += count
    return msgspec.json.encode(view.state.value), view.state.failed_count


@given(events=st.lists(PATCHES, max_size=40), cuts=CUTS, limits=LIMITS, secrets=st.sampled_from([(), SECRETS]))
def test_the_lines_of_patches_are_those_of_the_plain_path(
    events: list[e.Event], cuts: list[bool], limits: tuple[int, int], secrets: Sequence[str]
) -> None:
    with limited_to(limits):
        deferred, plain = write_deferred(events, cuts, secrets), write_plainly(events, secrets)
    assert unstamped(deferred) == unstamped(plain)
    assert not any(secret.encode() in line for secret in secrets for line in deferred)


@given(events=MIXED, cuts=CUTS, limits=LIMITS)
def test_patches_among_other_events_are_those_of_the_plain_path(
    events: list[e.Event], cuts: list[bool], limits: tuple[int, int]
) -> None:
    """Only where a text is divided may differ, and what comes before it of other messages."""
    finished = e.RunFinished(thread_id=THREAD, run_id=RUN)
    with limited_to(limits):
        deferred = unstamped(write_deferred([*events, finished], [*cuts[: len(events)], True], SECRETS))
        plain = unstamped(write_plainly([*events, finished], SECRETS))
    assert not any(secret.encode() in line for secret in SECRETS for line in deferred)
    assert others_of(deferred) == others_of(plain)
    assert texts_of(deferred) == texts_of(plain)


@given(events=MIXED, cuts=CUTS, terminal=TERMINALS, seen=st.integers(0, 40))
def test_a_run_that_ends_anywhere_has_all_its_patches(
    events: list[e.Event], cuts: list[bool], terminal: e.Terminal, seen: int
) -> None:
    together, alone = (
        unstamped(write_deferred(events[:seen], pauses, SECRETS, terminal)) for pauses in (cuts, [True] * 40)
    )
    verifier = Verifier()
    for line in together:
        verifier.check(e.decode_event(line))
    verifier.finish()
    assert others_of(together) == others_of(alone)


@given(events=MIXED, slices=st.lists(st.integers(1, 8), max_size=20), limits=LIMITS)
def test_a_view_has_the_state_that_its_lines_lead_to_one_by_one(
    events: list[e.Event], slices: list[int], limits: tuple[int, int]
) -> None:
    """The lines were written within other limits: a view meets those of earlier versions too."""
    lines = write_deferred(events, [False] * 40, ())
    state = SharedState()
    with limited_to(limits):
        for line in lines:
            state.apply(e.decode_event(line))
        assert fold(lines, slices) == (msgspec.json.encode(state.value), state.failed_count)
        assert fold(lines, [1] * len(lines)) == (msgspec.json.encode(state.value), state.failed_count)


def test_a_patch_is_written_as_it_was_when_the_agent_sent_it() -> None:
    pipeline, lines = piped(SECRET)
    operation: dict[str, Any] = {"op": "add", "path": "/a", "value": 1}
    pipeline.push(e.StateDelta(delta=[operation]))
    operation.update(path="/b", value=[SECRET])
    pipeline.push(e.StateDelta(delta=[operation]))
    written = [event.delta for event in lines.run_lazy_append() if isinstance(event, e.StateDelta)]
    assert written == [
        [{"op": "add", "path": "/a", "value": 1}],
        [{"op": "add", "path": "/b", "value": [REDACTED]}],
    ]


def test_patches_of_single_keys_are_encoded_together() -> None:
    pipeline, lines = piped(SECRET)
    for number in range(3):
        pipeline.push(e.StateDelta(delta=[{"op": "add", "path": "/a", "value": number}]))
    lines.run_lazy_append()
    assert [len(encoded.lines) for encoded in lines.encoded][-1] == 3


def test_a_stamped_line_is_that_of_the_event_with_a_timestamp() -> None:
    delta = e.StateDelta(delta=[{"op": "add", "path": "/a", "value": 1}])
    (line,) = stamp_lines([e.encode_event(delta)])
    stamped = msgspec.structs.replace(delta, timestamp=msgspec.json.decode(line)["timestamp"])
    assert line == e.encode_event(stamped)
