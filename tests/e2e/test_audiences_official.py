"""The official clients decide whether both audiences are valid: recorded runs of four frameworks, and what our grammar lets through."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ambient_runner.projections.exposure import ExposureRules
from ambient_runner.projections.known_calls import KnownCall
from ambient_runner.projections.safe import project_safe
from ambient_runner.protocol.events import Event
from ambient_runner.protocol.profiles import Profile, profile_for_version
from ambient_runner.protocol.repair import Repairer
from tests.protocol.samples import every_event
from tests.protocol.strategies import RUN, THREAD
from tests.recordings import AUDIENCES, FRAMEWORKS, frames_of, read_facts

from .test_official_verifier import CLIENTS, STARTED, _objections, _repaired, conversations, objections, pytestmark
from .test_profiles_official import content, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["pytestmark"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
SAFE = ExposureRules()
CONTRACT = dict(re.findall(r"^\| `([\d.]+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE))
"""The pinned client versions, each with its profile."""


def package_of(version: str) -> str:
    return "ag-ui-client-1.0" if version == "1.0.0" else f"ag-ui-client-{version}"


def profile_of(version: str) -> Profile:
    return profile_for_version(version)


def find_call(call_id: str) -> KnownCall:
    return KnownCall("search", '{"query": "x"}', is_client=call_id.endswith("1"))


def safe(events: Iterable[Event]) -> list[Event]:
    return [shown for event in events for shown in project_safe(event, SAFE, find_call)]


def runs_of(framework: str, audience: str, profile: Profile) -> list[list[Event]]:
    """The recorded runs as separate streams."""
    streams: list[list[Any]] = []
    for frame in frames_of(read_facts(framework), audience, profile):
        if frame["type"] == "RUN_STARTED":
            streams.append([])
        streams[-1].append(frame)
    return streams


def test_the_contract_names_the_pinned_packages_and_their_profiles() -> None:
    pinned = msgspec.json.decode((CLIENTS / "package.json").read_bytes())["dependencies"]
    versions = {value.rpartition("@")[2] for name, value in pinned.items() if name.startswith("ag-ui-client-")}
    assert set(CONTRACT) == versions == {"1.0.0", "0.0.59", "0.0.57", "0.0.55", "0.0.42"}
    for version, profile in CONTRACT.items():
        assert profile == ("as stored" if profile_of(version) is Profile.V1 else f"`{profile_of(version).value}`")


@pytest.mark.parametrize("audience", AUDIENCES)
@pytest.mark.parametrize("version", CONTRACT)
def test_every_client_accepts_recorded_runs_of_every_framework(version: str, audience: str) -> None:
    streams = [run for name in FRAMEWORKS for run in runs_of(name, audience, profile_of(version))]
    assert len(streams) == 2 * len(FRAMEWORKS)
    assert _objections(package_of(version), streams) == []


def test_every_event_of_the_audience_safe_is_valid_for_the_current_client() -> None:
    events = safe(every_event())
    assert verdicts("1.0", events) == content(events)


def test_both_clients_accept_what_the_audience_safe_gets_of_repaired_runs_also_resumed_in_their_middle() -> None:
    streams: list[list[Event]] = []
    for events, terminal in conversations():
        stored = _repaired(Repairer(THREAD, RUN), [STARTED, *events, terminal])
        reader = Repairer(THREAD, RUN)
        middle = len(stored) // 2
        _repaired(reader, stored[:middle])
        streams.append(safe(stored))
        streams.append(safe([STARTED, *reader.reopening_events(), *stored[max(middle, 1) :]]))
    assert objections(streams) == []
