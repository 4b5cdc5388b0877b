"""Snapshots in the middle of a run: wherever they come, official clients go on with what is open and end with our messages."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import MessagesSnapshot

from .test_official_reducer import BOTH, Improviser, Turn, official, ours, plain, started


def with_snapshots(turns: list[Turn], rng: random.Random) -> bytes:
    """The thread as clients get it when its agent asks for snapshots after about every third event."""
    transcript = Transcript()
    runs: list[dict[str, Any]] = []
    for turn in turns:
        lines: list[Any] = []
        for event in (started(turn.new), *turn.events):
            transcript.apply(event)
            lines.append(plain(event))
            if rng.random() < 0.35:
                lines.append(plain(MessagesSnapshot(messages=transcript.messages())))
        snapshot = plain(MessagesSnapshot(messages=transcript.messages()))
        runs.append({"add": plain(turn.new) if turn.held else [], "events": [*lines, snapshot, plain(turn.end)]})
    return msgspec.json.encode({"runs": runs})


def test_clients_end_with_the_same_messages_however_many_snapshots_came(long: bool) -> None:
    improvisers = [Improviser(random.Random(seed)) for seed in range(500 if long else 60)]
    threads = [[one.turn() for _ in range(one.rng.randint(1, 3))] for one in improvisers]
    scripts = [with_snapshots(turns, one.rng) for turns, one in zip(threads, improvisers, strict=True)]
    assert b"".join(scripts).count(b"MESSAGES_SNAPSHOT") > 10 * len(scripts)
    for folded, turns in zip(official(scripts), threads, strict=True):
        for client in BOTH:
            assert folded[client] == ours(turns), client
