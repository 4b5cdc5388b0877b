"""An approval holds for the arguments that its question showed. Digests connect the two; `interrupt_answers.py` matches answers.

The digest of a question is in its `metadata.argumentsDigest`. It covers the original arguments, and the state that the call reads where
that is known. Clients may see the arguments redacted, so the digest is keyed: nobody can test a guess against it. The key is that of the
run that asks, stored with the run's input, which no client receives. A bridge compares digests where it executes the call.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ambient_runner.errors import ArgumentsChanged, ArgumentsWithheld
from ambient_runner.projections.json_values import canonical_json, parse_or_text
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.projections.safe_interrupts import HIDDEN_TEXT
from ambient_runner.projections.summaries import quotes_summary
from ambient_runner.protocol.events import AssistantMessage, Custom, Interrupted, RunFinished
from ambient_runner.runs.interrupt_answers import parse_answer
from ambient_runner.runs.run import RunAttribute, current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ambient_runner.projections.open_interrupts import OpenInterrupt
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Interrupt, Message, ResumeEntry, Terminal, ToolCall
    from ambient_runner.runs.input_acceptance import AcceptedInput
    from ambient_runner.runs.run import Run

    FindStreamedCall = Callable[[str], tuple[str, str] | None]

__all__ = [
    "ARGUMENTS_DIGEST",
    "check_answers",
    "edit_events",
    "has_same_arguments",
    "is_known_digest",
    "new_digest_key",
    "record_arguments",
    "show_digests",
]

ARGUMENTS_DIGEST = "argumentsDigest"
"""Member of an interrupt's metadata, and of the metadata of an answer that says which question it answers."""

_EDIT_KEYS = ("editedArgs", "edited_args", "args", "arguments")
_EDITED_CALL_KEY = "edited_action"
_REFUSALS = ("reject", "respond", "ignore")
"""Decisions of LangChain's middleware that execute nothing."""

_DIGESTS = RunAttribute[dict[str, str]]("digests of arguments by interrupt id")

Call = tuple[str, Any]
"""Name of a tool, and the arguments of a call of it."""


def new_digest_key() -> str:
    """Return a random key for the digests of one run."""
    return secrets.token_hex(16)


def record_arguments(interrupt_id: str, calls: Sequence[Call], *, state: Mapping[str, Any] | None = None) -> None:
    """Record what the current run asks about: the original arguments of these calls, and the state that they read, if it is known.

    The server shows the digest with the interrupt. Without a server nothing is recorded.
    """
    run = current_run_or_none()
    if run is not None:
        _set_digest(run, interrupt_id, _keyed_digest(run.digest_key, interrupt_id, calls, state))


def has_same_arguments(interrupt_id: str, calls: Sequence[Call], *, state: Mapping[str, Any] | None = None) -> bool:
    """Return False if these are other calls than those that the answered interrupt was about. Check it before executing them.

    True for an interrupt without a digest, which was stored by an earlier version, and without a server.
    """
    run = current_run_or_none()
    asked = run.answered_interrupts.get(interrupt_id) if run else None
    if asked is None or not is_known_digest(asked):
        return True
    return hmac.compare_digest(
        _shown_digest(asked.interrupt), _keyed_digest(asked.digest_key, interrupt_id, calls, state)
    )


def is_known_digest(asked: OpenInterrupt) -> bool:
    """Return True if the interrupt has a digest, and the key of it is known."""
    return bool(asked.digest_key and _shown_digest(asked.interrupt))


def show_digests(run: Run, terminal: Terminal, find_call: FindStreamedCall) -> Terminal:
    """Return the terminal event with a digest in each interrupt whose arguments are known.

    For an agent that recorded none, `find_call` returns the run's call by its id; a call of an earlier run is in its input.
    """
    if not isinstance(terminal, RunFinished) or not isinstance(terminal.outcome, Interrupted):
        return terminal
    interrupts = [_with_digest(run, interrupt, find_call) for interrupt in terminal.outcome.interrupts]
    return replace(terminal, outcome=Interrupted(interrupts=interrupts))


def check_answers(view: ThreadView, accepted: AcceptedInput) -> None:
    """Check that every answer is for the arguments that were shown. A cancelled interrupt needs no check: nothing is executed.

    Raises: ArgumentsChanged; ArgumentsWithheld for edited arguments with the placeholder of a value that was redacted.
    """
    for entry in accepted.answers:
        if entry.status != "resolved":
            continue
        asked = view.open_interrupts[entry.interrupt_id]
        named = (entry.metadata or {}).get(ARGUMENTS_DIGEST)
        calls = list(_calls_of(asked.interrupt, accepted.conversation))
        if named is not None and named != _shown_digest(asked.interrupt):
            raise ArgumentsChanged
        if not all(asked.has_shown(call.function.arguments) for call in calls):
            raise ArgumentsChanged
        if _has_placeholder(canonical_json(_edited_calls(entry.payload)), asked.interrupt, calls):
            raise ArgumentsWithheld(
                "The edited arguments contain a value that was not shown. Send your own value for it."
            )


