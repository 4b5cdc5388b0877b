"""Errors of an ADK run and the codes a client sees. No text of ADK reaches a client; the server's log has it."""

from __future__ import annotations

from ambient_runner.errors import BridgeError, RunnerError

__all__ = ["ADKError", "SessionConflict", "to_bridge_error"]


class ADKError(BridgeError):
    """The agent failed. The server's log has the reason."""

    code = "adk_error"


class SessionConflict(ADKError):
    """Another server wrote to the session of this thread during the run. Send the message again."""

    code = "session_conflict"


def to_bridge_error(error: Exception) -> RunnerError:
    """Return the error a client sees for an exception of ADK; one of ours unchanged."""
    if isinstance(error, RunnerError):
        return error
    # ADK's class is in a private module.
    return SessionConflict() if type(error).__name__ == "StaleSessionError" else ADKError()
