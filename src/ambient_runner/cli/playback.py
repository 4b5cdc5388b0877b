"""`ambient playback`: a recording as an ACP agent on stdin and stdout. `bridges/acp/recording.py` decides what it answers."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.recording import Playback, parse_recording
from ambient_runner.cli.text_format import strip_control_chars
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ambient_runner.bridges.acp.recording import PlannedMessage, RecordedMessage

__all__ = ["play_recording"]


def play_recording(path: Path, speed: float | None = None) -> None:
    """Answer a client on stdin with the messages of a recording, until stdin ends. Differences from the recording are reported on stderr.

    `speed` divides the recorded waiting times; without it there are none. Raises: ConfigError if the file is no recording.
    """
    playback = Playback(_read_recording(path), _report)
    try:
        _write(playback.start(), speed)
        for line in sys.stdin.buffer:
            _write(_receive(playback, line), speed)
    except BrokenPipeError:
        # The client has gone. Python would write what is left once more at its exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _read_recording(path: Path) -> list[RecordedMessage]:
    try:
        return parse_recording(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no recording: it is not UTF-8 text.") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from error


def _receive(playback: Playback, line: bytes) -> Iterable[PlannedMessage]:
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        _report("The client sent a line that is no JSON object.")
        return []
    return playback.receive(message)  # pyright: ignore[reportUnknownArgumentType]


def _write(planned: Iterable[PlannedMessage], speed: float | None) -> None:
    for item in planned:
        if speed is not None:
            time.sleep(item.delay / speed)
        text = item.message if isinstance(item.message, str) else json.dumps(item.message, ensure_ascii=False)
        sys.stdout.buffer.write(f"{text}\n".encode())
        sys.stdout.buffer.flush()


def _report(sentence: str) -> None:
    sys.stderr.write(f"playback: {strip_control_chars(sentence)}\n")
    sys.stderr.flush()
