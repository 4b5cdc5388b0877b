"""Errors of an ADK run. No text of ADK reaches a client; the server's log has it."""

from __future__ import annotations

from ambient_runner.errors import BridgeError, RunnerError

__all__ = ["to_bridge_error"]


def to_bridge_error(error: Exception) -> RunnerError:
    """Return the error a client sees for an exception of ADK."""
    return error if isinstance(error, RunnerError) else BridgeError()
