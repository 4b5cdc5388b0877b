"""How a run begins: the posted input lowered against the thread, and the first entries that say so. Data in, data out."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.errors import TooLarge
from ambient_runner.ledger.base import RUNTIME, Fact
from ambient_runner.projections.redaction import Redactor
from ambient_runner.projections.thread_view import INPUT, REWOUND, RUN_OWNER, THREAD_OWNER
from ambient_runner.protocol.events import (
    MessagesSnapshot,
    RunAgentInput,
    StateSnapshot,
    ToolMessage,
    UserMessage,
    kind_of,
    type_of,
)
from ambient_runner.protocol.limits import MAX_EVENT
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.framing import run_started
from ambient_runner.runs.input_acceptance import lower, seen_state
from ambient_runner.runs.pipeline import storable
from ambient_runner.runs.run import Resumed, Run

if TYPE_CHECKING:
    from ambient_runner.config import History
    from ambient_runner.ledger.base import Writer
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.input_acceptance import Lowered
    from ambient_runner.runs.run import Agent, Announce, StartRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """An accepted run, its first entries, and the states of grammar and redaction after them."""

    run: Run
    facts: list[Fact]
    repairer: Repairer
    redactor: Redactor
    cut_off: int = 0
    """How many messages of the thread this run goes back behind."""


def open_run(
    request: StartRequest,
    writer: Writer,
    view: ThreadView,
    agent: Agent,
    history: History,
    secrets: Secrets,
    announce: Announce = lambda run: (),
) -> Opening:
    """Accept a request on the thread as `view` shows it.

    Raises: PendingInterrupts, NothingToResume, InvalidInput, TooLarge.
    """
    lowered = lower(view, request.input, history, prompt=_prompt(request, view, agent))
    state, is_news = seen_state(view, request.input.state, agent.hidden_state)
    run = replace(_accepted(request, writer, view, lowered, state, secrets), is_state_told=is_news)
    redactor = Redactor(secrets)
    known = view.transcript.ids().union(message.id for message in lowered.conversation)
    users = [message.id for message in lowered.conversation if isinstance(message, UserMessage)]
    repairer = Repairer(run.input.thread_id, run.input.run_id, known, users=users)
    first: list[Event] = [run_started(run), *announce(run)]
    if lowered.replaces and lowered.conversation:
        first.append(MessagesSnapshot(messages=list(lowered.conversation)))
    if is_news:
        first.append(StateSnapshot(snapshot=state))
    legal = [one for event in first for one in repairer.feed(event)]
    lines = [_whole(clean) for event in legal for clean in redactor.feed(event)]
    events = [Fact(owner=RUNTIME, kind="", body=line) for line in lines]
    return Opening(
        run=run,
        facts=[*_facts(request, lowered, redactor), *events],
        repairer=repairer,
        redactor=redactor,
        cut_off=lowered.cut_off,
    )


def _prompt(request: StartRequest, view: ThreadView, agent: Agent) -> UserMessage | None:
    """What stands in for a user message. Nobody typed it, so clients need not show the one that comes with a workflow."""
    if request.prompt and view.last_run is None:
        unseen = {"hidden": True, "autoSent": True, "source": "workflow"}
        return UserMessage(id=str(uuid.uuid4()), content=request.prompt, metadata=unseen)
    return UserMessage(id=str(uuid.uuid4()), content=agent.default_prompt) if agent.default_prompt else None


def _whole(event: Event) -> bytes:
    """The event's line. What a client brought is refused rather than cut. Raises: TooLarge."""
    line = storable(event)
    if kind_of(line) != type_of(event):
        raise TooLarge(f"What this request adds to the thread is larger than {MAX_EVENT} bytes.")
    return line


def _accepted(
    request: StartRequest, writer: Writer, view: ThreadView, lowered: Lowered, state: Any, secrets: Secrets
) -> Run:
    asked = request.input
    return Run(
        key=writer.run,
        thread=writer.thread,
        agent=request.agent,
        actor=request.actor,
        trace_id=request.caller.trace_id if request.caller else uuid.uuid4().hex,
        caller=request.caller,
        span=request.caller,
        accepted=lowered.accepted,
        is_continuation=view.last_run is not None,
        memory=_memory(view, lowered),
        headers=request.headers,
        via=request.via,
        secrets=secrets,
        resumes=_resumed(view, lowered),
        input=RunAgentInput(
            thread_id=asked.thread_id,
            run_id=asked.run_id,
            parent_run_id=asked.parent_run_id,
            protocol_version=asked.protocol_version,
            messages=list(lowered.conversation),
            tools=asked.tools,
            context=asked.context,
            state=state,
            forwarded_props=asked.forwarded_props,
            resume=list(lowered.answers) or None,
        ),
    )


def _resumed(view: ThreadView, lowered: Lowered) -> Resumed | None:
    """The newest run, when this one brings what it waits for."""
    answers = lowered.answers or any(isinstance(message, ToolMessage) for message in lowered.accepted)
    return Resumed(run=view.last_run.key, trace_id=view.last_run.trace_id) if view.last_run and answers else None


def _memory(view: ThreadView, lowered: Lowered) -> Any:
    """What the adapter remembers, without what the rewind of this very run makes it forget."""
    rewinds = lowered.rewind_to or lowered.replaces
    return (view.rewound(lowered.rewind_to) if rewinds else view).memory


def _facts(request: StartRequest, lowered: Lowered, redactor: Redactor) -> list[Fact]:
    """The full input, kept without a projector, and a rewind if there is one."""
    body = {
        "input": msgspec.to_builtins(request.input),
        "answers": [entry.interrupt_id for entry in lowered.answers],
        "imported": list(lowered.imported),
    }
    facts = [Fact(owner=RUN_OWNER, kind=INPUT, body=msgspec.json.encode(redactor.redact_value(body)))]
    if lowered.rewind_to or lowered.replaces:
        rewind = msgspec.json.encode({"to": lowered.rewind_to})
        facts.append(Fact(owner=THREAD_OWNER, kind=REWOUND, body=rewind))
    return facts
