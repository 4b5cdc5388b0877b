"""Feedback on a run: a fact in its thread, and a score in Langfuse, sent off the loop with a bounded wait."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import anyio
import msgspec
from anyio import to_thread

from ambient_runner.errors import InvalidFeedback, InvalidInput, UnknownThread
from ambient_runner.ledger.base import RUNTIME
from ambient_runner.projections.frames import FEEDBACK_OWNER
from ambient_runner.protocol.events import RunStarted, TextMessageStart, ToolCallStart, decode_event
from ambient_runner.runs.run import Actor
from ambient_runner.services.bounded_http import send

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.config import LangfuseSettings
    from ambient_runner.ledger.base import Ledger, ThreadInfo, ThreadKey
    from ambient_runner.runs.runner import Runner

__all__ = [
    "FEEDBACK",
    "MAX_FEEDBACK",
    "Feedback",
    "LangfuseScores",
    "Payload",
    "Score",
    "Scores",
    "read_feedback",
    "record",
]

logger = logging.getLogger(__name__)

FEEDBACK = "feedback"
MAX_FEEDBACK = 1 << 20
"""Bytes of a request: some clients send the transcript along, which we have and do not read."""
_SHAPE = (
    'Send {"type": "META", "metaType": "thumbs_up" or "thumbs_down", "threadId": "…", "payload": {"messageId": "…"}}.'
)
_THUMBS = {"thumbs_up": True, "thumbs_down": False}
_STARTS = (b'{"type":"RUN_STARTED"', b'{"type":"TEXT_MESSAGE_START"', b'{"type":"TOOL_CALL_START"')

_Name = Annotated[str, msgspec.Meta(max_length=256)]
_Words = Annotated[str, msgspec.Meta(max_length=1_000)]


class Payload(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """What the feedback is about, and what else was said. All of it may be left out."""

    user_id: _Name | None = None
    project_name: _Name | None = None
    session_name: _Name | None = None
    message_id: _Name | None = None
    trace_id: _Name | None = None
    comment: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None
    reason: _Words | None = None
    workflow: _Words | None = None


class Feedback(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A request to `POST /feedback`."""

    type: str
    meta_type: str
    payload: Payload
    thread_id: str | None = None
    old_thread_id: str | None = msgspec.field(name="thread_id", default=None)

    @property
    def place(self) -> dict[str, str | None]:
        """Where the thread may be named, as in every other body."""
        return {"threadId": self.thread_id, "thread_id": self.old_thread_id}

    @property
    def is_up(self) -> bool:
        return _THUMBS[self.meta_type]


def read_feedback(body: bytes) -> Feedback:
    """The feedback in a body. Raises: InvalidInput for its shape, InvalidFeedback for what it says it is."""
    try:
        given = msgspec.json.decode(body, type=Feedback)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{error}. {_SHAPE}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(_SHAPE) from error
    if given.type != "META":
        raise InvalidFeedback("`type` must be `META`.")
    if given.meta_type not in _THUMBS:
        raise InvalidFeedback("`metaType` must be `thumbs_up` or `thumbs_down`.")
    return given


async def record(runner: Runner, key: ThreadKey, feedback: Feedback, scores: Scores | None) -> tuple[Payload, bool]:
    """Keep the feedback; gives what was kept, without secrets, and whether the score has arrived as well.

    Raises: UnknownThread, LedgerError.
    """
    info = await runner.ledger.thread(key)
    if info is None:
        raise UnknownThread
    payload: Payload = runner.redactor().redact_value(_own(key, feedback.payload))
    trace_id = await _scored_trace(runner.ledger, info, feedback.payload)
    recorded = False
    if scores is not None and trace_id:
        recorded = await scores.send(_score(key, feedback, payload, trace_id))
    body = {**_given(payload), "metaType": feedback.meta_type, "userId": _user(key, payload), "recorded": recorded}
    if trace_id:
        body["traceId"] = trace_id
    await runner.note(key, FEEDBACK_OWNER, FEEDBACK, body)
    return payload, recorded


def _score(key: ThreadKey, feedback: Feedback, payload: Payload, trace_id: str) -> Score:
    about = _given(payload)
    about.pop("comment", None)
    subject = [key.tenant, key.owner, key.id, _user(key, payload), payload.message_id or trace_id]
    digest = hashlib.sha256(msgspec.json.encode(subject)).hexdigest()
    return Score(
        # Who changes their mind replaces their score; who sends it twice has said it once.
        id=f"feedback-{digest[:32]}",
        trace_id=trace_id,
        value=feedback.is_up,
        comment=payload.comment or "",
        metadata={
            **about,
            "feedbackType": feedback.meta_type,
            "user": _user(key, payload),
            "owner": key.owner,
            "thread": key.id,
        },
    )


