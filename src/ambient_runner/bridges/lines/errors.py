"""Errors of a run of a command and the codes a client sees. No error text of the command reaches a client; the server's log has it."""

from __future__ import annotations

from ambient_runner.errors import BridgeError, RunnerError

__all__ = ["LinesBusy", "LinesFailed", "to_bridge_error"]


class LinesFailed(BridgeError):
    """The agent's command failed. The server's log has the reason."""

    code = "lines_failed"


class LinesBusy(BridgeError):
    """All processes that this server may start for the agent are in use. Try again later, or let the operator raise `processes`."""

    code = "lines_busy"
    status = 503


def to_bridge_error(error: Exception) -> RunnerError:
    """Return the error a client sees for an exception of a run; one of ours unchanged."""
    return error if isinstance(error, RunnerError) else LinesFailed()
