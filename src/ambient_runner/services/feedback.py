"""Feedback on a run: a fact in its thread, and a score in Langfuse, sent from a thread with a bounded wait."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import anyio
import msgspec
from anyio import to_thread

from ambient_runner.errors import InvalidFeedback, InvalidInput
from ambient_runner.ledger.records import RUNTIME
from ambient_runner.projections.projectors import FEEDBACK, FEEDBACK_OWNER
from ambient_runner.protocol.events import RunStarted, TextMessageStart, ToolCallStart, decode_event
from ambient_runner.protocol.strict_json import is_too_deep
from ambient_runner.runs.run import Actor
from ambient_runner.runs.view_cache import require_thread
from ambient_runner.services.bounded_http import send_request
from ambient_runner.services.feedback_events import claim_feedback_event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.config import LangfuseSettings
    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo, ThreadKey
    from ambient_runner.runs.runner import Runner

__all__ = [
    "FEEDBACK",
    "MAX_FEEDBACK",
    "Feedback",
    "LangfuseScores",
    "Payload",
    "Score",
    "ScoreSink",
    "read_feedback",
    "record_feedback",
]

logger = logging.getLogger(__name__)

MAX_FEEDBACK = 1 << 20
"""Bytes of a request. Some clients send the transcript along, which is ignored: the thread has it."""
_SHAPE_HINT = (
    'Send {"type": "META", "metaType": "thumbs_up" or "thumbs_down", "threadId": "…", "payload": {"messageId": "…"}}.'
)
_IS_POSITIVE = {"thumbs_up": True, "thumbs_down": False}
_SEARCHED_PREFIXES = (b'{"type":"RUN_STARTED"', b'{"type":"TEXT_MESSAGE_START"', b'{"type":"TOOL_CALL_START"')

_Name = Annotated[str, msgspec.Meta(max_length=256)]
_Sentence = Annotated[str, msgspec.Meta(max_length=1_000)]


class Payload(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """The subject of the feedback, and a comment. Every member is optional."""

    user_id: _Name | None = None
    project_name: _Name | None = None
    session_name: _Name | None = None
    message_id: _Name | None = None
    trace_id: _Name | None = None
    comment: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None
    reason: _Sentence | None = None
    workflow: _Sentence | None = None


class Feedback(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A request to `POST /feedback`."""

    type: str
    meta_type: str
    payload: Payload
    thread_id: str | None = None
    snake_case_thread_id: str | None = msgspec.field(name="thread_id", default=None)

    @property
    def thread_members(self) -> dict[str, str | None]:
        """The members of a body that may name the thread."""
        return {"threadId": self.thread_id, "thread_id": self.snake_case_thread_id}

    @property
    def is_positive(self) -> bool:
        return _IS_POSITIVE[self.meta_type]


def read_feedback(body: bytes) -> Feedback:
    """Parse the feedback in a request body. Raises: InvalidInput for its shape, InvalidFeedback for an unknown type."""
    if is_too_deep(body):
        raise InvalidInput(_SHAPE_HINT)
    try:
        feedback = msgspec.json.decode(body, type=Feedback)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{error}. {_SHAPE_HINT}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(_SHAPE_HINT) from error
    if feedback.type != "META":
        raise InvalidFeedback("`type` must be `META`.")
    if feedback.meta_type not in _IS_POSITIVE:
        raise InvalidFeedback("`metaType` must be `thumbs_up` or `thumbs_down`.")
    return feedback


async def record_feedback(
    runner: Runner, key: ThreadKey, feedback: Feedback, scores: ScoreSink | None, *, event_id: str = ""
) -> tuple[Payload, bool]:
    """Store the feedback. Return the stored payload, without secrets, and True if the score was delivered too.

    `event_id` is the client's id of this feedback, if it may send it again (`feedback_events.py`).
    Raises: UnknownThread, LedgerError; IdempotencyConflict if that feedback is stored already.
    """
    info = await require_thread(runner.ledger, key)
    payload = runner.secrets.redact_client_value(key, _with_known_user(key, feedback.payload), "feedback")
    trace_id = await _find_scored_trace(runner.ledger, info, feedback.payload)
    recorded = False
    if scores is not None and trace_id:
        recorded = await scores.send_score(_build_score(key, feedback, payload, trace_id))
    body = {
        **_set_members(payload),
        "metaType": feedback.meta_type,
        "userId": _user_id(key, payload),
        "recorded": recorded,
    }
    if trace_id:
        body["traceId"] = trace_id
    if event_id:
        body["clientEventId"] = event_id
    claim = claim_feedback_event(info, event_id) if event_id else None
    await runner.append_platform_fact(key, FEEDBACK_OWNER, FEEDBACK, body, claim=claim)
    return payload, recorded


def _build_score(key: ThreadKey, feedback: Feedback, payload: Payload, trace_id: str) -> Score:
    metadata = _set_members(payload)
    metadata.pop("comment", None)
    subject = [key.tenant, key.owner, key.id, _user_id(key, payload), payload.message_id or trace_id]
    digest = hashlib.sha256(msgspec.json.encode(subject)).hexdigest()
    return Score(
        # The id depends on the user and the subject: new feedback of the same user replaces the score, and a repeated request adds none.
        id=f"feedback-{digest[:32]}",
        trace_id=trace_id,
        value=feedback.is_positive,
        comment=payload.comment or "",
        metadata={
            **metadata,
            "feedbackType": feedback.meta_type,
            "user": _user_id(key, payload),
            "owner": key.owner,
            "thread": key.id,
        },
    )


