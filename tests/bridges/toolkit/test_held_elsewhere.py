"""The server process in which an agent waits."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from ambient_runner.bridges.toolkit import held_elsewhere
from ambient_runner.bridges.toolkit.held_elsewhere import holder_record, is_held_elsewhere
from ambient_runner.ledger.process_identity import Process, this_process

HERE = this_process()
NEIGHBOUR = dataclasses.replace(HERE, pid=os.getppid(), started="")


def recorded_by(process: Process) -> dict[str, Any]:
    """Return the memory of a thread as it is stored: other releases read it too."""
    holder = {
        "pid": process.pid,
        "started": process.started,
        "boot": process.boot,
        "space": process.pid_namespace,
    }
    return {"mine": 1, "holder": holder}


def test_what_this_process_holds_is_not_held_elsewhere() -> None:
    assert {"mine": 1, **holder_record()} == recorded_by(HERE)
    assert not is_held_elsewhere(recorded_by(HERE))


def test_what_another_process_holds_is_held_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    record = holder_record()
    monkeypatch.setattr(held_elsewhere, "this_process", lambda: NEIGHBOUR)
    assert is_held_elsewhere(record)


def test_what_a_process_held_that_has_ended_is_not() -> None:
    assert not is_held_elsewhere(recorded_by(dataclasses.replace(HERE, started="0")))


@pytest.mark.parametrize("memory", [None, [], {}, {"holder": None}, {"holder": {"pid": "1"}}, {"holder": {"pid": 1}}])
def test_a_memory_without_a_holder_is_held_nowhere(memory: Any) -> None:
    assert not is_held_elsewhere(memory)
