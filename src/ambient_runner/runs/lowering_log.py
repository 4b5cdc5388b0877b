"""Report of what lowering leaves out of inputs: counted, and logged for the authors of agents and clients."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ambient_runner.runs import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.runs.lowering import LeftOut

__all__ = ["LeftOutReporter"]

_MAX_LOGGED_NAMES = 100
"""Names per agent that are logged: clients choose them."""

logger = logging.getLogger(__name__)


class LeftOutReporter:
    """Counts what is left out of inputs, and logs each name once per agent, so that an author finds out why it did not arrive."""

    def __init__(self) -> None:
        self._logged: dict[str, set[str]] = {}

    def report(self, agent: str, left_out: Iterable[LeftOut]) -> None:
        logged = self._logged.setdefault(agent, set())
        for item in left_out:
            metrics.INPUT_LEFT_OUT.labels(item.kind).inc()
            if item.path not in logged and len(logged) < _MAX_LOGGED_NAMES:
                logged.add(item.path)
                _log_left_out(agent, item)


def _log_left_out(agent: str, item: LeftOut) -> None:
    if item.setting:
        logger.warning(
            "Agent %s: %s of a client does not reach the agent. The agent's setting `%s` lets it pass.",
            agent,
            item.path,
            item.setting,
        )
    else:
        logger.info("Agent %s: %s was left out. A client cannot set it.", agent, item.path)
