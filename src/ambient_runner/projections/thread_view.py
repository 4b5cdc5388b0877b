"""A whole thread, folded from the ledger: messages, state, the last run, open interrupts, pending frontend tool calls, annotations and the
adapter's memory.

Runs, admission and recovery use this view instead of reading events. The facts other than events that it folds are named
here; those of unknown owners are ignored. Retention stores `to_checkpoint` in place of the entries it deletes, and runs store
`update_checkpoint` now and then, so that a fold of a long thread starts there (`view_checkpoint.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import Refused
from ambient_runner.ledger.records import RUNTIME, CheckpointUpdate
from ambient_runner.projections.adapter_memory import AdapterMemory
from ambient_runner.projections.annotations import Annotations
from ambient_runner.projections.checkpoint_parts import (
    StoredCheckpoint,
    StoredMessages,
    drop_small_parts,
    encode_messages,
    find_kept_parts,
)
from ambient_runner.projections.delta_text import join_deltas_at
from ambient_runner.projections.open_interrupts import OpenInterrupt, OpenInterrupts
from ambient_runner.projections.private_entries import MEMORY_EVENT, is_private, parse_correction
from ambient_runner.projections.state import SharedState
from ambient_runner.projections.state_patch import decode_key_changes
from ambient_runner.projections.thread_fork import ForkedFact, ThreadFork
from ambient_runner.projections.thread_title import title_of_messages
from ambient_runner.projections.transcript import Transcript
from ambient_runner.projections.view_checkpoint import (
    CHECKPOINT_VERSION,
    RunSummary,
    ViewCheckpoint,
    decode_checkpoint,
)
from ambient_runner.protocol.dropped_events import dropped_tool_names, is_dropped_event
from ambient_runner.protocol.events import (
    DELTA_TYPES,
    Cancelled,
    Custom,
    Interrupted,
    Message,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    Success,
    Terminal,
    TextMessageEnd,
    TextMessageStart,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    UserMessage,
    decode_event,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ambient_runner.ledger.records import Batch
    from ambient_runner.protocol.events import Event

__all__ = [
    "APPROVALS_OWNER",
    "FORKED",
    "INPUT",
    "INTERRUPTS_CANCELLED",
    "LABELLED",
    "PATCHED",
    "REWOUND",
    "RUN_OWNER",
    "STATE_OWNER",
    "THREAD_OWNER",
    "RunSummary",
    "ThreadView",
]

RUN_OWNER, INPUT = "ambient.run", "input"
"""`{"input": RunAgentInput, "answers": [interruptId], "imported": [messageId], "clientTools": [name], "digestKey": key}`, immediately
before RUN_STARTED. The input has those of the posted messages that the thread did not have. `clientTools` are the tools that the client
executes."""
THREAD_OWNER, REWOUND = "ambient.thread", "rewound"
"""`{"to": messageId}`: every message after that one leaves the conversation; all of them if `to` is empty."""
FORKED = "forked"
"""Of the owner `ambient.thread`, the first entry of a thread that began as a copy of another: see `thread_fork.ForkedFact`."""
LABELLED = "labelled"
"""Of the owner `ambient.thread`: `{"title"?: text, "archived"?: bool}`, as someone chose them."""
APPROVALS_OWNER, INTERRUPTS_CANCELLED = "ambient.approvals", "interrupts_cancelled"
"""`{"interruptIds": [interruptId]}`: these interrupts are no longer open. No run answers them."""
STATE_OWNER, PATCHED = "ambient.state", "patched"
"""`{"patch": operations}`: a client changed the visible state between runs."""

_MESSAGE_ONLY_TYPES = DELTA_TYPES | {
    TextMessageStart,
    TextMessageEnd,
    ToolCallEnd,
    ReasoningMessageStart,
    ReasoningMessageEnd,
}
"""Types of events that change the messages and nothing else of a thread: nearly all events."""
_VIEW_BYTES = 4096
"""Bytes that a view takes besides what it holds."""
_BYTES_PER_ID = 200
_BYTES_PER_STATE_BYTE = 6
"""Bytes of memory for each byte of a state's JSON, about."""
_MAX_MEASURED_STATE = 16 << 20


class _InputFact(msgspec.Struct, rename="camel"):
    answers: list[str] = []
    digest_key: str = ""
    client_tools: list[str] = []


class _RewoundFact(msgspec.Struct):
    to: str


class _CancelledFact(msgspec.Struct, rename="camel"):
    interrupt_ids: list[str]


class _PatchedFact(msgspec.Struct):
    patch: Any


