"""How a Claude run fails: the codes a client sees. Nothing of the CLI's own words goes out; the log has them."""

from __future__ import annotations

from ambient_runner.errors import BridgeError

__all__ = [
    "ClaudeAuth",
    "ClaudeBusy",
    "ClaudeError",
    "ClaudeGone",
    "ClaudeLimit",
    "SessionLost",
    "failure",
    "refusal",
]


class ClaudeError(BridgeError):
    """Claude could not go on. The server's log has the reason."""

    code = "CLAUDE_ERROR"


class ClaudeAuth(ClaudeError):
    """The model provider refused the server's credentials. Give the server a valid ANTHROPIC_API_KEY, or grant one to the run."""

    code = "CLAUDE_AUTH"


class ClaudeBusy(ClaudeError):
    """The model provider takes no more requests at the moment. Try again in a few minutes."""

    code = "CLAUDE_RATE_LIMIT"


class ClaudeLimit(ClaudeError):
    """Claude reached the limit of turns or cost that is set for it. Ask for less, or raise the limit."""

    code = "CLAUDE_LIMIT"


class ClaudeGone(ClaudeError):
    """The Claude process ended in the middle of its work. Send the message again: a new process goes on with the conversation."""

    code = "CLAUDE_EXITED"


class SessionLost(ClaudeError):
    """The CLI no longer has the conversation it was asked to go on with."""

    code = "CLAUDE_SESSION_LOST"


_KINDS: dict[str, type[ClaudeError]] = {
    "authentication_failed": ClaudeAuth,
    "billing_error": ClaudeAuth,
    "rate_limit": ClaudeBusy,
    "error_max_turns": ClaudeLimit,
    "error_max_budget_usd": ClaudeLimit,
}


def failure(error: Exception) -> BridgeError:
    """What a client is told of an exception out of the SDK."""
    return error if isinstance(error, BridgeError) else ClaudeError()


def refusal(*kinds: str | None) -> ClaudeError:
    """The error for the first kind that has one of its own: kinds of failed messages and results, as the SDK names them."""
    return next((_KINDS[kind]() for kind in kinds if kind in _KINDS), ClaudeError())