def _with_known_user(key: ThreadKey, payload: Payload) -> Payload:
    """Return the payload with the authenticated user. Only a server without authentication takes the user from the request."""
    return msgspec.structs.replace(payload, user_id=key.owner) if _has_known_owner(key) and payload.user_id else payload


def _has_known_owner(key: ThreadKey) -> bool:
    """Return True if the server authenticates users."""
    return key.owner != Actor().owner


def _user_id(key: ThreadKey, payload: Payload) -> str:
    return payload.user_id or key.owner


def _set_members(payload: Payload) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(payload)
    return {name: value for name, value in members.items() if value is not None}


async def _find_scored_trace(ledger: Ledger, info: ThreadInfo, payload: Payload) -> str:
    """Return the id of the trace that the feedback is about; empty when no run of this thread has it.

    So no user scores another's trace. It is the trace that the payload names, or that of the run which wrote the named message, or that of
    the newest run.
    Where the server authenticates users, the trace must have begun in this thread: a caller may name any trace as the parent of a run.
    """
    search = _RunSearch(payload, begun_here=_has_known_owner(info.key))
    after = info.first - 1
    if not payload.trace_id and not payload.message_id:
        newest = await ledger.find_run_at(info.key, info.last)
        after = newest.first - 1 if newest else info.last
    while batches := await ledger.read_batches(info.key, after, until=info.last, epoch=info.epoch):
        for batch in batches:
            if batch.owner == RUNTIME and search.ends_at_subject(batch.lines):
                return search.trace_id
        after = batches[-1].last
    return ""


class _RunSearch:
    """Reads a thread up to the run that the feedback is about.

    `trace_id` is that of the run read last; empty when `begun_here` is set and the trace began elsewhere.
    """

    def __init__(self, payload: Payload, *, begun_here: bool) -> None:
        self._payload = payload
        self._begun_here = begun_here
        self.trace_id = ""

    def ends_at_subject(self, lines: Iterable[bytes]) -> bool:
        """Return True at the first line that identifies the run the feedback is about."""
        return any(self._is_subject(line) for line in lines if line.startswith(_SEARCHED_PREFIXES))

    def _is_subject(self, line: bytes) -> bool:
        payload = self._payload
        match decode_event(line):
            case RunStarted(metadata=metadata):
                members = metadata or {}
                is_continued = self._begun_here and "parentSpanId" in members
                self.trace_id = "" if is_continued else str(members.get("traceId", ""))
                named = payload.trace_id == self.trace_id if payload.trace_id else not payload.message_id
                return named and bool(self.trace_id)
            case TextMessageStart(message_id=written) | ToolCallStart(parent_message_id=written):
                return not payload.trace_id and written is not None and written == payload.message_id
            case _:
                return False


TIMEOUT = 5.0  # seconds
_MAX_THREADS = 4
_PATH = "/api/public/scores"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A user's rating of a run. A second score with the same `id` replaces the first."""

    id: str
    trace_id: str
    value: bool
    comment: str = field(default="", repr=False)
    metadata: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)


class ScoreSink(Protocol):
    """A backend that stores scores."""

    async def send_score(self, score: Score) -> bool:
        """Return True if the score was delivered. Must not raise, and must return within a few seconds."""
        ...


class LangfuseScores:
    """Sends scores to a Langfuse project."""

    def __init__(self, settings: LangfuseSettings, *, timeout: float = TIMEOUT) -> None:
        self._settings = settings
        self._timeout = timeout
        self._threads = anyio.CapacityLimiter(_MAX_THREADS)

    async def send_score(self, score: Score) -> bool:
        status = 0
        with anyio.move_on_after(self._timeout):
            status = await to_thread.run_sync(self._post_score, score, abandon_on_cancel=True, limiter=self._threads)
        if 200 <= status < 300:
            return True
        reason = f"it answered with status {status}" if status else "it cannot be reached"
        logger.warning("Langfuse did not store the feedback score of trace %s: %s", score.trace_id, reason)
        return False

    def _post_score(self, score: Score) -> int:
        """Return the status of the response; 0 when there is none."""
        headers = {"Authorization": self._settings.authorization, "Content-Type": "application/json"}
        body = json.dumps(self._score_body(score))
        try:
            return send_request(
                "POST", f"{self._settings.url}{_PATH}", headers=headers, body=body, timeout=self._timeout
            ).status
        except OSError:
            return 0

    def _score_body(self, score: Score) -> dict[str, Any]:
        body = {
            "id": score.id,
            "traceId": score.trace_id,
            "name": "user-feedback",
            "value": int(score.value),
            "dataType": "BOOLEAN",
            "comment": score.comment,
            "metadata": score.metadata,
            "environment": self._settings.stage,
        }
        return {name: value for name, value in body.items() if value not in ("", {})}
