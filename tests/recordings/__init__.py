"""Recorded threads: the stored entries of one run or more of each framework, and the frames that each audience gets of them.

`facts/` has what the ledger held; `frames/` what a client received as `open` and as `safe`, and what these frames fold to. A reducer in any
language can read `frames/`. `python -m tests.recordings` records them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ambient_runner.ledger.records import Batch
from ambient_runner.projections.exposure import ExposureRules
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.profiles import Profile

HERE = Path(__file__).parent
FRAMEWORKS = ("adk", "claude", "langgraph", "strands")
AUDIENCES = ("open", "safe")


def read_facts(framework: str) -> dict[str, Any]:
    """The recorded thread: `entries`, and the `literals` that the audience `safe` must not see."""
    return json.loads((HERE / "facts" / f"{framework}.json").read_text())


def read_frames(framework: str, audience: str) -> dict[str, Any]:
    """The recorded frames, and what they fold to."""
    return json.loads((HERE / "frames" / f"{framework}-{audience}.json").read_text())


def batches_of(recording: dict[str, Any]) -> list[Batch]:
    batches: list[Batch] = []
    first = 1
    for entry in recording["entries"]:
        lines = [line.encode() for line in entry["lines"]]
        batches.append(
            Batch(first=first, owner=entry["owner"], kind=entry["kind"], run=entry["run"], ts=0, lines=lines)
        )
        first += len(lines)
    return batches


def frames_of(recording: dict[str, Any], audience: str, profile: Profile = Profile.V1) -> list[dict[str, Any]]:
    """The frames that a reader of the whole thread gets."""
    framer = Framer("epoch", profile, wire_format="ndjson", exposure=None if audience == "open" else ExposureRules())
    view = ThreadView()
    sent = b""
    for batch in batches_of(recording):
        contexts: dict[int, Any] = {}
        for seq in framer.view_seqs(batch):
            view.apply(_part_of(batch, seq))
            contexts[seq] = framer.read_view(batch, seq, view)
        view.apply(batch)
        sent += framer.render(batch, contexts)
    return [json.loads(line) for line in sent.splitlines()]


def _part_of(batch: Batch, seq: int) -> Batch:
    lines = batch.lines[: seq + 1 - batch.first]
    return Batch(first=batch.first, owner=batch.owner, kind=batch.kind, run=batch.run, ts=0, lines=lines)
