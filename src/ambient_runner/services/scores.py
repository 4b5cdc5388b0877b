"""Scores: how feedback reaches Langfuse. One small request each, off the loop, with a bounded wait."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import to_thread

from ambient_runner.services.http import send

if TYPE_CHECKING:
    from ambient_runner.config import LangfuseSettings

__all__ = ["LangfuseScores", "Score", "Scores"]

logger = logging.getLogger(__name__)

TIMEOUT = 5.0
_AT_ONCE = 4
_PATH = "/api/public/scores"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Whether someone liked a run. The same `id` again replaces the score."""

    id: str
    trace_id: str
    value: bool
    comment: str = field(default="", repr=False)
    metadata: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)


class Scores(Protocol):
    """A place that keeps scores."""

    async def send(self, score: Score) -> bool:
        """Whether the score has arrived. It does not raise, and it takes a few seconds at most."""
        ...


class LangfuseScores:
    """The scores of a Langfuse project."""

    def __init__(self, settings: LangfuseSettings, *, timeout: float = TIMEOUT) -> None:
        self._settings = settings
        self._timeout = timeout
        self._threads = anyio.CapacityLimiter(_AT_ONCE)

    async def send(self, score: Score) -> bool:
        status = 0
        with anyio.move_on_after(self._timeout):
            status = await to_thread.run_sync(self._post, score, abandon_on_cancel=True, limiter=self._threads)
        if 200 <= status < 300:
            return True
        logger.warning("Langfuse did not take a score: %s", f"status {status}" if status else "it cannot be reached")
        return False

    def _post(self, score: Score) -> int:
        """The status of the answer; 0 without one."""
        headers = {"Authorization": self._settings.authorization, "Content-Type": "application/json"}
        body = json.dumps(self._body(score))
        try:
            return send(
                "POST", f"{self._settings.url}{_PATH}", headers=headers, body=body, timeout=self._timeout
            ).status
        except OSError:
            return 0

    def _body(self, score: Score) -> dict[str, Any]:
        body = {
            "id": score.id,
            "traceId": score.trace_id,
            "name": "user-feedback",
            "value": int(score.value),
            "dataType": "BOOLEAN",
            "comment": score.comment,
            "metadata": score.metadata,
            "environment": self._settings.stage,
        }
        return {name: value for name, value in body.items() if value not in ("", {})}
