"""Each owner of facts decides what clients see of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ambient_runner.errors import ConfigError
from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.projectors import (
    CLONES_OWNER,
    FEEDBACK_OWNER,
    FILES_OWNER,
    REPOS_OWNER,
    SETUP_OWNER,
    WORKFLOW_OWNER,
    StoredFact,
    add_projector,
    built_in_owners,
    own_events_only,
    project_facts,
)
from ambient_runner.projections.thread_view import APPROVALS_OWNER, RUN_OWNER, STATE_OWNER, THREAD_OWNER
from ambient_runner.protocol.events import Custom, StateDelta, TextMessageStart


def facts(owner: str, kind: str, *values: Any) -> Batch:
    return Batch(first=3, owner=owner, kind=kind, run="", ts=9, lines=[msgspec.json.encode(value) for value in values])


def fact(owner: str) -> StoredFact:
    return StoredFact(owner=owner, kind="shipped", value={}, seq=1, ts=0)


def test_the_owners_of_the_server_have_projectors_of_their_own() -> None:
    assert built_in_owners() == {
        RUNTIME,
        STATE_OWNER,
        THREAD_OWNER,
        APPROVALS_OWNER,
        REPOS_OWNER,
        CLONES_OWNER,
        WORKFLOW_OWNER,
        FILES_OWNER,
        SETUP_OWNER,
        FEEDBACK_OWNER,
    }


@pytest.mark.parametrize("owner", sorted(built_in_owners() - {RUNTIME, STATE_OWNER, THREAD_OWNER, APPROVALS_OWNER}))
def test_a_fact_of_the_platform_is_a_custom_event_of_its_kind(owner: str) -> None:
    assert project_facts(facts(owner, "done", {"a": 1})) == [[Custom(name="ambient:done", value={"a": 1}, timestamp=9)]]


@pytest.mark.parametrize("owner", [APPROVALS_OWNER, THREAD_OWNER])
def test_cancelled_interrupts_are_sent_and_a_rewind_is_not(owner: str) -> None:
    value = {"interruptIds": ["i"]}
    assert project_facts(facts(owner, "interrupts_cancelled", value)) == [
        [Custom(name="ambient:interrupts_cancelled", value=value, timestamp=9)]
    ]
    assert project_facts(facts(owner, "rewound", {"to": "m"})) == [[]]


def test_a_patch_of_the_state_is_a_state_delta() -> None:
    patch = [{"op": "add", "path": "/a", "value": 1}]
    assert project_facts(facts(STATE_OWNER, "patched", {"patch": patch})) == [[StateDelta(delta=patch, timestamp=9)]]


def test_an_event_with_a_time_of_its_own_keeps_it() -> None:
    add_projector("clock.shop", lambda fact: [Custom(name="rang", value=1, timestamp=3), Custom(name="rang", value=2)])
    assert project_facts(facts("clock.shop", "rang", {})) == [
        [Custom(name="rang", value=1, timestamp=3), Custom(name="rang", value=2, timestamp=9)]
    ]


@pytest.mark.parametrize("owner", [RUN_OWNER, "nobody.here"])
def test_an_owner_without_a_projector_sends_nothing(owner: str) -> None:
    assert project_facts(facts(owner, "input", {"input": {}})) == []


@pytest.mark.parametrize("owner", [*sorted(built_in_owners()), "ambient", "ambient.own"])
def test_a_product_cannot_replace_a_projector_of_the_server(owner: str) -> None:
    with pytest.raises(ConfigError):
        add_projector(owner, lambda fact: [])


@pytest.mark.parametrize("owner", ["", "Shop", "shop orders", "shop..orders", ".shop", "x" * 65])
def test_an_owner_has_a_plain_name(owner: str) -> None:
    with pytest.raises(ConfigError):
        add_projector(owner, lambda fact: [])


def test_an_owner_has_one_projector() -> None:
    add_projector("twice.registered", lambda fact: [])
    with pytest.raises(ConfigError):
        add_projector("twice.registered", lambda fact: [])


def test_a_projector_refuses_a_fact_of_another_owner() -> None:
    project = own_events_only("shop", lambda fact: [Custom(name="x", value=1)])
    assert list(project(fact("shop"))) == [Custom(name="x", value=1)]
    with pytest.raises(ValueError, match="other"):
        project(fact("other"))


@pytest.mark.parametrize(
    "event",
    [
        TextMessageStart(message_id="m"),
        Custom(name="ambient:gap", value={}),
        Custom(name=" AMBIENT:gap", value={}),
        {"type": "CUSTOM", "name": "x", "value": 1},
        None,
    ],
)
def test_a_product_sends_custom_events_under_its_own_names_only(event: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="shop"):
        own_events_only("shop", lambda fact: [event])(fact("shop"))
