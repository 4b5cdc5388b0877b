"""What git says on stderr while it clones, made into steps to show. Pure: bytes in, steps out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["CloneProgress", "OnProgress", "Phase", "ProgressReader", "silent"]

Phase = Literal["waiting", "connecting", "receiving", "resolving", "checking out", "done"]

_PHASES: dict[bytes, Phase] = {
    b"Receiving objects": "receiving",
    b"Resolving deltas": "resolving",
    b"Updating files": "checking out",
}
_STEP = re.compile(rb"(Receiving objects|Resolving deltas|Updating files): +(\d{1,3})%")
_LONGEST_LINE = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneProgress:
    """How far a clone is. `percent` is of this phase."""

    name: str
    phase: Phase
    percent: int = 0


OnProgress = Callable[[CloneProgress], Awaitable[None]]


async def silent(step: CloneProgress) -> None:
    """For those who do not want to hear."""


class ProgressReader:
    """Fed with stderr as it comes, gives the newest step."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""

    def feed(self, data: bytes) -> CloneProgress | None:
        """The newest step that is complete in what has come so far; None when there is no new one."""
        *complete, self._rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = self._rest[-_LONGEST_LINE:]
        newest: CloneProgress | None = None
        for line in complete:
            match = _STEP.match(line)
            if match:
                newest = CloneProgress(name=self._name, phase=_PHASES[match[1]], percent=min(int(match[2]), 100))
        return newest
