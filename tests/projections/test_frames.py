from __future__ import annotations

import msgspec
import pytest

from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.projectors import FEEDBACK_OWNER, REPOS_OWNER, WORKFLOW_OWNER
from ambient_runner.protocol.events import (
    Custom,
    StepStarted,
    TextMessageContent,
    TextMessageStart,
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
