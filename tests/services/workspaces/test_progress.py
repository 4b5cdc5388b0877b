"""How far a clone is, read from what git says."""

from __future__ import annotations

import sys

from ambient_runner.services.workspaces.clone import CloneProgress, ProgressParser


def step(phase: str, percent: int) -> CloneProgress:
    return CloneProgress(name="app", phase=phase, percent=percent)  # type: ignore[arg-type]


def test_steps_are_read_however_the_bytes_are_cut() -> None:
    output = b"Cloning into 'x'...\nremote: Counting: 100%\rReceiving objects:   7% (1/14)\rReceiving objects: 100% (14/14), 2 KiB\n"
    for cut in range(len(output)):
        reader = ProgressParser("app")
        found = [reader.feed(output[:cut]), reader.feed(output[cut:])]
        assert found[1] == step("receiving", 100)
        assert found[0] in (None, step("receiving", 7))


def test_each_phase_has_its_own_name() -> None:
    reader = ProgressParser("app")
    assert reader.feed(b"Receiving objects:  50% (1/2)\r") == step("receiving", 50)
    assert reader.feed(b"Resolving deltas:  10% (1/10)\r") == step("resolving", 10)
    assert reader.feed(b"Updating files:  99% (99/100)\r") == step("checking out", 99)


def test_output_of_the_remote_is_not_progress() -> None:
    reader = ProgressParser("app")
    assert reader.feed(b"remote: Receiving objects: 99% (1/1)\rReceiving objects: 12345% (1/1)\n") is None


def test_a_line_without_end_does_not_grow_the_reader() -> None:
    reader = ProgressParser("app")
    for _ in range(100):
        assert reader.feed(b"x" * 10_000) is None
    assert sys.getsizeof(reader._rest) < 10_000
