"""Every error this package raises on purpose.

RunnerError                     code, status; the message defaults to the docstring
├── Refused            4xx      nothing was started
│   ├── InvalidCursor / InvalidPatch / InvalidFeedback / InvalidMethod / MalformedRequest 400 · Unauthorized 401
│   ├── Forbidden / FileWithheld / AudienceNotOpen 403
│   ├── UnknownAgent / UnknownThread / UnknownRun / UnknownMessage / UnknownRepo / UnknownFile 404
│   ├── RequestTimedOut 408
│   ├── RepoConflict / ThreadBusy / ThreadExists / PendingInterrupts / InterruptNotOpen / NoActiveRun / AgentMismatch 409
│   ├── IdempotencyConflict / HeldElsewhere / ArgumentsChanged / ArgumentsWithheld / PatchConflict / StaleCursor (EntriesDropped) 409
│   ├── RunGone 410 · PayloadTooLarge 413 · UnsupportedMediaType 415 · InvalidInput 422 (CredentialsInUrl) · HeadersTooLarge 431
│   └── AgentLoop 508           a gateway leads back to itself
├── BridgeError        502      the framework failed; becomes RUN_ERROR
│   ├── BridgeUnavailable 503   a package or binary is missing; says how to get it
│   ├── BridgeTimeout 504
│   ├── NoUserMessage           an adapter without a server got no new input
│   └── ProtocolViolation       the bridge sent events that cannot be repaired
├── LedgerError        503
│   └── LeaseLost / ThreadDamaged / StoreUnusable
├── ServiceError       502      git, MCP, credentials or the workspace failed
│   └── CredentialsError · RepoAuthRequired / RepoNotFound / RepoRedirected / RepoTooLarge · GitUnavailable 503 · CloneTimeout 504
├── RedactionFailed             an event cannot be searched for secrets, so it is not written; ends the run
├── Draining           503      the server is shutting down
└── ConfigError                 at start-up only; the CLI prints it and exits 2
RunInterrupted                  not an error: the run ends with open interrupts

The docstring is the default message that users read, so it says what to do next.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from ambient_runner.protocol.events import Interrupt


class RunnerError(Exception):
    """The runner could not do this. The server's log has the reason."""

    code: str = "internal_error"
    status: ClassVar[int] = 500
    is_expected: ClassVar[bool] = False
    """True for failures of everyday operation: the log has their cause in one line, without a traceback."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.getdoc(type(self)))

    @property
    def message(self) -> str:
        return str(self.args[0])


class Refused(RunnerError):
    """The request was refused and nothing was started."""

    code = "refused"
    status = 400


class InvalidCursor(Refused):
    """The cursor is not one of ours. Send back the `id` of the last event you received, or leave it out to start at the beginning."""

    code = "invalid_cursor"


class InvalidPatch(Refused):
    """The patch is not a valid RFC 6902 JSON Patch. Send an array of operations, each with `op` and `path`."""

    code = "invalid_patch"


class InvalidFeedback(Refused):
    """This is not feedback. Send `type` `META` and `metaType` `thumbs_up` or `thumbs_down`."""

    code = "invalid_feedback"


class InvalidMethod(Refused):
    """This is not a request of CopilotKit's single route. Send `method`, `params` and `body`, as its client does."""

    code = "invalid_method"


class Unauthorized(Refused):
    """You are not signed in. Send the credentials this server expects."""

    code = "unauthorized"
    status = 401


class Forbidden(Refused):
    """This request is not allowed from here."""

    code = "forbidden"
    status = 403


class FileWithheld(Refused):
    """This file holds a value that the server keeps secret, so it is not sent. Let the agent write the file without it."""

    code = "file_withheld"
    status = 403


class AudienceNotOpen(Refused):
    """This server shows only the safe part of its runs, and a gateway needs all of them. Set `audience = "open"` for the agent here."""

    code = "audience_not_open"
    status = 403


class UnknownAgent(Refused):
    """There is no agent of that name. `GET /capabilities` lists the agents of this server."""

    code = "unknown_agent"
    status = 404


class UnknownThread(Refused):
    """There is no such thread. `GET /thread/list` lists yours."""

    code = "unknown_thread"
    status = 404


class UnknownRun(Refused):
    """This thread has no such run. `GET /threads/{id}/runs` lists its runs."""

    code = "unknown_run"
    status = 404


class UnknownMessage(Refused):
    """This thread has no such message. `GET /message_snapshot/{id}` lists its messages."""

    code = "unknown_message"
    status = 404


class UnknownRepo(Refused):
    """There is no repository of that name in this workspace. `GET /repos/status` lists them."""

    code = "unknown_repo"
    status = 404


