"""Run an ACP agent and record what it and its client send each other: `python -I recorder.py DIRECTORY HIDDEN COMMAND [ARGUMENT]…`.

Every process writes a file of its own into the directory, numbered in the order of their start. HIDDEN is the name of a session capability
that the client does not get to see, such as `resume`; `-` hides none. A program by itself: the standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO


class Journal:
    """The file of one process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / f"{time.time_ns()}.jsonl").open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def add(self, sender: str, message: Any) -> None:
        entry = {"t": round(time.monotonic() - self._began, 3), "dir": sender, "msg": message}
        with self._lock:
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            self._file.flush()


def _copy_lines(journal: Journal, sender: str, source: BinaryIO, target: BinaryIO, hidden: str = "-") -> None:
    for line in source:
        try:
            message = json.loads(line)
        except ValueError:
            journal.add(sender, line.decode(errors="replace").rstrip("\n"))
            target.write(line)
        else:
            _hide_capability(message, hidden)
            journal.add(sender, message)
            target.write(json.dumps(message).encode() + b"\n")
        target.flush()


def _hide_capability(message: Any, name: str) -> None:
    match message:
        case {"result": {"agentCapabilities": {"sessionCapabilities": dict() as capabilities}}}:
            capabilities.pop(name, None)


def main() -> None:
    journal = Journal(Path(sys.argv[1]))
    process = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    output = (journal, "a2c", process.stdout, sys.stdout.buffer, sys.argv[2])
    reader = threading.Thread(target=_copy_lines, args=output, daemon=True)
    reader.start()
    _copy_lines(journal, "c2a", sys.stdin.buffer, process.stdin)
    process.stdin.close()
    reader.join(5)
    process.kill()
    os._exit(process.wait())


if __name__ == "__main__":
    main()
