"""A fork: the copy of another thread up to one of its user messages, with which a new thread begins. It is read from the ledger.

Nothing of the source changes, and the client's own messages are not believed. The copy is one fact (`projections/thread_fork.py`), written
with the first entries of the new thread's first run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.errors import InvalidInput, PayloadTooLarge, RunGone, StaleCursor, UnknownThread
from ambient_runner.projections.json_patch import json_equal
from ambient_runner.projections.known_calls import message_call_ids
from ambient_runner.projections.thread_fork import ForkedFact, ForkOrigin, messages_before, texts_only
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import UserMessage
from ambient_runner.protocol.limits import MAX_EVENT_BYTES
from ambient_runner.runs.view_cache import ThreadEpoch, load_view, read_despite_retention, require_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo, ThreadKey
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Agent, StartRequest
    from ambient_runner.runs.view_cache import ViewCache

__all__ = ["Fork", "load_fork"]

_STATE_GONE = "The state before this message is no longer retained, so the thread cannot be forked there. Fork it at a later message."
_NO_USER_MESSAGE = "A fork needs the new user message in `messages`."


@dataclass(frozen=True, kw_only=True, slots=True)
class Fork:
    """The copy, the new thread as it is with the copy alone, and the request with what is new in its input."""

    fact: ForkedFact
    view: ThreadView
    request: StartRequest
    memory: Any
    """The value that the adapter had stored in the source before that message; None for another agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """The thread that is copied, as it is now."""

    info: ThreadInfo
    view: ThreadView


async def load_fork(
    ledger: Ledger, views: ViewCache, agents: Mapping[str, Agent], request: StartRequest, origin: ForkOrigin
) -> Fork:
    """Return the copy of a thread of the request's actor. A run of that thread may be active.

    Another agent than the source's gets the texts alone, and no state.
    Raises: UnknownThread, UnknownMessage, InvalidInput; RunGone if the state is no longer retained; PayloadTooLarge; LedgerError.
    """
    source = await _read_source(ledger, views, request.actor.thread_key(origin.thread_id))
    messages = messages_before(source.view.transcript.messages(), origin.message_id)
    is_same_agent = source.info.agent == request.agent
    earlier = ThreadView()
    if is_same_agent:
        earlier = await _view_before(ledger, views, source, origin.message_id, has_messages=bool(messages))
    copied = messages if is_same_agent else texts_only(messages)
    fact = ForkedFact(
        origin=origin,
        epoch=source.info.epoch,
        messages=copied,
        state=earlier.state.visible_part(agents[request.agent].hidden_state),
        client_call_ids=sorted(source.view.client_call_ids & message_call_ids(copied)),
    )
    if len(msgspec.json.encode(fact)) > MAX_EVENT_BYTES:
        raise PayloadTooLarge(f"The conversation before this message is larger than {MAX_EVENT_BYTES} bytes.")
    view = ThreadView()
    view.begin_as_copy(fact)
    new_request = replace(request, input=_new_input(request.input, origin, source.view))
    return Fork(fact=fact, view=view, request=new_request, memory=earlier.memory)


async def _read_source(ledger: Ledger, views: ViewCache, key: ThreadKey) -> _Source:
    async def read_source() -> _Source:
        info = await require_thread(ledger, key)
        return _Source(info=info, view=await views.view_at(ThreadEpoch(info.key, info.epoch), info.last))

    return await read_despite_retention(ledger, key, read_source)


async def _view_before(
    ledger: Ledger, views: ViewCache, source: _Source, message_id: str, *, has_messages: bool
) -> ThreadView:
    """Return the source as it was before the run that accepted this message. If that run is of a thread it was copied from, that one.

    It is empty if that thread is another agent's: nothing but texts was copied from it.
    Raises: RunGone, LedgerError.
    """
    agent = source.info.agent
    while (seq := source.view.accepted_after.get(message_id)) is None:
        if not has_messages:
            return ThreadView()  # A thread begins with its first message and without a state.
        source = await _read_origin(ledger, views, source)
        if source.info.agent != agent:
            return ThreadView()
    try:
        return await load_view(ledger, source.info.key, until=seq, epoch=source.info.epoch)
    except (StaleCursor, UnknownThread) as error:
        raise RunGone(_STATE_GONE) from error


async def _read_origin(ledger: Ledger, views: ViewCache, copy: _Source) -> _Source:
    """Return the thread that this one was copied from. Raises: RunGone if it is not a copy, or that thread was erased; LedgerError."""
    fork = copy.view.fork
    if fork is None:
        raise RunGone(_STATE_GONE)
    try:
        source = await _read_source(ledger, views, copy.info.key._replace(id=fork.origin.thread_id))
    except UnknownThread as error:
        raise RunGone(_STATE_GONE) from error
    if source.info.epoch != fork.epoch:
        raise RunGone(_STATE_GONE)
    return source


def _new_input(run_input: RunAgentInput, origin: ForkOrigin, source: ThreadView) -> RunAgentInput:
    """Return the input with what is new in it: user messages that the source does not have, and the one that is replaced.

    A state that is the source's newest one is left out: a client that sends it has not changed it, and the fork's is older.
    Raises: InvalidInput.
    """
    known = source.transcript.all_ids() - {origin.message_id}
    messages = [
        message for message in run_input.messages if isinstance(message, UserMessage) and message.id not in known
    ]
    if not messages:
        raise InvalidInput(_NO_USER_MESSAGE)
    is_unchanged = json_equal(run_input.state, source.client_state)
    return msgspec.structs.replace(run_input, messages=messages, state=None if is_unchanged else run_input.state)
