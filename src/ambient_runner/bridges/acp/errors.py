"""Errors of a run of an ACP agent and the codes a client sees. No text of the agent reaches a client; the server's log has it."""

from __future__ import annotations

from ambient_runner.errors import BridgeError, BridgeUnavailable, RunnerError

__all__ = [
    "ACPAuthRequired",
    "ACPBusy",
    "ACPError",
    "ACPExited",
    "ACPNotStarted",
    "to_bridge_error",
]


class ACPError(BridgeError):
    """The agent failed. The server's log has the reason."""

    code = "acp_error"


class ACPAuthRequired(ACPError):
    """The agent is not signed in on this server. Sign it in there, or give the server a key for its model."""

    code = "acp_auth_required"


class ACPExited(ACPError):
    """The agent's process ended during its turn. Send the message again: a new process continues the conversation."""

    code = "acp_exited"


class ACPNotStarted(BridgeUnavailable):
    """The agent's process ended before it was ready. Check its command; the server's log has what it wrote."""

    is_expected = True


class ACPBusy(ACPError):
    """All processes that this server may start for the agent are in use. Try again later, or let the operator raise `processes`."""

    code = "acp_busy"
    status = 503


def to_bridge_error(error: Exception) -> RunnerError:
    """Return the error a client sees for an exception of a run; one of ours unchanged."""
    return error if isinstance(error, RunnerError) else ACPError()
