"""Report of what lowering leaves out of inputs: counted, and logged for the authors of agents and clients."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from ambient_runner.runs import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ambient_runner.runs.lowering import LeftOut

__all__ = ["LeftOutReporter"]

_MAX_LOGGED_NAMES = 100
"""Names per agent that are logged: clients choose them."""
_MAX_INSPECTED_PARTS = 1_000
"""Parts of one input that are searched for names to log: a client can send 100,000 of them."""
_MAX_PATH_LENGTH = 160
"""Characters of a path that are logged."""

logger = logging.getLogger(__name__)


class LeftOutReporter:
    """Counts what is left out of inputs, and logs the first names of each agent once: its author finds out why they did not arrive."""

    def __init__(self) -> None:
        self._logged: dict[str, set[str]] = {}

    def report(self, agent: str, left_out: Sequence[LeftOut], redact_text: Callable[[str], str]) -> None:
        """Count and log these parts of one input. Clients choose the names, so secrets are redacted in them."""
        for kind, times in Counter(item.kind for item in left_out).items():
            metrics.INPUT_LEFT_OUT.labels(kind).inc(times)
        logged = self._logged.setdefault(agent, set())
        by_path = {item.path: item for item in left_out[:_MAX_INSPECTED_PARTS]}
        for item in islice(by_path.values(), _MAX_LOGGED_NAMES):
            path = _printable(redact_text(item.path))
            if path not in logged and len(logged) < _MAX_LOGGED_NAMES:
                logged.add(path)
                _log_left_out(agent, item, path)


def _printable(path: str) -> str:
    """Return a client's names on one line of the log."""
    return ascii(path[:_MAX_PATH_LENGTH])[1:-1]


def _log_left_out(agent: str, item: LeftOut, path: str) -> None:
    if item.setting:
        logger.warning(
            "Agent %s: %s of a client does not reach the agent. The agent's setting `%s` lets it pass.",
            agent,
            path,
            item.setting,
        )
    else:
        logger.info("Agent %s: %s was left out. A client cannot set it.", agent, path)
