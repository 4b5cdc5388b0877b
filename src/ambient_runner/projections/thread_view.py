"""A whole thread, folded from the ledger: messages, state, the last run, open questions, frontend calls that wait for an answer, and what
the adapter remembers.

Runs, admission and recovery ask this view instead of reading events. The facts other than events that it understands are named
here; those of unknown owners are passed over. `to_checkpoint` is what retention keeps of the entries it drops.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import LedgerError, Refused
from ambient_runner.ledger.base import RUNTIME
from ambient_runner.projections.delta_text import pieces_at
from ambient_runner.projections.private_entries import MEMORY, is_kept, restated
from ambient_runner.projections.state import SharedState
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    OURS,
    Cancelled,
    Custom,
    Interrupt,
    Interrupted,
    Message,
    MessagesSnapshot,
    RunError,
    RunFinished,
    RunStarted,
    StateSnapshot,
    StepFinished,
    StepStarted,
    Success,
    Terminal,
    ToolCallResult,
    ToolMessage,
    UserMessage,
    decode_event,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ambient_runner.ledger.base import Batch
    from ambient_runner.protocol.events import Event

__all__ = [
    "INPUT",
    "PATCHED",
    "REWOUND",
    "RUN_OWNER",
    "STATE_OWNER",
    "THREAD_OWNER",
    "OpenInterrupt",
    "RunSummary",
    "ThreadView",
]

RUN_OWNER, INPUT = "ambient.run", "input"
"""`{"input": RunAgentInput, "answers": [interruptId], "imported": [messageId]}`, just before the RUN_STARTED of a run."""
THREAD_OWNER, REWOUND = "ambient.thread", "rewound"
"""`{"to": messageId}`: everything after that message is no longer part of the conversation; all of it when `to` is empty."""
STATE_OWNER, PATCHED = "ambient.state", "patched"
"""`{"patch": operations}`: a client changed the visible state between runs."""

_VERSION = 1
_MEMORIES = 16
_MEMORY_ROOM = 1 << 20
_encode = msgspec.json.encode

Status = Literal["running", "finished", "error", "cancelled", "interrupted"]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run and how it ended."""

    key: str
    run_id: str
    """The client's id, as it stands in the frames."""
    status: Status
    terminal: Terminal | None = None
    trace_id: str = ""


