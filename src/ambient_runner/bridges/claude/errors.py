"""Errors of a Claude run and the codes a client sees. No text of the CLI reaches a client; the server's log has it."""

from __future__ import annotations

from ambient_runner.errors import BridgeError, RunnerError

__all__ = [
    "ClaudeAuthFailed",
    "ClaudeError",
    "ClaudeExited",
    "ClaudeLimit",
    "ClaudeRateLimited",
    "SessionLost",
    "error_for_kinds",
    "to_bridge_error",
]


class ClaudeError(BridgeError):
    """Claude failed. The server's log has the reason."""

    code = "claude_error"


class ClaudeAuthFailed(ClaudeError):
    """The model provider refused the server's credentials. Give the server a valid ANTHROPIC_API_KEY, or grant one to the run."""

    code = "claude_auth"


class ClaudeRateLimited(ClaudeError):
    """The model provider accepts no more requests at the moment. Try again in a few minutes."""

    code = "claude_rate_limit"


class ClaudeLimit(ClaudeError):
    """Claude reached the limit of turns or cost that is set for it. Ask for less, or raise the limit."""

    code = "claude_limit"


class ClaudeExited(ClaudeError):
    """The Claude process ended during its turn. Send the message again: a new process continues the conversation."""

    code = "claude_exited"


class SessionLost(ClaudeError):
    """The CLI no longer has the conversation it was asked to continue."""

    code = "claude_session_lost"


_ERRORS: dict[str, type[ClaudeError]] = {
    "authentication_failed": ClaudeAuthFailed,
    "billing_error": ClaudeAuthFailed,
    "rate_limit": ClaudeRateLimited,
    "error_max_turns": ClaudeLimit,
    "error_max_budget_usd": ClaudeLimit,
}


def to_bridge_error(error: Exception) -> RunnerError:
    """Return the error a client sees for an exception of the SDK; one of ours unchanged."""
    return error if isinstance(error, RunnerError) else ClaudeError()


def error_for_kinds(*kinds: str | None) -> ClaudeError:
    """Return the error for the first kind that has one: kinds of failed messages and results, as the SDK names them."""
    return next((_ERRORS[kind]() for kind in kinds if kind in _ERRORS), ClaudeError())