class UnknownFile(Refused):
    """There is no such file in this workspace. `GET /files` lists what was uploaded, `GET /artifacts` what the agent has made."""

    code = "unknown_file"
    status = 404


class RequestTimedOut(Refused):
    """The request did not arrive in time. Send it again, over a connection that is fast enough."""

    code = "request_timeout"
    status = 408


class RepoConflict(Refused):
    """That name is taken in this workspace. Choose another name, or remove the repository that has it first."""

    code = "repo_conflict"
    status = 409


class ThreadBusy(Refused):
    """This thread already has a run. Wait for it to end, watch it at `GET /threads/{id}/events`, or stop it with `POST /interrupt`."""

    code = "thread_busy"
    status = 409


class ThreadExists(Refused):
    """There is a thread of that id already. A fork begins a new thread: choose another `threadId`."""

    code = "thread_exists"
    status = 409


class PendingInterrupts(Refused):
    """The last run ended with interrupts that are still open. Answer every open interrupt in `resume`."""

    code = "pending_interrupts"
    status = 409


class InterruptNotOpen(Refused):
    """`resume` answers an interrupt that is not open. Read the thread again: it was answered, cancelled or has expired."""

    code = "nothing_to_resume"
    status = 409


class HeldElsewhere(Refused):
    """The agent waits for this answer in another process. Send it again until it reaches that process, or cancel the interrupt."""

    code = "held_elsewhere"
    status = 409


class ArgumentsChanged(Refused):
    """The answer is for other arguments than those of the call. Nothing was executed: read the open interrupts again and answer those."""

    code = "arguments_changed"
    status = 409


class ArgumentsWithheld(Refused):
    """The arguments of the call contain a secret, and only their redacted copy is left. Cancel the interrupt and ask the agent again."""

    code = "arguments_withheld"
    status = 409


class NoActiveRun(Refused):
    """No run is active on this thread, so there is nothing to stop."""

    code = "nothing_running"
    status = 409


class AgentMismatch(Refused):
    """This thread belongs to another agent. A thread keeps the agent of its first run: start a new thread for this one."""

    code = "other_agent"
    status = 409


class IdempotencyConflict(Refused):
    """This Idempotency-Key was used with another request. Use a new key for a new request."""

    code = "key_reused"
    status = 409


class PatchConflict(Refused):
    """The patch does not apply to the current state. Read `GET /state_snapshot/{id}` and patch that."""

    code = "patch_conflict"
    status = 409


class StaleCursor(Refused):
    """The cursor is of another thread, or from before this one was deleted or a backup was restored. Start again without a cursor."""

    code = "stale_cursor"
    status = 409


class EntriesDropped(StaleCursor):
    """Retention has dropped entries of this thread that were to be read, maybe since the read began. Read the thread again."""


class RunGone(Refused):
    """The run this Idempotency-Key started was erased, or is no longer retained. Use a new key."""

    code = "run_gone"
    status = 410


class PayloadTooLarge(Refused):
    """The request body is too large. Send less, or ask the operator to raise `max_body`."""

    code = "too_large"
    status = 413


class UnsupportedMediaType(Refused):
    """Send the body as JSON, with `Content-Type: application/json`."""

    code = "wrong_type"
    status = 415


class InvalidInput(Refused):
    """The request body is not a valid RunAgentInput."""

    code = "invalid_input"
    status = 422


class CredentialsInUrl(InvalidInput):
    """The URL has credentials in it. Revoke them, send the URL without, and give a token to this server's credentials instead."""

    code = "credentials_in_url"


class MalformedRequest(Refused):
    """The request is not valid HTTP/1.1, and its connection is closed. Send plain HTTP to this port, not HTTPS, and one valid length."""

    code = "malformed_request"
    status = 400


class HeadersTooLarge(Refused):
    """The request line and the headers are larger than 64 KiB. Send fewer headers, or smaller cookies."""

    code = "headers_too_large"
    status = 431


class AgentLoop(Refused):
    """The agents call each other in a loop: this run was requested by a run that holds its thread. Check the URL of the remote agent."""

    code = "agent_loop"
    status = 508


class BridgeError(RunnerError):
    """The agent failed. The server's log has the reason."""

    code = "agent_error"
    status = 502


class BridgeUnavailable(BridgeError):
    """The agent cannot start because something it needs is not installed."""

    code = "agent_unavailable"
    status = 503


class BridgeTimeout(BridgeError):
    """The agent took too long and was stopped."""

    code = "agent_timeout"
    status = 504


class NoUserMessage(BridgeError):
    """The run has no new input: `messages` must end with a user message or a tool result."""

    code = "no_user_message"


class ProtocolViolation(BridgeError):
    """The agent sent events that cannot be repaired into a valid AG-UI stream."""

    code = "protocol_violation"


