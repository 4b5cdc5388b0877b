"""The state an adapter shares with its clients."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.errors import PatchConflict
from ambient_runner.projections.state import SharedState
from ambient_runner.protocol.events import Custom, Event, StateDelta, StateSnapshot, encode_event
from ambient_runner.protocol.limits import MAX_EVENT_BYTES
from tests.hypothesis_profiles import examples

thorough = examples(300)


def hidden(key: str) -> bool:
    return key.startswith("_")


def snapshot(value: Any) -> list[Event]:
    return [StateSnapshot(snapshot=value)]


def delta(*operations: dict[str, Any]) -> list[Event]:
    return [StateDelta(delta=list(operations))]


def test_a_partial_change_is_sent_as_a_complete_snapshot() -> None:
    store = StateStore({"a": 1, "_b": 2, "messages": []}, hidden)
    assert store.update_with_snapshot({"c": 3}) == snapshot({"a": 1, "c": 3})
    assert store.value == {"a": 1, "_b": 2, "messages": [], "c": 3}


def test_no_event_is_sent_for_what_clients_have_or_may_not_see() -> None:
    store = StateStore({"a": 1}, hidden)
    assert store.update_with_snapshot({"a": 1}) == []
    assert store.update_with_snapshot({"_b": 2}) == []
    assert store.update_with_patch({"a": 1, "_b": 3}) == []
    assert store.apply_patch([{"op": "test", "path": "/a", "value": 1}]) == []
    assert store.snapshot_if_changed() == []
    assert store.value == {"a": 1, "_b": 3}


@pytest.mark.parametrize("change", [StateStore.update_with_snapshot, StateStore.update_with_patch])
def test_a_number_that_becomes_a_boolean_is_sent(change: Any) -> None:
    store = StateStore({"a": 1})
    assert change(store, {"a": 1.0}) == []
    assert [type(event) for event in change(store, {"a": True})] != []
    assert store.snapshot().snapshot["a"] is True


def test_a_delta_names_keys_with_escaped_pointers() -> None:
    store = StateStore({"x": 1}, hidden)
    assert store.update_with_patch({"a/b": 1, "m~n": 2, "x": 3, "_y": 4}) == delta(
        {"op": "add", "path": "/a~1b", "value": 1},
        {"op": "add", "path": "/m~0n", "value": 2},
        {"op": "replace", "path": "/x", "value": 3},
    )
    assert store.value == {"x": 3, "a/b": 1, "m~n": 2, "_y": 4}


def test_a_patch_goes_out_without_what_it_does_to_hidden_keys() -> None:
    store = StateStore({"a": [1], "_b": {}}, hidden)
    add = {"op": "add", "path": "/a/-", "value": 2}
    assert store.apply_patch([add, {"op": "add", "path": "/_b/c", "value": 3}]) == delta(add)
    assert store.value == {"a": [1, 2], "_b": {"c": 3}}


def test_a_patch_that_moves_a_hidden_value_is_sent_as_a_snapshot() -> None:
    store = StateStore({"_b": 1}, hidden)
    assert store.apply_patch([{"op": "copy", "from": "/_b", "path": "/a"}]) == snapshot({"a": 1})


@pytest.mark.parametrize("path", ["/nowhere/b", ""])
def test_a_patch_that_does_not_apply_changes_nothing(path: str) -> None:
    store = StateStore({"a": 1})
    with pytest.raises(PatchConflict):
        store.apply_patch([{"op": "replace", "path": "/a", "value": 2}, {"op": "add", "path": path, "value": 3}])
    assert store.value == {"a": 1}
    assert store.snapshot_if_changed() == []


def test_a_silent_update_is_sent_with_the_next_event_or_at_the_end() -> None:
    store = StateStore({"a": 1})
    store.update_silently({"b": 2})
    assert store.snapshot_if_changed() == snapshot({"a": 1, "b": 2})
    store.update_silently({"b": 3})
    assert store.update_with_patch({"b": 3, "c": 4}) == snapshot({"a": 1, "b": 3, "c": 4})
    assert store.snapshot_if_changed() == []


def test_a_value_changed_in_place_is_seen_as_a_change() -> None:
    mine: dict[str, list[int]] = {"a": [1]}
    store = StateStore(mine)
    mine["a"].append(2)
    assert store.update_with_snapshot(mine) == snapshot({"a": [1, 2]})
    mine["a"].append(3)
    assert store.value == {"a": [1, 2]}


def test_what_json_cannot_hold_becomes_something_it_can_and_says_nothing_of_itself() -> None:
    class Client:
        def __repr__(self) -> str:
            return "token=hunter2"

    (event,) = StateStore().update_with_snapshot({"a": Client(), "b": {1, 2}, "c": float("nan"), "d": b"\xff", 5: (1,)})  # type: ignore[dict-item]
    assert isinstance(event, StateSnapshot)
    assert event.snapshot == {"a": "<Client>", "b": [1, 2], "c": None, "d": "_w==", "5": [1]}
    encode_event(event)


@pytest.mark.parametrize("initial", [None, [], "x", 3])
def test_a_state_that_is_no_object_begins_empty(initial: Any) -> None:
    store = StateStore(initial)
    assert store.value == {}
    assert store.snapshot() == StateSnapshot(snapshot={})


LONG = "x" * MAX_EVENT_BYTES


def followed(client: SharedState, events: list[Event]) -> list[str]:
    """What a client gets through a server that passes on what is not too large; the names of what it is told besides."""
    others: list[str] = []
    for event in events:
        if isinstance(event, StateDelta | StateSnapshot):
            assert len(encode_event(event)) <= MAX_EVENT_BYTES
            client.apply(event)
        else:
            others.append(event.name if isinstance(event, Custom) else "?")
    assert client.failed_count == 0
    return others


@pytest.mark.parametrize("change", [StateStore.update_with_snapshot, StateStore.update_with_patch])
@pytest.mark.parametrize("before", [{}, {"doc": "old", "n": 0}], ids=["new", "known"])
def test_a_key_too_large_for_an_event_is_omitted_alone(change: Any, before: dict[str, Any]) -> None:
    store, client = StateStore(before), SharedState(dict(before))
    assert followed(client, change(store, {"doc": LONG, "n": 1})) == ["ambient:dropped"]
    assert (client.value, store.value["doc"]) == ({"n": 1}, LONG)
    assert followed(client, change(store, {"n": 2})) == []
    assert client.value == {"n": 2}
    assert followed(client, change(store, {"doc": "small", "n": 3})) == []
    assert client.value == {"doc": "small", "n": 3}
    assert store.snapshot_if_changed() == []


def test_a_key_that_a_patch_makes_too_large_is_taken_from_clients() -> None:
    store, client = StateStore({"doc": ["a"], "n": 0}), SharedState({"doc": ["a"], "n": 0})
    patch = [{"op": "add", "path": "/doc/-", "value": LONG}, {"op": "replace", "path": "/n", "value": 1}]
    assert followed(client, store.apply_patch(patch)) == ["ambient:dropped"]
    assert client.value == {"n": 1}
    assert followed(client, store.apply_patch([{"op": "remove", "path": "/doc/1"}])) == []
    assert client.value == {"doc": ["a"], "n": 1}


@pytest.mark.parametrize("change", [StateStore.update_with_snapshot, StateStore.update_with_patch])
def test_of_keys_that_are_too_large_together_the_largest_are_left_out(change: Any) -> None:
    third, half = "x" * (MAX_EVENT_BYTES // 3), "x" * (MAX_EVENT_BYTES // 2)
    store, client = StateStore({"a": 1, "b": third}), SharedState({"a": 1, "b": third})
    assert followed(client, change(store, {"c": half, "d": half, "a": 2})) == ["ambient:dropped"]
    assert client.value == {"a": 2, "b": third, "d": half}
    assert followed(client, store.apply_patch([{"op": "remove", "path": "/d"}])) == []
    assert (client.value, store.snapshot_if_changed()) == ({"a": 2, "b": third, "c": half}, [])


def test_a_state_that_is_replaced_as_a_whole_is_measured_anew() -> None:
    store, client = StateStore(), SharedState({})
    followed(client, store.update_with_snapshot({"doc": LONG, "n": 1}))
    assert followed(client, store.apply_patch([{"op": "replace", "path": "", "value": {"doc": "small"}}])) == []
    assert followed(client, store.apply_patch([{"op": "replace", "path": "", "value": {"m": LONG[:-9000]}}])) == []
    assert client.value == {"m": LONG[:-9000]}


@pytest.mark.parametrize("odd", ["\ud800", 10**30], ids=["lone surrogate", "large integer"])
def test_values_that_json_cannot_encode_are_sent_all_the_same(odd: Any) -> None:
    assert StateStore().update_with_snapshot({"a": odd}) == snapshot({"a": odd})


def test_a_silent_removal_is_sent_with_the_next_event() -> None:
    store = StateStore({"a": 1, "b": 2})
    store.remove_silently("b")
    store.remove_silently("c")
    assert store.snapshot_if_changed() == snapshot({"a": 1})


KEYS = st.sampled_from(["a", "b", "_c", "a/b", "m~n", "messages"])
VALUES = st.recursive(
    st.integers(0, 2) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)
POINTERS = st.sampled_from(["", "/a", "/b", "/_c", "/a~1b", "/a/0", "/a/-", "/b/a", "/_c/a"])
OPERATIONS = st.one_of(
    st.fixed_dictionaries({"op": st.sampled_from(["add", "replace", "test"]), "path": POINTERS, "value": VALUES}),
    st.fixed_dictionaries({"op": st.sampled_from(["copy", "move"]), "path": POINTERS, "from": POINTERS}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": POINTERS}),
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["update_with_snapshot", "update_with_patch", "update_silently"]), OBJECTS),
        st.tuples(st.just("apply_patch"), st.lists(OPERATIONS, max_size=3)),
    ),
    max_size=8,
)


@thorough
@given(OBJECTS, CHANGES)
def test_a_client_that_follows_the_events_has_the_visible_state(initial: dict[str, Any], changes: list[Any]) -> None:
    store = StateStore(initial, hidden)
    client = SharedState({key: item for key, item in initial.items() if not hidden(key) and key != "messages"})
    for method, argument in changes:
        before = client.value
        try:
            events = getattr(store, method)(argument) or []
        except PatchConflict:
            events = []
        for event in events:
            encode_event(event)
            client.apply(event)
        assert len(events) <= 1
        assert client.failed_count == 0
        assert not events or client.value != before
        if method != "update_silently" and events:
            assert store.snapshot_if_changed() == []
    for event in store.snapshot_if_changed():
        client.apply(event)
    assert client.value == {key: item for key, item in store.value.items() if not hidden(key) and key != "messages"}
    assert store.snapshot_if_changed() == []
