"""Errors of a Strands run and the codes a client sees. No text of the SDK reaches a client; the server's log has it."""

from __future__ import annotations

from strands.types.exceptions import MaxTokensReachedException

from ambient_runner.errors import BridgeError, RunnerError

__all__ = [
    "EncodingFailed",
    "InterruptLost",
    "MaxTokens",
    "StrandsError",
    "StrandsForceStop",
    "ToolSelectionFailed",
    "to_bridge_error",
]


class StrandsError(BridgeError):
    """The agent failed. The server's log has the reason."""

    code = "STRANDS_ERROR"


class StrandsForceStop(StrandsError):
    """The agent could not continue, because its model or its loop failed. The server's log has the reason."""

    code = "strands_force_stop"


class MaxTokens(StrandsError):
    """The answer exceeded the model's token limit. Ask for a shorter answer, or raise the limit."""

    code = "max_tokens"


class EncodingFailed(StrandsError):
    """A hook returned a value that is not JSON, so it cannot be sent."""

    code = "ENCODING_ERROR"


class ToolSelectionFailed(StrandsError):
    """The tools for this run could not be selected. The server's log has the reason."""

    code = "template_tools_provider_error"


class InterruptLost(StrandsError):
    """The agent no longer has the interrupt that this request answers. Send a new message."""

    code = "interrupt_lost"


def to_bridge_error(error: Exception, *, force_stopped: bool) -> RunnerError:
    """Return the error a client sees for an exception of the SDK; one of ours unchanged."""
    if isinstance(error, RunnerError):
        return error
    if isinstance(error, MaxTokensReachedException):
        return MaxTokens()
    return StrandsForceStop() if force_stopped else StrandsError()