def edit_events(run: Run) -> list[Custom]:
    """Return an `ambient:arguments_edited` event for each answer of this run that edits the arguments of what it approves."""
    entries = run.input.resume or ()
    return [event for entry in entries if entry.status == "resolved" and (event := _edit_event(run, entry))]


def _edit_event(run: Run, entry: ResumeEntry) -> Custom | None:
    asked = run.answered_interrupts[entry.interrupt_id]
    edited = _edited_calls(entry.payload)
    if not edited or not is_known_digest(asked):
        return None
    call = next(_calls_of(asked.interrupt, run.input.messages), None)
    tool = call.function.name if call else ""
    calls = [(name or tool, arguments) for name, arguments in edited]
    digest = _keyed_digest(asked.digest_key, entry.interrupt_id, calls, None)
    shown = _shown_digest(asked.interrupt)
    if digest == shown:
        return None
    identified = {"toolCallId": asked.interrupt.tool_call_id} if asked.interrupt.tool_call_id else {}
    value = {
        "interruptId": entry.interrupt_id,
        **identified,
        ARGUMENTS_DIGEST: digest,
        "previousDigest": shown,
        "editedBy": {"tenant": run.actor.tenant, "owner": run.actor.owner},
    }
    return Custom(name="ambient:arguments_edited", value=value)


def _with_digest(run: Run, interrupt: Interrupt, find_call: FindStreamedCall) -> Interrupt:
    digest = (_DIGESTS.get(run) or {}).get(interrupt.id)
    if digest is None:
        call = None if _shown_digest(interrupt) else _asked_call(run, interrupt, find_call)
        if call is None:
            return interrupt
        digest = _keyed_digest(run.digest_key, interrupt.id, [call], None)
    return replace(interrupt, metadata={**(interrupt.metadata or {}), ARGUMENTS_DIGEST: digest})


def _asked_call(run: Run, interrupt: Interrupt, find_call: FindStreamedCall) -> Call | None:
    if not interrupt.tool_call_id:
        return None
    earlier = next(_calls_of(interrupt, run.input.messages), None)
    found = find_call(interrupt.tool_call_id)
    if found is None and earlier is not None:
        found = (earlier.function.name, earlier.function.arguments)
    return None if found is None else (found[0], parse_or_text(found[1]))


def _set_digest(run: Run, interrupt_id: str, digest: str) -> None:
    _DIGESTS.set(run, {**(_DIGESTS.get(run) or {}), interrupt_id: digest})


def _keyed_digest(key: str, interrupt_id: str, calls: Sequence[Call], state: Mapping[str, Any] | None) -> str:
    """Return the HMAC of what an interrupt is about. Its id is part of it, so that equal calls of a run have different digests."""
    subject = canonical_json([interrupt_id, [list(call) for call in calls], dict(state or {})])
    return hmac.new(key.encode(), subject.encode(), hashlib.sha256).hexdigest()


def _shown_digest(interrupt: Interrupt) -> str:
    digest = (interrupt.metadata or {}).get(ARGUMENTS_DIGEST)
    return digest if isinstance(digest, str) else ""


def _calls_of(interrupt: Interrupt, messages: Sequence[Message]) -> Iterator[ToolCall]:
    """Yield the calls in these messages that the interrupt is about."""
    for message in messages:
        if interrupt.tool_call_id and isinstance(message, AssistantMessage):
            yield from (call for call in message.tool_calls or () if call.id == interrupt.tool_call_id)


def _has_placeholder(edited: str, interrupt: Interrupt, calls: Sequence[ToolCall]) -> bool:
    """Return True if edited arguments contain what stands for a value that was not shown: redacted, or only summarized."""
    return quotes_summary(edited) or HIDDEN_TEXT in edited or (REDACTED in edited and _is_redacted(interrupt, calls))


def _is_redacted(interrupt: Interrupt, calls: Sequence[ToolCall]) -> bool:
    """Return True if the arguments were shown with a placeholder in place of a secret."""
    shown = [*(call.function.arguments for call in calls), canonical_json(interrupt.metadata)]
    return any(REDACTED in text for text in shown)


def _edited_calls(payload: Any) -> list[tuple[str | None, Any]]:
    """Return the edited calls in an answer, in any form that a bridge accepts: name, if it has one, and arguments."""
    given = parse_answer(payload)
    decisions = _object(given).get("decisions", given)
    answers = cast("list[Any]", decisions) if isinstance(decisions, list) else [given]
    return [edited for answer in answers if (edited := _edited_call(_object(answer))) is not None]


def _edited_call(answer: dict[str, Any]) -> tuple[str | None, Any] | None:
    if answer.get("approved") is False or answer.get("type") in _REFUSALS:
        return None
    action = _object(answer.get(_EDITED_CALL_KEY))
    if "args" in action:
        name = action.get("name")
        return (name if isinstance(name, str) else None, action["args"])
    return next(((None, answer[key]) for key in _EDIT_KEYS if answer.get(key) is not None), None)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