class OpenInterrupt(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for an answer, or whose answer has not been acted on yet."""

    interrupt: Interrupt
    run: str
    """Key of the run that asked."""
    digest: str
    """SHA-256 of the arguments of its tool call as they were shown; empty without a call."""
    answered: bool = False
    """Whether the run going on has the answer. A run that fails before it acts gives the question back."""


class _Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What the adapter wanted to keep of one run."""

    run: str
    anchor: str
    """The newest message when that run began: a rewind to it, or to one before it, cuts the run."""
    value: msgspec.Raw


class _Input(msgspec.Struct):
    answers: list[str] = []


class _Rewound(msgspec.Struct):
    to: str


class _Patched(msgspec.Struct):
    patch: Any


class _Saved(msgspec.Struct, kw_only=True):
    version: int
    messages: list[Message]
    state: Any
    failed: int
    seen: Any
    last_run: RunSummary | None
    interrupts: list[OpenInterrupt]
    pending_calls: dict[str, str]
    memories: list[_Remembered] = []
    anchor: str = ""


# What a resumed run may say before it has acted on the answers.
_BEFORE_ACTING = (RunStarted, RunError, RunFinished, MessagesSnapshot, StateSnapshot, StepStarted, StepFinished)


class ThreadView:
    """The thread as of `seq`. `hidden` names the state keys clients do not see (`state.is_hidden`)."""

    __slots__ = (
        "_anchor",
        "_answering",
        "_memories",
        "_seen",
        "hidden",
        "last_run",
        "open_interrupts",
        "pending_calls",
        "seq",
        "state",
        "transcript",
    )

    def __init__(self, *, hidden: Collection[str] = ()) -> None:
        self.seq = 0
        self.hidden = hidden
        self.transcript = Transcript()
        self.state = SharedState()
        self.last_run: RunSummary | None = None
        self.open_interrupts: dict[str, OpenInterrupt] = {}
        self.pending_calls: dict[str, str] = {}
        """Frontend tool calls that wait for the client's result: id and tool name."""
        self._seen: Any = {}
        self._answering = False
        self._anchor = ""
        self._memories: list[_Remembered] = []

    @property
    def memory(self) -> Any:
        """What the adapter last remembered, a copy of its own for everyone who asks; None when there is nothing."""
        return msgspec.json.decode(self._memories[-1].value) if self._memories else None

    @property
    def state_seen(self) -> Any:
        """The visible state at the last terminal event: what clients have."""
        return SharedState(self._seen).visible(self.hidden)

    def apply(self, batch: Batch) -> None:
        """Fold what is new in this batch; entries already folded are passed over."""
        new = batch.lines[max(0, self.seq + 1 - batch.first) :]
        if batch.text is not None and len(new) == len(batch.lines) and not self._answering:
            self.transcript.append(batch.text.message_id, batch.text.text)
        elif batch.owner == RUNTIME:
            self._events(batch.run, new)
        else:
            for body in new:
                self._fact(batch.owner, batch.kind, body)
        self.seq = max(self.seq, batch.last)

    def _events(self, run: str, lines: Sequence[bytes]) -> None:
        at = 0
        while at < len(lines):
            found = None if self._answering else pieces_at(lines, at)
            if found is None:
                self.apply_event(run, decode_event(lines[at]))
                at += 1
            else:
                text, at = found
                self.transcript.append(text.message_id, text.text)

    def apply_event(self, run: str, event: Event) -> None:
        """Fold one event of this run. `apply` does it for batches; `seq` is not touched."""
        self.transcript.apply(event)
        if self._answering:
            self._consume(event)
        match event:
            case RunStarted():
                self._started(run, event)
            case ToolCallResult():
                self.pending_calls.pop(event.tool_call_id, None)
            case RunFinished():
                self._finished(run, event)
            case RunError():
                self._ended(run, event, "error")
            case Custom() if is_kept(event):
                self._keep(run, event)
            case _:
                self.state.apply(event)

    def _started(self, run: str, event: RunStarted) -> None:
        trace_id = str((event.metadata or {}).get("traceId", ""))
        self.last_run = RunSummary(key=run, run_id=event.run_id, status="running", trace_id=trace_id)
        self._anchor = self.transcript.newest()
        for message in event.input.messages if event.input else ():
            match message:
                case UserMessage():
                    self.pending_calls.clear()
                case ToolMessage():
                    self.pending_calls.pop(message.tool_call_id, None)
                case _:
                    pass

    def _finished(self, run: str, event: RunFinished) -> None:
        match event.outcome:
            case Cancelled():
                self._ended(run, event, "cancelled")
            case Interrupted(interrupts=interrupts):
                self.open_interrupts = {one.id: self._opened(run, one) for one in interrupts}
                self._ended(run, event, "interrupted")
            case Success() | None:
                self._drop_answered()
                named = event.outcome.pending_tool_call_ids if event.outcome else None
                self.pending_calls.update({call: self._tool_name(call) for call in named or ()})
                self._ended(run, event, "finished")

    def _ended(self, run: str, event: Terminal, status: Status) -> None:
        known = self.last_run
        if known is None or known.key != run:
            known = RunSummary(key=run, run_id="", status=status)
        self.last_run = msgspec.structs.replace(known, status=status, terminal=event)
        self._seen = self.state.value
        self._answer(())

    def _keep(self, run: str, event: Custom) -> None:
        """What an adapter keeps: the conversation as another server tells it, or a value for its next run."""
        told = restated(event)
        if told is not None:
            self.transcript.restate(told.messages, told.gone)
        elif event.name == MEMORY:
            self._remember(run, event.value)

    def _remember(self, run: str, value: Any) -> None:
        kept = [one for one in self._memories if one.run != run]
        said = _Remembered(run=run, anchor=self._anchor, value=msgspec.Raw(_encode(value)))
        self._memories = _newest_memories([*kept, said])

    def _rewind(self, to: str) -> None:
        """Cut the conversation after a message, and with it what was remembered by the runs that said what came after."""
        self.transcript.rewind(to)
        self.pending_calls.clear()
        self._memories = [one for one in self._memories if one.anchor != to and self.transcript.message(one.anchor)]

    def rewound(self, to: str) -> ThreadView:
        """The thread as it is after a rewind. This view does not change."""
        twin = self.copy()
        twin._rewind(to)
        return twin

    def _opened(self, run: str, interrupt: Interrupt) -> OpenInterrupt:
        call = self.transcript.call(interrupt.tool_call_id) if interrupt.tool_call_id else None
        digest = hashlib.sha256(call.function.arguments.encode()).hexdigest() if call else ""
        return OpenInterrupt(interrupt=interrupt, run=run, digest=digest)

    def _tool_name(self, tool_call_id: str) -> str:
        call = self.transcript.call(tool_call_id)
        return call.function.name if call else ""

    def _begin(self, answers: list[str]) -> None:
        """A run that answers these begins. What it leaves unanswered has expired, or it would not have been admitted."""
        self.open_interrupts = {name: one for name, one in self.open_interrupts.items() if name in answers}
        self._answer(answers)

    def _answer(self, ids: Collection[str]) -> None:
        """These interrupts, and no others, have an answer the run going on holds."""
        self.open_interrupts = {name: replace(one, answered=name in ids) for name, one in self.open_interrupts.items()}
        self._answering = any(one.answered for one in self.open_interrupts.values())

    def _consume(self, event: Event) -> None:
        """An answer is used up by the first event that follows the action it allowed."""
        if isinstance(event, ToolCallResult):
            self._drop_answered(event.tool_call_id)
        if not isinstance(event, _BEFORE_ACTING) and not (isinstance(event, Custom) and event.name.startswith(OURS)):
            self._drop_answered(None)

    def _drop_answered(self, *tool_call_ids: str | None) -> None:
        """Forget the answered interrupts, or only those about these calls (None: about no call)."""
        self.open_interrupts = {
            name: one
            for name, one in self.open_interrupts.items()
            if not one.answered or (tool_call_ids and one.interrupt.tool_call_id not in tool_call_ids)
        }
        self._answering = any(one.answered for one in self.open_interrupts.values())

    def _fact(self, owner: str, kind: str, body: bytes) -> None:
        match owner, kind:
            case "ambient.run", "input":
                self._begin(msgspec.json.decode(body, type=_Input).answers)
            case "ambient.thread", "rewound":
                self._rewind(msgspec.json.decode(body, type=_Rewound).to)
            case "ambient.state", "patched":
                self._patched(msgspec.json.decode(body, type=_Patched).patch)
            case _:
                pass

    def _patched(self, operations: Any) -> None:
        try:
            self.state = SharedState(self.state.patch(operations, self.hidden), failed=self.state.failed)
        except Refused:
            self.state.failed += 1

    def copy(self) -> ThreadView:
        """A view that can go on by itself. Messages and state values are shared: neither view changes them in place."""
        twin = ThreadView(hidden=self.hidden)
        twin.seq = self.seq
        twin.transcript = self.transcript.copy()
        twin.state = self.state.copy()
        twin.last_run = self.last_run
        twin.open_interrupts = dict(self.open_interrupts)
        twin.pending_calls = dict(self.pending_calls)
        twin._seen, twin._answering = self._seen, self._answering
        twin._anchor, twin._memories = self._anchor, self._memories
        return twin

    def to_checkpoint(self) -> bytes:
        """Everything but `seq` and `hidden`, as one line of JSON; also in the middle of a run."""
        return _encode(
            _Saved(
                version=_VERSION,
                messages=self.transcript.messages(),
                state=self.state.value,
                failed=self.state.failed,
                seen=self._seen,
                last_run=self.last_run,
                interrupts=list(self.open_interrupts.values()),
                pending_calls=self.pending_calls,
                memories=self._memories,
                anchor=self._anchor,
            )
        )

    @classmethod
    def from_checkpoint(cls, seq: int, body: bytes, *, hidden: Collection[str] = ()) -> ThreadView:
        """The view that was saved. Raises: LedgerError when a newer version of this program wrote it."""
        try:
            saved = msgspec.json.decode(body, type=_Saved)
        except msgspec.ValidationError as error:
            raise LedgerError("The checkpoint of this thread cannot be read by this version.") from error
        if saved.version != _VERSION:
            raise LedgerError("The checkpoint of this thread cannot be read by this version.")
        view = cls(hidden=hidden)
        view.seq = seq
        view.transcript = Transcript(saved.messages)
        view.state = SharedState.restored(saved.state, failed=saved.failed)
        view.last_run = saved.last_run
        view.open_interrupts = {one.interrupt.id: one for one in saved.interrupts}
        view.pending_calls = saved.pending_calls
        view._seen = SharedState.restored(saved.seen).value
        view._anchor, view._memories = saved.anchor, [_own_bytes(one) for one in saved.memories]
        view._answering = any(one.answered for one in saved.interrupts)
        return view


def _newest_memories(memories: list[_Remembered]) -> list[_Remembered]:
    """The last one, and of those before it as many as are small enough to keep for a rewind."""
    room, kept = _MEMORY_ROOM, memories[-1:]
    for one in reversed(memories[:-1]):
        room -= len(bytes(one.value))
        if room < 0 or len(kept) == _MEMORIES:
            break
        kept.insert(0, one)
    return kept


def _own_bytes(one: _Remembered) -> _Remembered:
    """Raw is a view into what it was decoded from: without this a small memory would keep a large checkpoint alive."""
    return replace(one, value=one.value.copy())
