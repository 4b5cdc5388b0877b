"""Directories for sockets: private, and deleted after the death of their process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from ambient_runner.processes import socket_directory
from ambient_runner.processes.socket_directory import make_socket_directory


def test_directories_of_dead_processes_are_deleted_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    socket_directory._delete_abandoned.cache_clear()
    dead = tmp_path / "ambient-sockets-4194304-abc"
    alive = tmp_path / f"ambient-sockets-{os.getppid()}-abc"
    foreign = tmp_path / "ambient-sockets-none"
    for directory in (dead, alive, foreign):
        directory.mkdir()
    own = make_socket_directory()
    assert own.stat().st_mode & 0o777 == 0o700
    assert sorted(tmp_path.iterdir()) == sorted([alive, foreign, own])
