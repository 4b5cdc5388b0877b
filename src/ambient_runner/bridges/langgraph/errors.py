"""Errors of a LangGraph run and the codes a client sees. No text of the SDK reaches a client; the server's log has it."""

from __future__ import annotations

import httpx
from langgraph.errors import GraphRecursionError

from ambient_runner.bridges.langgraph.sdk import is_invalid_resume
from ambient_runner.errors import BridgeError, RunnerError

__all__ = [
    "CheckpointerRequired",
    "InvalidAnswer",
    "InvalidState",
    "LangGraphError",
    "RecursionLimit",
    "UnknownCheckpoint",
    "Unreachable",
    "to_bridge_error",
]


class LangGraphError(BridgeError):
    """The graph failed. The server's log has the reason."""

    code = "langgraph_error"


class RecursionLimit(LangGraphError):
    """The graph took more steps than allowed. Ask for less, or raise `recursion_limit`."""

    code = "recursion_limit"


class CheckpointerRequired(LangGraphError):
    """The graph raised an interrupt but has no checkpointer, so it could not continue with the answer. Compile it with one."""

    code = "checkpointer_needed"


class InvalidAnswer(LangGraphError):
    """The answer does not fit the interrupt, which is still open. Send what its `responseSchema` says, as in `{"approved": true}`."""

    code = "invalid_answer"


class InvalidState(LangGraphError):
    """A value of the client's state has another type than the graph's. The state is unchanged; send a value of that type."""

    code = "invalid_state"


class UnknownCheckpoint(LangGraphError):
    """This thread has no such checkpoint. Take a `checkpointId` from the metadata of one of its finished runs."""

    code = "unknown_checkpoint"


class Unreachable(LangGraphError):
    """The LangGraph server cannot be reached or refused the run. Check its address and key; the server's log has the reason."""

    code = "langgraph_unreachable"


def to_bridge_error(error: Exception) -> RunnerError:
    """Return the error a client sees for an exception of the SDK; one of ours unchanged."""
    match error:
        case RunnerError():
            return error
        case GraphRecursionError():
            return RecursionLimit()
        case httpx.TransportError() | httpx.HTTPStatusError():
            return Unreachable()
        case _:
            return InvalidAnswer() if is_invalid_resume(error) else LangGraphError()
