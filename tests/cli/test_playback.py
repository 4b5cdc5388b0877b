"""`ambient playback`: a recording as an agent on stdin and stdout."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.cli.playback import play_recording
from ambient_runner.errors import ConfigError

RECORDING = [
    (0.0, "c2a", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}),
    (0.2, "a2c", {"jsonrpc": "2.0", "method": "_hello"}),
    (0.4, "a2c", {"jsonrpc": "2.0", "id": 1, "result": {"agentInfo": {"title": "Agënt"}}}),
]


def write_recording(path: Path) -> Path:
    path.write_text(
        "".join(json.dumps({"t": t, "dir": sender, "msg": message}) + "\n" for t, sender, message in RECORDING)
    )
    return path


class Stdin:
    """Standard input with these lines."""

    def __init__(self, *lines: bytes) -> None:
        self.buffer = io.BytesIO(b"".join(line + b"\n" for line in lines))


def play(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], path: Path, *lines: bytes, **options: Any
) -> tuple[list[Any], list[str]]:
    """Play a recording for these lines of a client. Return what it wrote to stdout, parsed, and to stderr."""
    monkeypatch.setattr(sys, "stdin", Stdin(*lines))
    play_recording(path, **options)
    out, err = capfd.readouterr()
    return [json.loads(line) for line in out.splitlines()], err.splitlines()


def test_a_client_gets_the_recorded_messages_with_its_own_ids(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = b'{"jsonrpc": "2.0", "id": "mine", "method": "initialize", "params": {"protocolVersion": 1}}'
    out, err = play(monkeypatch, capfd, write_recording(tmp_path / "a.jsonl"), asked)
    assert out == [RECORDING[1][2], {"jsonrpc": "2.0", "id": "mine", "result": {"agentInfo": {"title": "Agënt"}}}]
    assert err == []


def test_what_is_asked_otherwise_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 2}}'
    out, err = play(monkeypatch, capfd, write_recording(tmp_path / "a.jsonl"), b"not JSON", b"[]", asked)
    assert len(out) == 2
    assert err == [
        "playback: The client sent a line that is no JSON object.",
        "playback: The client sent a line that is no JSON object.",
        "playback: initialize at protocolVersion: the client sent 2, recorded was 1.",
    ]


def test_the_recorded_time_is_divided_by_the_speed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    asked = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}'
    play(monkeypatch, capfd, write_recording(tmp_path / "a.jsonl"), asked)
    assert slept == []
    play(monkeypatch, capfd, write_recording(tmp_path / "a.jsonl"), asked, speed=2.0)
    assert slept == pytest.approx([0.1, 0.1])


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("text", "bytes", "missing"):
        with pytest.raises(ConfigError, match=name):
            play_recording(tmp_path / name)
