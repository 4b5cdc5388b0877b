from __future__ import annotations

import msgspec
import pytest

from ambient_runner.ledger.base import Batch
from ambient_runner.projections.frames import FEEDBACK_OWNER, REPOS_OWNER, WORKFLOW_OWNER, Framer
from ambient_runner.protocol.events import Custom, encode_event


def frames(owner: str, kind: str, body: object) -> bytes:
    fact = Batch(first=7, owner=owner, kind=kind, run="", ts=0, lines=[msgspec.json.encode(body)])
    return Framer("e", form="ndjson").render(fact, {})


@pytest.mark.parametrize(
    ("owner", "kind"),
    [(REPOS_OWNER, "repo_added"), (WORKFLOW_OWNER, "workflow_changed"), (FEEDBACK_OWNER, "feedback")],
)
def test_facts_of_the_platform_are_custom_events_of_their_kind(owner: str, kind: str) -> None:
    expected = encode_event(Custom(name=f"ambient:{kind}", value={"name": "docs"})) + b"\n"
    assert frames(owner, kind, {"name": "docs"}) == expected


def test_facts_of_an_owner_nobody_projects_are_invisible() -> None:
    assert frames("someone.else", "secret", {"a": 1}) == b""
