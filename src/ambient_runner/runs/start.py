"""The start of a run: the input accepted on the thread, and the run's first entries. Data in, data out."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ambient_runner.errors import PayloadTooLarge
from ambient_runner.ledger.records import RUNTIME, Fact
from ambient_runner.projections.redaction import Redactor
from ambient_runner.projections.thread_fork import FORK_MARKER
from ambient_runner.projections.thread_title import title_of_messages
from ambient_runner.projections.thread_view import FORKED, INPUT, REWOUND, RUN_OWNER, THREAD_OWNER
from ambient_runner.protocol.events import (
    MessagesSnapshot,
    RunAgentInput,
    RunStarted,
    StateSnapshot,
    ToolMessage,
    UserMessage,
    type_of,
    type_of_line,
)
from ambient_runner.protocol.limits import MAX_EVENT_BYTES
from ambient_runner.protocol.message_values import measure_messages
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.approvals import check_answers, edit_events, new_digest_key
from ambient_runner.runs.framing import run_started
from ambient_runner.runs.input_acceptance import accept_input, initial_state
from ambient_runner.runs.large_work import LARGE_BYTES
from ambient_runner.runs.lowering import LeftOut, check_media_urls, lower_messages, lower_props
from ambient_runner.runs.redaction_guard import RedactionGuard
from ambient_runner.runs.run import ResumedRun, Run
from ambient_runner.runs.storable import encode_storable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ambient_runner.config import History
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.projections.thread_fork import ForkedFact
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event, Message
    from ambient_runner.runs.input_acceptance import AcceptedInput
    from ambient_runner.runs.run import Agent, StartRequest


class NewRun(NamedTuple):
    """A run that is about to begin, and where."""

    thread: ThreadKey
    epoch: str
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedRun:
    """A run whose input is accepted. Nothing of it is written."""

    run: Run
    request: StartRequest
    accepted_input: AcceptedInput
    left_out: tuple[LeftOut, ...] = ()
    """The parts of the client's input that the agent does not get."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStart:
    """The first entries of a run, and the repairer and redactor after them."""

    facts: list[Fact]
    repairer: Repairer
    redactor: Redactor
    title: str
    """The thread's title if nobody chooses another one; empty if no user wrote a text yet."""
    removed_count: int = 0
    """Number of messages this run removes from the thread by rewinding."""


def accept_run(
    request: StartRequest,
    new_run: NewRun,
    view: ThreadView,
    agent: Agent,
    history: History,
    secrets: Secrets,
    *,
    adopt_history: bool = True,
) -> AcceptedRun:
    """Accept a request on the thread as `view` shows it. A worker thread can run it: it does no I/O and changes nothing shared.

    Raises: PendingInterrupts, InterruptNotOpen, ArgumentsChanged, ArgumentsWithheld, InvalidInput, InvalidPatch, PayloadTooLarge.
    """
    posted = request.input.messages if history == "client" else _without_repeated(request.input.messages, view)
    messages, left_out = lower_messages(posted, view.transcript.find_message)
    props, left_out_props = lower_props(request.input.forwarded_props, agent.forwarded_props)
    accepted = accept_input(
        view,
        msgspec.structs.replace(request.input, messages=messages),
        history,
        prompt=_default_prompt(request, view, agent),
        on_pending_interrupt=request.on_pending_interrupt or "reject",
        adopt_history=adopt_history,
    )
    check_answers(view, accepted)
    check_media_urls(accepted.new_messages, agent.media_url_schemes)
    state, sends_state = initial_state(view, request.input.state, agent.hidden_state)
    run = _build_run(request, new_run, view, accepted, state, props, secrets, is_state_sent=sends_state)
    return AcceptedRun(run=run, request=request, accepted_input=accepted, left_out=(*left_out, *left_out_props))


def _without_repeated(messages: list[Message], view: ThreadView) -> list[Message]:
    """Return the messages that the thread does not have, and the last one, which names where to retry.

    With history `server` the others do not count. Many clients post all of them with every run.
    """
    has_id = view.transcript.has_id
    return [*(message for message in messages[:-1] if not has_id(message.id)), *messages[-1:]]


