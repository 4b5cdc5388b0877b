"""Errors of an ADK run and the codes a client sees. No text of ADK reaches a client; the server's log has it."""

from __future__ import annotations

from ambient_runner.errors import BridgeError, RunnerError

__all__ = ["ADKError", "to_bridge_error"]


class ADKError(BridgeError):
    """The agent failed. The server's log has the reason."""

    code = "adk_error"


def to_bridge_error(error: Exception) -> RunnerError:
    """Return the error a client sees for an exception of ADK; one of ours unchanged."""
    return error if isinstance(error, RunnerError) else ADKError()