class LedgerError(RunnerError):
    """The store cannot be reached or is too busy. Try again in a moment."""

    code = "store_unavailable"
    status = 503


class LeaseLost(LedgerError):
    """This run lost its lease: another process took over the thread."""

    code = "lease_lost"


class ThreadDamaged(LedgerError):
    """The store's data of this thread contradicts itself, so it cannot be read and no run can start on it. Continue in a new thread."""

    code = "thread_damaged"


class StoreUnusable(LedgerError):
    """The store was changed under this server, which neither reads nor writes it any more. Its operator has to restart the server."""


class ServiceError(RunnerError):
    """The set-up of the run failed. The server's log has the reason."""

    code = "service_error"
    status = 502


class CredentialsError(ServiceError):
    """The credentials for this run could not be fetched. Try again; the server's log has the reason."""

    code = "credentials_error"


class GitUnavailable(ServiceError):
    """git is not installed on this server. Its operator has to install it."""

    code = "git_unavailable"
    status = 503


class RepoAuthRequired(ServiceError):
    """The repository asks for a login, and no token that opens it was granted. Give this server a token that can read the repository."""

    code = "login_needed"


class RepoNotFound(ServiceError):
    """There is no repository at that URL, or the token that was granted does not show it. Check the URL and what the token may read."""

    code = "repo_missing"


class RepoRedirected(ServiceError):
    """The URL leads to another one. Send the final URL; it usually ends in .git."""

    code = "repo_moved"


class RepoTooLarge(ServiceError):
    """The repository is larger than this server allows. Choose a smaller one."""

    code = "repo_too_large"


class CloneTimeout(ServiceError):
    """The clone took too long and was ended. Try again, or choose a smaller repository."""

    code = "clone_timeout"
    status = 504


class RedactionFailed(RunnerError):
    """Something could not be checked for secrets, so it was not sent, and the run has ended. The server's log has the reason."""

    code = "redaction_failed"


class Draining(RunnerError):
    """The server is shutting down and takes no new work. Try again in a moment."""

    code = "draining"
    status = 503


class ConfigError(RunnerError):
    """The configuration is not valid."""

    code = "config_error"


@contextmanager
def optional_dependency(
    *packages: str, install: str, refusal: type[RunnerError] = BridgeUnavailable
) -> Generator[None]:
    """Wrap imports of an optional dependency: if one of `packages` is missing, raise `refusal` with the `pip install` command.

    Any other missing module is raised unchanged: installing again would not fix it. A package may be in a namespace (`google.adk`).
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not any(_is_part_of(missing, package) or _is_part_of(package, missing) for package in packages):
            raise
        raise refusal(f"The package {missing} is not installed: pip install '{install}'") from error


def _is_part_of(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


class RunInterrupted(Exception):
    """Ends the run with these interrupts open. An adapter raises it; it is not an error."""

    def __init__(self, interrupts: Sequence[Interrupt]) -> None:
        """Raises: TypeError if `interrupts` is not a sequence of Interrupts."""
        super().__init__("the run waits for an answer")
        # Interrupts are recognized by their id: the types of the protocol are above this module.
        try:
            self.interrupts = tuple(interrupts)
            is_valid = all(hasattr(interrupt, "id") for interrupt in self.interrupts)
        except TypeError:
            is_valid = False
        if not is_valid:
            raise TypeError(
                f"RunInterrupted takes a list of ambient_runner.protocol.events.Interrupt, not {interrupts!r:.80}: "
                'RunInterrupted([Interrupt(id="deploy-1", reason="confirmation", message="May I deploy?")])'
            )


def copy_error(error: RunnerError | RuntimeError) -> Exception:
    """Return a new error like this one: a stored one would collect a traceback each time it is raised."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


RUN_ENDINGS = {
    "run_abandoned": (
        "This run was interrupted: its server ended or could not write. Its output so far is stored; send your message again."
    ),
    "shutdown": "The server shut down during this run. Send your message again.",
}
"""Messages of the RUN_ERROR codes that no exception has."""


def message_for_code(code: str | None) -> str:
    """Return our own message for an error code, also of a bridge that is loaded; a general one for a code of an agent's."""
    if code in RUN_ENDINGS:
        return RUN_ENDINGS[code]
    kinds = (kind for kind in _own_kinds(RunnerError) if kind.__dict__.get("code", "") == code)
    return inspect.getdoc(next(kinds, BridgeError)) or ""


def _own_kinds(base: type[RunnerError]) -> Iterator[type[RunnerError]]:
    """Yield the errors of this package. The docstring of a product's error is not ours."""
    if base.__module__.startswith(__package__ or __name__):
        yield base
    for kind in base.__subclasses__():
        yield from _own_kinds(kind)