def _own(key: ThreadKey, payload: Payload) -> Payload:
    """What is said in one's own name: only where nobody is known does the request say whose it is."""
    return msgspec.structs.replace(payload, user_id=key.owner) if _is_known(key) and payload.user_id else payload


def _is_known(key: ThreadKey) -> bool:
    """Whether people are told apart here."""
    return key.owner != Actor().owner


def _user(key: ThreadKey, payload: Payload) -> str:
    return payload.user_id or key.owner


def _given(payload: Payload) -> dict[str, Any]:
    given: dict[str, Any] = msgspec.to_builtins(payload)
    return {name: value for name, value in given.items() if value is not None}


async def _scored_trace(ledger: Ledger, info: ThreadInfo, about: Payload) -> str:
    """The trace the feedback is about; empty when no run of this thread has it, for nobody scores another's trace.

    Where people are told apart it must have begun there: a caller may name the trace that a run continues, and so anyone's.

    It is the one that is named, or that of the run which wrote the message, or that of the newest run when neither is said.
    """
    search = _Search(about, begun_here=_is_known(info.key))
    after = info.first - 1
    if not about.trace_id and not about.message_id:
        newest = await ledger.run_at(info.key, info.last)
        after = newest.first - 1 if newest else info.last
    while batches := await ledger.read(info.key, after, until=info.last, epoch=info.epoch):
        for batch in batches:
            if batch.owner == RUNTIME and search.finds(batch.lines):
                return search.trace
        after = batches[-1].last
    return ""


class _Search:
    """Reads a thread until the run that is meant. `trace` is that of the run it is in; empty when it had to be `begun_here` and was not."""

    def __init__(self, about: Payload, *, begun_here: bool) -> None:
        self._about = about
        self._begun_here = begun_here
        self.trace = ""

    def finds(self, lines: Iterable[bytes]) -> bool:
        """Whether the run that is meant is the one these lines end in; they are read no further."""
        return any(self._is_meant(line) for line in lines if line.startswith(_STARTS))

    def _is_meant(self, line: bytes) -> bool:
        about = self._about
        match decode_event(line):
            case RunStarted(metadata=metadata):
                said = metadata or {}
                is_others = self._begun_here and "parentSpanId" in said
                self.trace = "" if is_others else str(said.get("traceId", ""))
                named = about.trace_id == self.trace if about.trace_id else not about.message_id
                return named and bool(self.trace)
            case TextMessageStart(message_id=written) | ToolCallStart(parent_message_id=written):
                return not about.trace_id and written is not None and written == about.message_id
            case _:
                return False


TIMEOUT = 5.0
_AT_ONCE = 4
_PATH = "/api/public/scores"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Whether someone liked a run. The same `id` again replaces the score."""

    id: str
    trace_id: str
    value: bool
    comment: str = field(default="", repr=False)
    metadata: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)


class Scores(Protocol):
    """A place that keeps scores."""

    async def send(self, score: Score) -> bool:
        """Whether the score has arrived. It does not raise, and it takes a few seconds at most."""
        ...


class LangfuseScores:
    """The scores of a Langfuse project."""

    def __init__(self, settings: LangfuseSettings, *, timeout: float = TIMEOUT) -> None:
        self._settings = settings
        self._timeout = timeout
        self._threads = anyio.CapacityLimiter(_AT_ONCE)

    async def send(self, score: Score) -> bool:
        status = 0
        with anyio.move_on_after(self._timeout):
            status = await to_thread.run_sync(self._post, score, abandon_on_cancel=True, limiter=self._threads)
        if 200 <= status < 300:
            return True
        logger.warning("Langfuse did not take a score: %s", f"status {status}" if status else "it cannot be reached")
        return False

    def _post(self, score: Score) -> int:
        """The status of the answer; 0 without one."""
        headers = {"Authorization": self._settings.authorization, "Content-Type": "application/json"}
        body = json.dumps(self._body(score))
        try:
            return send(
                "POST", f"{self._settings.url}{_PATH}", headers=headers, body=body, timeout=self._timeout
            ).status
        except OSError:
            return 0

    def _body(self, score: Score) -> dict[str, Any]:
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