class ThreadView:
    """The thread as of `seq`. `hidden` names the state keys that clients do not see (`state.is_hidden`)."""

    __slots__ = (
        "_calls_of_run",
        "_first_restated",
        "_interrupts",
        "_is_end_unknown",
        "_memory",
        "_seq_before_run",
        "_state_at_end",
        "_ts",
        "accepted_after",
        "annotations",
        "buffered_results",
        "checkpoint",
        "client_call_ids",
        "client_tools",
        "created",
        "folded_bytes",
        "fork",
        "hidden",
        "last_run",
        "pending_calls",
        "seq",
        "state",
        "transcript",
        "updated",
    )

    def __init__(self, *, hidden: Collection[str] = ()) -> None:
        self.seq = 0
        self.hidden = hidden
        self.transcript = Transcript()
        self.state = SharedState()
        self.last_run: RunSummary | None = None
        self.pending_calls: dict[str, str] = {}
        """Tool names of the frontend tool calls that wait for the client's result, by call id."""
        self.buffered_results: list[str] = []
        """Ids of the client's tool messages that wait for the results of other pending calls; no run has used them yet."""
        self.client_tools: frozenset[str] = frozenset()
        """Names of the tools that the client of the last run executes."""
        self.client_call_ids: set[str] = set()
        """Ids of the calls of such tools in all runs. One whose result the agent sends itself is not the client's."""
        self.annotations = Annotations()
        self.created = 0
        """Commit time of the first entry, in milliseconds since 1970; 0 if it is not known."""
        self.updated = 0
        """Time of the last start or end of a run or fact outside of runs, in milliseconds since 1970; 0 if it is not known."""
        self.fork: ThreadFork | None = None
        """The origin of the thread, if it began as a copy."""
        self.accepted_after: dict[str, int] = {}
        """The seq of the entry before the run that accepted a user message, by message id. Of those that retention's checkpoint covers
        there is none: their entries are gone."""
        self.checkpoint: StoredCheckpoint | None = None
        """The newest stored checkpoint that is known here."""
        self.folded_bytes = 0
        """Bytes of the entries that were folded since that checkpoint."""
        self._first_restated = 0
        """The first entry that may restate the messages, by a rewind or a correction; 0 if none does, -1 if that is not known."""
        self._seq_before_run: int | None = None
        """The seq of the entry before the input of the last run; None if a checkpoint covers it."""
        self._ts = 0
        """Commit time of the entries that are being folded; 0 if it is not known."""
        self._calls_of_run: set[str] = set()
        """Ids of the client's tool calls in the last run."""
        self._state_at_end: Any = {}
        self._is_end_unknown = False
        self._interrupts = OpenInterrupts()
        self._memory = AdapterMemory()

    @property
    def memory(self) -> Any:
        """The value that the adapter stored last, decoded anew for every caller; None if there is none."""
        return self._memory.value

    @property
    def open_interrupts(self) -> Mapping[str, OpenInterrupt]:
        """The interrupts that wait for an answer, by id; also those that the current run has not acted on."""
        return self._interrupts.by_id

    @property
    def client_state(self) -> Any:
        """The visible state at the last terminal event, which clients have."""
        return SharedState(self._state_at_end).visible_part(self.hidden)

    @property
    def feedback(self) -> dict[str, str]:
        """The newest feedback on the messages that the thread has, by message id."""
        found = self.annotations.feedback
        return {name: value for name, value in found.items() if self.transcript.has_message(name)}

    def apply(self, batch: Batch) -> None:
        """Fold the new entries of this batch. Entries already folded are skipped."""
        self.folded_bytes += batch.size
        new = batch.lines[max(0, self.seq + 1 - batch.first) :]
        is_whole = len(new) == len(batch.lines) and not self._interrupts.has_answers
        self._ts = batch.ts
        self.created = self.created or batch.ts
        if batch.text is not None and is_whole:
            self.transcript.append_text(batch.text.message_id, batch.text.text)
        elif batch.events and is_whole:
            self._apply_events(batch.run, batch.events)
        elif batch.owner == RUNTIME:
            self._apply_lines(batch.run, new)
        else:
            for body in new:
                self._apply_fact(batch.owner, batch.kind, body)
            if new and not batch.run:
                self.updated = batch.ts or self.updated
        self.transcript.settle_if_many()
        self.seq = max(self.seq, batch.last)
        if self._is_end_unknown and batch.owner == RUNTIME:
            self._record_end(batch.last)

    def _record_end(self, seq: int) -> None:
        """Record the seq of the last run's terminal event, which is the last entry of its batch."""
        self._is_end_unknown = False
        if self.last_run is not None:
            self.last_run = replace(self.last_run, end=seq)

    def _apply_events(self, run: str, events: Sequence[object]) -> None:
        """Fold the events that a batch was passed with, and the lines among them."""
        lines: list[bytes] = []
        for event in events:
            if type(event) is bytes:
                lines.append(event)
                continue
            if lines:
                self._apply_lines(run, lines)
                lines = []
            self.apply_event(run, cast("Event", event))
        self._apply_lines(run, lines)

    def _apply_lines(self, run: str, lines: Sequence[bytes]) -> None:
        at = 0
        while at < len(lines):
            end = at if self._interrupts.has_answers else self._apply_together(run, lines, at)
            if end == at:
                self.apply_event(run, decode_event(lines[at]))
                end += 1
            at = end

    def _apply_together(self, run: str, lines: Sequence[bytes], at: int) -> int:
        """Fold deltas of messages, or patches of the state, that are at this line and after it. Return the index after the last of them."""
        if (joined := join_deltas_at(lines, at)) is not None:
            for delta in joined[0]:
                self.transcript.apply(delta)
            return joined[1]
        decoded = decode_key_changes(lines, at)
        if decoded is None:
            return at
        if not self.state.try_set_keys(decoded.changes, decoded.size):
            for line in lines[at : decoded.end]:
                self.apply_event(run, decode_event(line))
        return decoded.end

    def apply_event(self, run: str, event: Event) -> None:
        """Fold one event of this run. `seq` does not change: `apply` updates it per batch."""
        self.transcript.apply(event)
        if self._interrupts.has_answers:
            self._interrupts.consume_answers(event)
        if type(event) not in _MESSAGE_ONLY_TYPES:
            self._apply_besides_messages(run, event)

    def _apply_besides_messages(self, run: str, event: Event) -> None:
        """Fold an event into everything but the messages."""
        match event:
            case StateDelta() | StateSnapshot():
                self.state.apply(event)
            case RunStarted():
                self._apply_run_started(run, event)
            case ToolCallStart():
                if event.tool_call_name in self.client_tools:
                    self.client_call_ids.add(event.tool_call_id)
                    self._calls_of_run.add(event.tool_call_id)
            case ToolCallResult():
                self.pending_calls.pop(event.tool_call_id, None)
                if event.tool_call_id in self._calls_of_run:
                    self.client_call_ids.discard(event.tool_call_id)
            case RunFinished():
                self._apply_run_finished(run, event)
            case RunError():
                self._end_run(run, event)
            case Custom() if is_private(event):
                self._apply_private(run, event)
            case Custom() if is_dropped_event(event):
                self.client_tools = self.client_tools.difference(dropped_tool_names(event))
            case _:
                pass

    def _apply_run_started(self, run: str, event: RunStarted) -> None:
        trace_id = str((event.metadata or {}).get("traceId", ""))
        self.last_run = RunSummary(key=run, run_id=event.run_id, trace_id=trace_id, started=self._ts)
        self.updated = self._ts or self.updated
        self._memory.anchor = self.transcript.newest_id()
        self._calls_of_run = set()
        messages = event.input.messages if event.input else []
        self.annotations.title = self.annotations.title or title_of_messages(messages)
        for message in messages:
            match message:
                case UserMessage():
                    if self._seq_before_run is not None:
                        self.accepted_after.setdefault(message.id, self._seq_before_run)
                    self.pending_calls.clear()
                case ToolMessage():
                    if self.pending_calls.pop(message.tool_call_id, None) is not None:
                        self.buffered_results.append(message.id)
                case _:
                    pass
        if not self.pending_calls:
            self.buffered_results = []  # this run uses them

    def _apply_run_finished(self, run: str, event: RunFinished) -> None:
        match event.outcome:
            case Cancelled():
                pass
            case Interrupted(interrupts=interrupts):
                self._interrupts.replace_all(run, interrupts, self.transcript)
            case Success() | None:
                self._interrupts.drop_answered()
                named = event.outcome.pending_tool_call_ids if event.outcome else None
                self.pending_calls.update({call: self._tool_name(call) for call in named or ()})
        self._end_run(run, event)

    def _end_run(self, run: str, event: Terminal) -> None:
        known = self.last_run
        if known is None or known.key != run:
            known = RunSummary(key=run, run_id="")
        self.last_run = replace(known, terminal=event, ended=self._ts)
        self.updated = self._ts or self.updated
        self._is_end_unknown = True
        self._state_at_end = self.state.value
        self._interrupts.end_run()

    def _apply_private(self, run: str, event: Custom) -> None:
        """Apply a private entry: a correction of the history, or a value for the adapter's next run."""
        correction = parse_correction(event)
        if correction is not None:
            self._record_restatement()
            self.transcript.apply_correction(correction.messages, correction.gone)
        elif event.name == MEMORY_EVENT:
            self._memory.store(run, event.value)

    def _rewind_to(self, to: str) -> None:
        """Remove every message after this one, and the memories of the runs that produced them."""
        self.transcript.rewind(to)
        if to:  # Without it, a client's own messages replace all of them, and some come back.
            kept = self.accepted_after.items()
            self.accepted_after = {name: seq for name, seq in kept if self.transcript.has_message(name)}
        self.pending_calls.clear()
        self.buffered_results = []
        self._memory.rewind(to, self.transcript)

    def _record_restatement(self) -> None:
        self._first_restated = self._first_restated or self.seq + 1

    def is_restated_up_to(self, seq: int) -> bool:
        """Return True if the messages may have been restated, by a rewind or a correction, in an entry up to this one."""
        return self._first_restated < 0 or 0 < self._first_restated <= seq

    def rewound_to(self, to: str) -> ThreadView:
        """Return the thread after a rewind to this message. This view does not change."""
        copied = self.copy()
        copied._rewind_to(to)
        return copied

    def _tool_name(self, tool_call_id: str) -> str:
        call = self.transcript.find_call(tool_call_id)
        return call.function.name if call else ""

    def _apply_fact(self, owner: str, kind: str, body: bytes) -> None:
        match owner, kind:
            case "ambient.run", "input":
                fact = msgspec.json.decode(body, type=_InputFact)
                self._seq_before_run = self.seq
                self.client_tools = frozenset(fact.client_tools)
                self._interrupts.start_run(fact.answers, fact.digest_key)
            case "ambient.thread", "rewound":
                self._record_restatement()
                self._rewind_to(msgspec.json.decode(body, type=_RewoundFact).to)
            case "ambient.thread", "forked":
                self.begin_as_copy(msgspec.json.decode(body, type=ForkedFact))
            case "ambient.thread", "labelled":
                self.annotations.apply_labelled(body)
            case "ambient.feedback", "feedback":
                self.annotations.apply_feedback(body)
            case "ambient.approvals" | "ambient.thread", "interrupts_cancelled":
                self._interrupts.cancel(msgspec.json.decode(body, type=_CancelledFact).interrupt_ids)
            case "ambient.state", "patched":
                self._apply_client_patch(msgspec.json.decode(body, type=_PatchedFact).patch)
            case _:
                pass

    def begin_as_copy(self, fact: ForkedFact) -> None:
        """Begin the thread with what was copied into it. No client has seen its state yet."""
        self.fork = ThreadFork(origin=fact.origin, epoch=fact.epoch, copied_count=len(fact.messages))
        self.transcript = Transcript(fact.messages)
        self.state = SharedState.from_stored(fact.state)
        self.client_call_ids = set(fact.client_call_ids)
        self.annotations.title = title_of_messages(fact.messages)

    def _apply_client_patch(self, operations: Any) -> None:
        try:
            self.state = SharedState(
                self.state.with_client_patch(operations, self.hidden), failed_count=self.state.failed_count
            )
        except Refused:
            self.state.failed_count += 1

    def copy(self) -> ThreadView:
        """Return an independent view. Messages and state values are shared: neither view changes them in place."""
        copied = ThreadView(hidden=self.hidden)
        copied.seq, copied.created, copied.updated = self.seq, self.created, self.updated
        copied.annotations = self.annotations.copy()
        copied.transcript = self.transcript.copy()
        copied.state = self.state.copy()
        copied.last_run = self.last_run
        copied._interrupts, copied._memory = self._interrupts.copy(), self._memory.copy()
        copied.pending_calls, copied.buffered_results = dict(self.pending_calls), list(self.buffered_results)
        copied._state_at_end, copied._is_end_unknown = self._state_at_end, self._is_end_unknown
        copied.client_tools, copied.client_call_ids = self.client_tools, set(self.client_call_ids)
        copied._calls_of_run = set(self._calls_of_run)
        copied.fork, copied.accepted_after = self.fork, dict(self.accepted_after)
        copied._seq_before_run, copied._first_restated = self._seq_before_run, self._first_restated
        copied.checkpoint, copied.folded_bytes = self.checkpoint, self.folded_bytes
        return copied

    @property
    def estimated_bytes(self) -> int:
        """Memory that the view takes, about. Messages that it shares with other views count too."""
        state = _BYTES_PER_STATE_BYTE * self.state.measure_size(_MAX_MEASURED_STATE)
        ids = _BYTES_PER_ID * (len(self.accepted_after) + len(self.client_call_ids) + len(self.annotations.feedback))
        return _VIEW_BYTES + self.transcript.estimated_bytes + state + ids + self._memory.size

    def to_checkpoint(self) -> bytes:
        """Return everything but `seq` and `hidden` as one line of JSON, for retention. Works during a run, too."""
        return msgspec.json.encode(self._to_view_checkpoint(self.transcript.messages(), {}))

    def update_checkpoint(self, stored_parts: Sequence[int]) -> CheckpointUpdate:
        """Return the checkpoint to store now. It keeps those of the stored parts that have not changed since this view knows them.

        It counts as stored from now on. If it is not, the next one is written later, and what it keeps follows from its `stored_parts`.
        """
        messages = self.transcript.messages()
        known = self.checkpoint.parts if self.checkpoint else ()
        kept = drop_small_parts(find_kept_parts(messages, known, stored_parts))
        new = tuple(messages[sum(len(part.messages) for part in kept) :])
        update = CheckpointUpdate(
            seq=self.seq,
            body=msgspec.json.encode(self._to_view_checkpoint([], self.accepted_after)),
            kept_parts=tuple(part.seq for part in kept),
            new_part=encode_messages(new) if new else b"",
        )
        parts = (*kept, StoredMessages(self.seq, new, len(update.new_part))) if new else kept
        self.checkpoint = StoredCheckpoint(self.seq, len(update.body), parts)
        self.folded_bytes = 0
        return update

    def _to_view_checkpoint(self, messages: list[Message], accepted_after: dict[str, int]) -> ViewCheckpoint:
        return ViewCheckpoint(
            version=CHECKPOINT_VERSION,
            messages=messages,
            state=self.state.value,
            failed=self.state.failed_count,
            seen=self._state_at_end,
            last_run=self.last_run,
            interrupts=list(self.open_interrupts.values()),
            pending_calls=self.pending_calls,
            memories=self._memory.runs,
            anchor=self._memory.anchor,
            removed_ids=sorted(self.transcript.removed_ids),
            withdrawn_ids=sorted(self.transcript.withdrawn_ids),
            buffered_results=self.buffered_results,
            digest_key=self._interrupts.digest_key,
            client_tools=sorted(self.client_tools),
            client_call_ids=sorted(self.client_call_ids),
            calls_of_run=sorted(self._calls_of_run),
            annotations=self.annotations,
            created=self.created,
            updated=self.updated,
            fork=self.fork,
            accepted_after=accepted_after,
            first_restated=self._first_restated,
        )

    @classmethod
    def from_checkpoint(cls, seq: int, body: bytes, *, hidden: Collection[str] = ()) -> ThreadView:
        """Return the view of a checkpoint. Raises: LedgerError if a newer version of this program wrote it."""
        stored = decode_checkpoint(body)
        view = cls(hidden=hidden)
        view.seq = seq
        view.transcript = Transcript(stored.messages, stored.removed_ids, stored.withdrawn_ids)
        view.state = SharedState.from_stored(stored.state, failed_count=stored.failed)
        view.last_run = stored.last_run
        view._interrupts = OpenInterrupts(stored.interrupts, stored.digest_key)
        view._memory = AdapterMemory.from_stored(stored.memories, stored.anchor)
        view.pending_calls, view.buffered_results = stored.pending_calls, stored.buffered_results
        view._state_at_end = SharedState.from_stored(stored.seen).value
        view.client_tools, view.client_call_ids = frozenset(stored.client_tools), set(stored.client_call_ids)
        view._calls_of_run = set(stored.calls_of_run)
        view.annotations, view.created, view.updated = stored.annotations, stored.created, stored.updated
        view.fork, view.accepted_after = stored.fork, stored.accepted_after
        view._first_restated = stored.first_restated
        # The body of retention's checkpoint has the messages too; one of a run does not, and only that is written anew each time.
        view.checkpoint = StoredCheckpoint(seq, 0 if stored.messages else len(body), ())
        if not view.annotations.title:  # A checkpoint of an earlier version has none.
            view.annotations.title = title_of_messages(stored.messages)
        return view
