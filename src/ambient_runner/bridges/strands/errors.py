"""How a Strands run fails: the codes a client sees. Nothing of the SDK's own words goes out; the log has them."""

from __future__ import annotations

from strands.types.exceptions import MaxTokensReachedException

from ambient_runner.errors import BridgeError

__all__ = [
    "EncodingFailed",
    "InterruptLost",
    "MaxTokens",
    "StrandsError",
    "StrandsForceStop",
    "ThreadIsBusy",
    "failure",
]


class StrandsError(BridgeError):
    """The agent failed. The server's log has the reason."""

    code = "STRANDS_ERROR"


class StrandsForceStop(StrandsError):
    """The agent could not go on: its model or its loop failed. The server's log has the reason."""

    code = "STRANDS_FORCE_STOP"


class MaxTokens(StrandsError):
    """The answer became longer than the model may write. Ask for less, or allow more tokens."""

    code = "MAX_TOKENS"


class EncodingFailed(StrandsError):
    """A hook gave something that is not JSON, so it cannot be sent."""

    code = "ENCODING_ERROR"


class InterruptLost(StrandsError):
    """What the agent was asked about is no longer known. Ask again with a new message."""

    code = "INTERRUPT_LOST"


class ThreadIsBusy(StrandsError):
    """This thread already has a run. Wait for it to end."""

    code = "THREAD_BUSY"


def failure(error: Exception, *, force_stopped: bool) -> BridgeError:
    """What a client is told of an exception out of the SDK."""
    if isinstance(error, BridgeError):
        return error
    if isinstance(error, MaxTokensReachedException):
        return MaxTokens()
    return StrandsForceStop() if force_stopped else StrandsError()
