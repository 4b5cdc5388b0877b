"""Secrets of the server in what a client sends: counted and logged for operators. No answer mentions it: the client may be guessing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from ambient_runner.runs import metrics

if TYPE_CHECKING:
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["SecretSource", "report_client_secret"]

logger = logging.getLogger(__name__)

SecretSource = Literal["input", "id", "state", "feedback", "title", "upload"]


def report_client_secret(source: SecretSource, key: ThreadKey) -> None:
    """Count and log that a request of the thread's owner holds a secret of the server. The value is not logged, nor an id that holds it."""
    metrics.CLIENT_SECRETS.labels(source).inc()
    thread = "a thread whose id holds it" if source == "id" else f"thread {key.id}"
    logger.warning(
        "Owner %s of tenant %s sent a secret of this server (%s of %s). If they should not know it, revoke it; if it repeats, "
        "they may be guessing.",
        key.owner,
        key.tenant,
        source,
        thread,
    )
