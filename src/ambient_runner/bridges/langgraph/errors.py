"""How a LangGraph run fails: the codes a client sees. Nothing of the SDK's own words goes out; the log has them."""

from __future__ import annotations

import httpx
from langgraph.errors import GraphRecursionError, is_invalid_resume

from ambient_runner.errors import BridgeError

__all__ = [
    "CheckpointerNeeded",
    "InvalidAnswer",
    "InvalidState",
    "LangGraphError",
    "NoSuchCheckpoint",
    "RecursionLimit",
    "Unreachable",
    "failure",
]


class LangGraphError(BridgeError):
    """The graph failed. The server's log has the reason."""

    code = "LANGGRAPH_ERROR"


class RecursionLimit(LangGraphError):
    """The graph took more steps than it may. Ask for less, or raise `recursion_limit`."""

    code = "RECURSION_LIMIT"


class CheckpointerNeeded(LangGraphError):
    """The graph asks a question and has no checkpointer, so nobody could go on with the answer. Compile it with one."""

    code = "CHECKPOINTER_NEEDED"


class InvalidAnswer(LangGraphError):
    """The answer is not of the form the graph asked for. Look at the `responseSchema` of the interrupt and answer again."""

    code = "INVALID_ANSWER"


class InvalidState(LangGraphError):
    """A part of the posted state is not of the type the graph keeps there. The state is as it was before; send one of that type."""

    code = "INVALID_STATE"


class NoSuchCheckpoint(LangGraphError):
    """This thread has no such checkpoint. Take a `checkpointId` from the metadata of one of its finished runs."""

    code = "NO_SUCH_CHECKPOINT"


class Unreachable(LangGraphError):
    """The LangGraph server cannot be reached or refused the run. Check its address and key; the server's log has the reason."""

    code = "LANGGRAPH_UNREACHABLE"


def failure(error: Exception) -> BridgeError:
    """What a client is told of an exception out of the SDK."""
    match error:
        case BridgeError():
            return error
        case GraphRecursionError():
            return RecursionLimit()
        case httpx.TransportError() | httpx.HTTPStatusError():
            return Unreachable()
        case _:
            return InvalidAnswer() if is_invalid_resume(error) else LangGraphError()
