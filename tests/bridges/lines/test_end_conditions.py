"""The file by which a command reports the end of its turn."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ambient_runner.bridges.lines.end_conditions import NotifyFile


@pytest.fixture(params=["file", "fifo"])
def notify(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifyFile]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    created = NotifyFile(request.param)
    yield created
    created.close()
    assert list(tmp_path.iterdir()) == []


def _write(notify: NotifyFile, data: bytes) -> None:
    fd = os.open(notify.path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, data)
    os.close(fd)


def test_only_its_owner_can_write_to_it(notify: NotifyFile) -> None:
    assert stat.S_IMODE(notify.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(notify.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "line", [b"done\n", b'{"type": "agent-turn-complete", "x": 1}\n', b"[1]\n", b"{}\n", b"\n\nx\n", b"\xff\n"]
)
def test_a_line_ends_the_turn(notify: NotifyFile, line: bytes) -> None:
    assert not notify.has_turn_end()
    _write(notify, line)
    assert notify.has_turn_end()
    assert notify.has_turn_end()


@pytest.mark.parametrize("line", [b"\n", b"  \n", b'{"type": "approval-requested"}\n'])
def test_a_blank_line_and_another_notification_end_nothing(notify: NotifyFile, line: bytes) -> None:
    _write(notify, line)
    assert not notify.has_turn_end()
    assert not notify.has_turn_end()
    _write(notify, b"done\n")
    assert notify.has_turn_end()


def test_a_line_without_its_end_counts_when_nothing_follows(notify: NotifyFile) -> None:
    _write(notify, b'{"type": ')
    assert not notify.has_turn_end()
    _write(notify, b'"approval-requested"}')
    assert not notify.has_turn_end()
    assert not notify.has_turn_end()
    _write(notify, b"\ndone")
    assert not notify.has_turn_end()
    assert notify.has_turn_end()


def test_a_file_that_is_replaced_counts_but_a_link_does_not(tmp_path: Path) -> None:
    notify, other = NotifyFile("file"), tmp_path / "other"
    try:
        other.write_text("done\n")
        notify.path.unlink()
        notify.path.symlink_to(other)
        assert not notify.has_turn_end()
        other.replace(notify.path)
        assert notify.has_turn_end()
    finally:
        notify.close()
