"""F24: an agent sends patches that are large, or that grow what they patch. Each costs what it says, and none stops the server."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import ag_ui.core as ag
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import PatchTooLarge, apply_patch, is_object
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import ActivityDelta, ActivitySnapshot, Custom, Event, StateDelta, StateSnapshot
from ambient_runner.protocol.limits import MAX_PATCH_OPERATIONS
from tests.faults.loop_pauses import run_watched, shortest_pause_of_run
from tests.machine_speed import cpu_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.usefixtures("frozen_test_objects")

MAX_PAUSE = 0.1  # seconds


def adds(count: int) -> list[dict[str, Any]]:
    return [{"op": "add", "path": f"/key{at}", "value": at} for at in range(count)]


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


SHAPES: dict[str, tuple[Callable[[int], Any], Callable[[int], list[dict[str, Any]]]]] = {
    "new keys": (lambda size: {}, adds),
    "a list's end": (lambda size: {"a": []}, lambda size: [{"op": "add", "path": "/a/-", "value": 1}] * size),
    "one nested key": (
        lambda size: {"a": {"b": {str(at): at for at in range(size)}}},
        lambda size: [{"op": "replace", "path": "/a/b/7", "value": 1}] * size,
    ),
    "removals": (
        lambda size: {str(at): at for at in range(size)},
        lambda size: [{"op": "remove", "path": f"/{at}"} for at in range(size)],
    ),
    "moves": (
        lambda size: {str(at): [at] for at in range(size)},
        lambda size: [{"op": "move", "from": f"/{at}", "path": f"/moved{at}"} for at in range(size)],
    ),
    "copies of a small value beside many": (
        lambda size: {"small": 1, **{str(at): at for at in range(size)}},
        lambda size: [{"op": "copy", "from": "/small", "path": f"/copy{at}"} for at in range(size)],
    ),
    "tests": (
        lambda size: {str(at): at for at in range(size)},
        lambda size: [{"op": "test", "path": f"/{at}", "value": at} for at in range(size)],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_f24_m4_the_cost_of_a_patch_is_linear_in_its_operations(shape: str) -> None:
    """The container was copied for every operation: ten times as many operations took a hundred times as long."""
    make_document, make_operations = SHAPES[shape]

    def patch(size: int) -> Callable[[], object]:
        return partial(apply_patch, make_document(size), make_operations(size))

    assert cpu_ratio(patch(10_000), patch(1_000)) < 25


def patched_activity(content: dict[str, Any], patches: Sequence[list[dict[str, Any]]]) -> Transcript:
    transcript = Transcript()
    transcript.apply(ActivitySnapshot(message_id="m", activity_type="plan", content=content))
    for patch in patches:
        transcript.apply(ActivityDelta(message_id="m", activity_type="plan", patch=patch))
    return transcript


def test_f24_m4_patches_of_an_activity_in_a_row_copy_it_once() -> None:
    """The whole activity was copied for every patch, however little that changed."""
    patches = [[{"op": "replace", "path": f"/{at}", "value": -1}] for at in range(500)]

    def fold(size: int) -> Callable[[], object]:
        return partial(patched_activity, {str(at): at for at in range(size)}, patches)

    assert cpu_ratio(fold(50_000), fold(500)) < 25


def drops_of(events: Sequence[Event]) -> list[Any]:
    return [event.value for event in events if isinstance(event, Custom) and event.name == "ambient:dropped"]


async def pause_of(*events: Any) -> float:
    """Return the longest pause of the event loop during a run with these events, and the fold of its thread."""
    return await shortest_pause_of_run(events, MAX_PAUSE, folds_thread=True)


async def test_f24_m4_a_patch_of_100_000_operations_is_dropped_and_the_server_goes_on() -> None:
    """It stopped the event loop for more than a minute, and every later fold of the thread for half of that."""
    events = [StateSnapshot(snapshot={"a": 1}), StateDelta(delta=adds(100_000)), StateDelta(delta=adds(1))]
    run = await run_watched(events, folds_thread=True)
    assert (drops_of(run.seen), run.state) == ([{"type": "STATE_DELTA", "reason": "too_large"}], {"a": 1, "key0": 0})
    assert await pause_of(*events) < MAX_PAUSE


LONG_PATCHES: dict[str, Callable[[], object]] = {
    "a model": lambda: ag.StateDeltaEvent.model_validate({"delta": adds(100_000)}),
    "a dict": lambda: {"type": "STATE_DELTA", "delta": adds(500_000)},
}


@pytest.mark.parametrize("form", LONG_PATCHES)
async def test_f24_m4_the_operations_of_a_patch_are_counted_before_it_is_converted(form: str) -> None:
    """The conversion of 500,000 operations stopped the event loop for up to 4 seconds."""
    patch = LONG_PATCHES[form]()
    run = await run_watched([StateSnapshot(snapshot={"a": 1}), patch], folds_thread=True)
    assert (drops_of(run.seen), run.state) == ([{"type": "STATE_DELTA", "reason": "too_large"}], {"a": 1})
    assert await pause_of(patch) < MAX_PAUSE


async def test_f24_m4_a_patch_of_an_activity_has_the_same_limit() -> None:
    activity = ActivitySnapshot(message_id="m", activity_type="plan", content={})
    long = ActivityDelta(message_id="m", activity_type="plan", patch=adds(MAX_PATCH_OPERATIONS + 1))
    run = await run_watched([activity, long], folds_thread=True)
    assert drops_of(run.seen) == [{"type": "ACTIVITY_DELTA", "reason": "too_large"}]
    assert await pause_of(activity, long) < MAX_PAUSE


WIDE = {f"key{at}": at for at in range(90_000)}
LONG = list(range(90_000))
HEAVY_EVENTS: dict[str, tuple[Any, list[list[dict[str, Any]]]]] = {
    "as many operations as are allowed": ({}, [adds(MAX_PATCH_OPERATIONS)]),
    "many keys of a wide state": (WIDE, [adds(MAX_PATCH_OPERATIONS)]),
    "insertions before a long array": ({"a": LONG}, [[{"op": "add", "path": "/a/0", "value": 1}] * 10_000]),
    "removals before a long array": ({"a": LONG}, [[{"op": "remove", "path": "/a/0"}] * 10_000]),
    "two keys that are nested deep": (
        {"a": nested(60), "b": nested(60)},
        [[{"op": "add", "path": f"/{'ab'[at % 2]}{'/a' * 59}/{at}", "value": 1} for at in range(10_000)]],
    ),
    "copies that double the state": ({"a": "x" * 1000}, [[{"op": "copy", "from": "", "path": "/b"}] * 10_000]),
    "copies of a wide value": ({"a": WIDE}, [[{"op": "copy", "from": "/a", "path": "/b"}] * 10_000]),
    "copies and changes in turn": (
        {"a": WIDE, "b": {}},
        [
            [
                operation
                for at in range(5_000)
                for operation in (
                    {"op": "copy", "from": "/b", "path": f"/a/copy{at}"},
                    {"op": "add", "path": f"/a/copy{at}/c", "value": 1},
                )
            ]
        ],
    ),
    "tests of a long text": ({"a": "x" * 4_000_000}, [[{"op": "test", "path": "/a", "value": "x" * 4_000_000}]]),
    "tests of a wide value": ({"a": WIDE}, [[{"op": "test", "path": "/a", "value": WIDE}]]),
    "many patches of a wide state in a row": (WIDE, [adds(1)] * 500),
    "many removals from a wide state in a row": (WIDE, [[{"op": "remove", "path": f"/key{at}"}] for at in range(500)]),
    "many patches of a long text in a row": ({}, [[{"op": "add", "path": "/a", "value": "x" * 1_000_000}]] * 8),
}


@pytest.mark.parametrize("name", HEAVY_EVENTS)
async def test_f24_m4_no_patch_stops_the_server(name: str) -> None:
    state, patches = HEAVY_EVENTS[name]
    assert await pause_of(StateSnapshot(snapshot=state), *(StateDelta(delta=patch) for patch in patches)) < MAX_PAUSE


def test_f24_m4_a_patch_that_shifts_too_many_items_is_too_large() -> None:
    with pytest.raises(PatchTooLarge):
        apply_patch(LONG, [{"op": "add", "path": "/0", "value": 1}] * 10_000)
    assert len(apply_patch(LONG, [{"op": "add", "path": "/0", "value": 1}] * 100)) == len(LONG) + 100


PATHS = st.sampled_from(["", "/a", "/b", "/a/b", "/a/0", "/a/-", "/a/b/c", "/b/0/a", "/b/1", "/0"])
VALUES = st.recursive(
    st.sampled_from([0, True, None, "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "replace", "remove", "copy", "move"]), "path": PATHS, "from": PATHS},
        optional={"value": VALUES},
    ).map(lambda each: {"value": 1, **each}),
    max_size=6,
)


@given(document=VALUES, operations=OPERATIONS)
def test_f24_m4_a_patch_means_the_same_as_its_operations_one_by_one(
    document: Any, operations: list[dict[str, Any]]
) -> None:
    """Containers are copied once per patch, also if a `copy` has put them at two paths."""
    before = copy.deepcopy((document, operations))
    expected = document
    try:
        for operation in operations:
            expected = json.loads(json.dumps(apply_patch(expected, [operation])))
    except PatchConflict:
        with pytest.raises(PatchConflict):
            apply_patch(document, operations)
    else:
        assert json.dumps(apply_patch(document, operations)) == json.dumps(expected)
    assert (document, operations) == before


@given(document=st.dictionaries(st.sampled_from("abc"), VALUES), patches=st.lists(OPERATIONS, max_size=4))
def test_f24_m4_patches_of_an_activity_do_not_change_what_was_read_before(
    document: dict[str, Any], patches: list[list[dict[str, Any]]]
) -> None:
    """Patches in a row change one copy of the content, until somebody reads it."""
    before = copy.deepcopy((document, patches))
    transcript = patched_activity(document, ())
    expected: Any = document
    read: list[tuple[Any, str]] = [(document, json.dumps(document))]
    for patch in patches:
        with suppress(PatchConflict):
            after = apply_patch(expected, patch)
            expected = after if is_object(after) else expected
        transcript.apply(ActivityDelta(message_id="m", activity_type="plan", patch=patch))
        content = transcript.messages()[0].content
        read.append((content, json.dumps(content)))
    unread = patched_activity(document, patches).messages()[0].content
    assert json.dumps(unread) == read[-1][1] == json.dumps(expected)
    assert [json.dumps(content) for content, _ in read] == [text for _, text in read]
    assert (document, patches) == before
