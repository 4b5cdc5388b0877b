"""The official clients' own schemas decide what each wire profile may hold: every event, minimal and with every field filled."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ambient_runner.protocol.events import (
    Cancelled,
    DataSource,
    Event,
    FileSource,
    ImagePart,
    MessagesSnapshot,
    RunFinished,
    Success,
    TextPart,
    ToolCallResult,
    UserMessage,
    encode_event,
    type_of,
)
from ambient_runner.protocol.profiles import Downgrader, Profile
from tests.protocol.samples import every_event

CLIENTS = Path(__file__).with_name("clients")

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed, so no official client can judge"),
    pytest.mark.skipif(
        not (CLIENTS / "node_modules").is_dir(),
        reason="run `npm install` in tests/e2e/clients for the official clients",
    ),
]


def verdicts(client: str, events: list[Event]) -> list[tuple[str, str]]:
    """What a client finds wrong, by event type; an empty string where it is content."""
    jobs = b"\n".join(b'{"client":"%b","event":%b}' % (client.encode(), encode_event(event)) for event in events)
    done = subprocess.run(["node", "schemas.mjs"], cwd=CLIENTS, input=jobs, capture_output=True, check=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [(type_of(event), answer.get("why", "")) for event, answer in zip(events, answers, strict=True)]


def content(events: list[Event]) -> list[tuple[str, str]]:
    return [(type_of(event), "") for event in events]


def test_every_event_is_valid_for_the_current_client_as_it_is_stored() -> None:
    events = every_event()
    assert verdicts("1.0", events) == content(events)


@pytest.mark.parametrize("profile", [Profile.V0_59, Profile.V0_49, Profile.V0_45, Profile.V0_42])
def test_every_downgraded_event_is_valid_for_0_0_59(profile: Profile) -> None:
    downgrader = Downgrader(profile)
    events = [sent for event in every_event() for sent in downgrader.feed(event)]
    assert verdicts("0.0.59", events) == content(events)


def test_every_downgraded_event_is_valid_for_0_0_42() -> None:
    downgrader = Downgrader(Profile.V0_42)
    events = [sent for event in every_event() for sent in downgrader.feed(event)]
    assert verdicts("0.0.42", events) == content(events)


@pytest.mark.parametrize("profile", [Profile.V0_59, Profile.V0_49])
def test_every_downgraded_event_is_still_valid_1_0(profile: Profile) -> None:
    downgrader = Downgrader(profile)
    events = [sent for event in every_event() for sent in downgrader.feed(event)]
    assert verdicts("1.0", events) == content(events)


def test_without_the_downgrade_the_old_client_would_give_up() -> None:
    """If one of these becomes valid, the downgrade has nothing left to do for it."""
    picture = ImagePart(source=DataSource(value="aGk=", mime_type="image/png"))
    events: list[Event] = [
        RunFinished(thread_id="t", run_id="r", outcome=Cancelled()),
        RunFinished(thread_id="t", run_id="r", outcome=Success(pending_tool_call_ids=["c"])),
        ToolCallResult(message_id="m", tool_call_id="c", content=[TextPart(text="x"), picture]),
        MessagesSnapshot(messages=[UserMessage(id="u", content=[ImagePart(source=FileSource(value="f"))])]),
    ]
    assert [kind for kind, why in verdicts("0.0.59", events) if why] == [type_of(event) for event in events]