def prepare_first_entries(
    start: AcceptedRun, view: ThreadView, announced: Sequence[Event] = (), *, forked: ForkedFact | None = None
) -> RunStart:
    """Return the run's first entries, without the secrets that are known by now. As `accept_run`, without I/O.

    `announced` follow RUN_STARTED; `forked` is the copy that the thread begins with.

    Raises: PayloadTooLarge, RedactionFailed.
    """
    run, accepted = start.run, start.accepted_input
    redactor = Redactor(run.secrets)
    new_ids = {message.id for message in accepted.new_messages}
    users = [message.id for message in accepted.conversation if type(message) is UserMessage]
    repairer = Repairer(
        run.input.thread_id, run.input.run_id, new_ids, has_id=view.transcript.has_id, user_message_ids=users
    )
    copied: list[Event] = [FORK_MARKER] if forked else []
    first: list[Event] = [_started_event(run, accepted), *copied, *announced, *edit_events(run)]
    if accepted.is_replacement and accepted.conversation:
        first.append(MessagesSnapshot(messages=list(accepted.conversation)))
    if run.is_state_sent:
        first.append(StateSnapshot(snapshot=run.input.state))
    legal = [repaired for event in first for repaired in repairer.feed(event)]
    # Encode first: an oversized input is refused without a search for secrets. Events without secrets keep these lines.
    encoded = {id(event): _encode_whole(event) for event in legal}
    with RedactionGuard():
        facts = _initial_facts(start.request, run, accepted, redactor, forked, view.transcript.has_id)
        clean = redactor.feed_batch(legal)
        lines = [encoded.get(id(event)) or _encode_whole(event) for event in clean]
    events = [Fact(owner=RUNTIME, kind="", body=line) for line in lines]
    return RunStart(
        facts=[*facts, *events],
        repairer=repairer,
        redactor=redactor,
        title=view.annotations.title or _first_title(clean),
        removed_count=accepted.removed_count,
    )


def _first_title(events: Sequence[Event]) -> str:
    """Return the title of a thread whose first run begins with these events: the same as the ThreadView folds from them."""
    started = next((event for event in events if isinstance(event, RunStarted)), None)
    return title_of_messages(started.input.messages) if started and started.input else ""


def _started_event(run: Run, accepted: AcceptedInput) -> RunStarted:
    """Return RUN_STARTED. If the client's messages replace the thread's, it has all of them: their order is the client's."""
    event = run_started(run)
    if not accepted.is_replacement or event.input is None:
        return event
    return msgspec.structs.replace(
        event, input=msgspec.structs.replace(event.input, messages=list(accepted.conversation))
    )


def _default_prompt(request: StartRequest, view: ThreadView, agent: Agent) -> UserMessage | None:
    """Return the message that replaces a missing user message. Clients need not show the one of a workflow: no user wrote it."""
    if request.prompt and view.last_run is None:
        hidden = {"hidden": True, "autoSent": True, "source": "workflow"}
        return UserMessage(id=str(uuid.uuid4()), content=request.prompt, metadata=hidden)
    return UserMessage(id=str(uuid.uuid4()), content=agent.default_prompt) if agent.default_prompt else None


def _encode_whole(event: Event) -> bytes:
    """Encode the event. A client's input that is too large is refused, not truncated. Raises: PayloadTooLarge."""
    line = encode_storable(event)
    if type_of_line(line) != type_of(event):
        raise PayloadTooLarge(f"The messages and state of this request are larger than {MAX_EVENT_BYTES} bytes.")
    return line


def _build_run(
    request: StartRequest,
    new_run: NewRun,
    view: ThreadView,
    accepted: AcceptedInput,
    state: Any,
    props: Any,
    secrets: Secrets,
    *,
    is_state_sent: bool,
) -> Run:
    return Run(
        key=new_run.key,
        thread=new_run.thread,
        epoch=new_run.epoch,
        agent=request.agent,
        actor=request.actor,
        trace_id=request.caller.trace_id if request.caller else uuid.uuid4().hex,
        caller=request.caller,
        span=request.caller,
        accepted=accepted.new_messages,
        has_input_state=request.input.state is not None,
        is_state_sent=is_state_sent,
        buffered_result_ids=accepted.buffered_result_ids,
        pending_call_ids=accepted.pending_call_ids,
        is_continuation=view.last_run is not None,
        is_fork=view.fork is not None,
        memory=_adapter_memory(view, accepted),
        headers=request.headers,
        attributes=dict(request.attributes),
        via=request.via,
        secrets=secrets,
        answered_interrupts={
            entry.interrupt_id: view.open_interrupts[entry.interrupt_id] for entry in accepted.answers
        },
        digest_key=new_digest_key(),
        resumes=_resumed_run(view, accepted),
        input=_agent_input(request.input, accepted, state, props),
        size=request.size + view.state.measure_size(LARGE_BYTES) + measure_messages(accepted.conversation, LARGE_BYTES),
    )


def _agent_input(run_input: RunAgentInput, accepted: AcceptedInput, state: Any, props: Any) -> RunAgentInput:
    """Return the input as the agent gets it."""
    return RunAgentInput(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        parent_run_id=run_input.parent_run_id,
        protocol_version=run_input.protocol_version,
        messages=list(accepted.conversation),
        tools=run_input.tools,
        context=run_input.context,
        state=state,
        forwarded_props=props,
        resume=list(accepted.answers) or None,
    )


def _resumed_run(view: ThreadView, accepted: AcceptedInput) -> ResumedRun | None:
    """Return the thread's newest run if this one answers its interrupts or tool calls."""
    answers = accepted.answers or any(isinstance(message, ToolMessage) for message in accepted.new_messages)
    return ResumedRun(run=view.last_run.key, trace_id=view.last_run.trace_id) if view.last_run and answers else None


def _adapter_memory(view: ThreadView, accepted: AcceptedInput) -> Any:
    """Return the adapter's memory, without what this run's own rewind removes."""
    rewinds = accepted.rewind_to or accepted.is_replacement
    return (view.rewound_to(accepted.rewind_to) if rewinds else view).memory


def _initial_facts(
    request: StartRequest,
    run: Run,
    accepted: AcceptedInput,
    redactor: Redactor,
    forked: ForkedFact | None,
    has_id: Callable[[str], bool],
) -> list[Fact]:
    """Return the fork's copy (if any), the input, which is never sent, and the rewind (if any). `has_id` tells which ids the thread has.

    The messages that the thread has already are left out of the input: many clients send their whole conversation with every run.
    """
    new = [message for message in request.input.messages if not has_id(message.id)]
    body = {
        "input": msgspec.structs.replace(request.input, messages=new),
        "answers": [entry.interrupt_id for entry in accepted.answers],
        "imported": list(accepted.imported),
        "clientTools": [tool.name for tool in run.input.tools],
    }
    # One search of the encoded input instead of one in each of its strings: few inputs contain a secret.
    line = msgspec.json.encode({**body, "digestKey": run.digest_key})
    if run.secrets.may_contain_secret(line):
        clean = redactor.redact_value(msgspec.to_builtins(body))
        line = msgspec.json.encode({**clean, "digestKey": run.digest_key})
    facts = [Fact(owner=RUN_OWNER, kind=INPUT, body=line)]
    if forked is not None:
        copy = msgspec.json.encode(redactor.redact_value(msgspec.to_builtins(forked)))
        facts.insert(0, Fact(owner=THREAD_OWNER, kind=FORKED, body=copy))
    if accepted.rewind_to or accepted.is_replacement:
        rewind = msgspec.json.encode({"to": accepted.rewind_to})
        facts.append(Fact(owner=THREAD_OWNER, kind=REWOUND, body=rewind))
    return facts
