"""What a client posted, lowered to what this thread accepts. Pure: the thread's view and the input in, a decision out.

History `server`: the ledger is the truth; of the posted messages only new user messages and awaited tool results are taken, by id, so
nobody forges history. History `client`: the posted list is the conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ambient_runner.errors import InvalidInput, NothingToResume, PendingInterrupts
from ambient_runner.projections.json_patch import same
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    DeveloperMessage,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from ambient_runner.config import History
    from ambient_runner.projections.thread_view import OpenInterrupt, ThreadView
    from ambient_runner.protocol.events import Message, ResumeEntry, RunAgentInput


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowered:
    """What this run adds to the thread, and what its agent gets to see."""

    accepted: tuple[Message, ...]
    """Messages new to the thread."""
    conversation: tuple[Message, ...]
    """Everything the agent sees, the accepted ones included."""
    rewind_to: str = ""
    """The message after which the thread is cut first; empty for none."""
    replaces: bool = False
    """Whether the posted list replaces the thread's messages (history `client`)."""
    cut_off: int = 0
    """How many messages of the thread are no longer part of it."""
    imported: tuple[str, ...] = ()
    """Ids adopted from the client on the first run of an unknown thread."""
    answers: tuple[ResumeEntry, ...] = ()
    """The open interrupts this run answers."""


def lower(
    view: ThreadView,
    posted: RunAgentInput,
    history: History,
    now: datetime | None = None,
    *,
    prompt: UserMessage | None = None,
) -> Lowered:
    """Decide what of a posted input this thread accepts. `prompt` is the user message of an input that has nothing to answer.

    Raises: PendingInterrupts, NothingToResume, InvalidInput.
    """
    answers = _answers(view, posted.resume or [], now or datetime.now(UTC))
    if view.pending_calls:
        prompt = None  # The agent waits for results: a prompt of its own would give them up.
    if history == "client":
        return _trusted(view, _prompted(posted, answers, prompt), answers)
    if not view.transcript.messages() and view.last_run is None:
        return _first(posted, answers, prompt)
    return _merged(view, posted, answers, prompt)


def _prompted(posted: RunAgentInput, answers: tuple[ResumeEntry, ...], prompt: UserMessage | None) -> RunAgentInput:
    seen = _for_agent(posted.messages)
    if prompt is None or answers or (seen and isinstance(seen[-1], UserMessage | ToolMessage)):
        return posted
    return replace(posted, messages=[*posted.messages, prompt])


def _answers(view: ThreadView, resume: list[ResumeEntry], now: datetime) -> tuple[ResumeEntry, ...]:
    """The entries of `resume` that answer an open interrupt; together they must cover every one that has not expired."""
    opened = view.open_interrupts
    live = {name for name, asked in opened.items() if not _expired(asked, now)}
    given = {entry.interrupt_id: entry for entry in resume if entry.interrupt_id in opened}
    if resume and not given:
        raise NothingToResume
    for name, entry in given.items():
        if name not in live and entry.status == "resolved":
            raise NothingToResume(f"The interrupt {name} has expired and can only be cancelled.")
    missing = sorted(live - given.keys())
    if missing:
        raise PendingInterrupts(
            f"The last run still waits for an answer to: {', '.join(missing)}. Answer every one in `resume`."
        )
    return tuple(given.values())


def _expired(asked: OpenInterrupt, now: datetime) -> bool:
    stamp = asked.interrupt.expires_at
    try:
        expires = datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return False
    if expires is None:
        return False
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)) <= now


def _trusted(view: ThreadView, posted: RunAgentInput, answers: tuple[ResumeEntry, ...]) -> Lowered:
    stored = [message.id for message in view.transcript.messages() if not isinstance(message, ActivityMessage)]
    ids = [message.id for message in posted.messages]
    grows = ids[: len(stored)] == stored
    known = set(stored)
    return Lowered(
        accepted=tuple(message for message in posted.messages if message.id not in known),
        conversation=_for_agent(posted.messages),
        replaces=not grows,
        cut_off=len(known.difference(ids)),
        answers=answers,
    )


def _first(posted: RunAgentInput, answers: tuple[ResumeEntry, ...], prompt: UserMessage | None) -> Lowered:
    """The first run of an unknown thread adopts user and assistant text, without tool calls or system messages."""
    adopted = tuple(kept for message in posted.messages if (kept := _adoptable(message)) is not None)
    if prompt is not None and not (adopted and isinstance(adopted[-1], UserMessage)):
        adopted = (*adopted, prompt)
    if not adopted or not isinstance(adopted[-1], UserMessage):
        raise InvalidInput("There is nothing to answer: `messages` must end with a user message.")
    return Lowered(
        accepted=adopted,
        conversation=adopted,
        imported=tuple(message.id for message in adopted[:-1]),
        answers=answers,
    )


def _adoptable(message: Message) -> Message | None:
    match message:
        case UserMessage():
            return message
        case AssistantMessage(content=str(text)) if text:
            return AssistantMessage(id=message.id, content=text, name=message.name)
        case _:
            return None


def _merged(
    view: ThreadView, posted: RunAgentInput, answers: tuple[ResumeEntry, ...], prompt: UserMessage | None
) -> Lowered:
    stored = view.transcript.messages()
    known = view.transcript.ids()
    answered_calls = {view.open_interrupts[entry.interrupt_id].interrupt.tool_call_id for entry in answers}
    fresh = [message for message in posted.messages if message.id not in known]
    users = [message for message in fresh if isinstance(message, UserMessage)]
    results = [
        message
        for message in fresh
        if isinstance(message, ToolMessage)
        and message.tool_call_id in view.pending_calls
        and message.tool_call_id not in answered_calls
    ]
    accepted: tuple[Message, ...] = (*results, *users)
    if accepted or answers:
        if results and not users:
            _require_all_results(view, results)
        return Lowered(accepted=accepted, conversation=_for_agent([*stored, *accepted]), answers=answers)
    return _again(stored, posted, prompt)


def _require_all_results(view: ThreadView, results: list[ToolMessage]) -> None:
    missing = set(view.pending_calls) - {message.tool_call_id for message in results}
    if missing:
        raise InvalidInput(
            f"Tool calls still waiting for a result: {', '.join(sorted(missing))}. Send all results together."
        )


def _again(stored: list[Message], posted: RunAgentInput, prompt: UserMessage | None) -> Lowered:
    """Nothing new: a rewind to an earlier user message, another try at the last one or its results, or else the agent's own prompt."""
    target = posted.messages[-1].id if posted.messages else (stored[-1].id if stored else "")
    place = next((i for i, message in enumerate(stored) if message.id == target), None)
    if place is None or not _can_be_tried(stored, place):
        if prompt is not None:
            return Lowered(accepted=(prompt,), conversation=_for_agent([*stored, prompt]))
        raise InvalidInput(
            "There is nothing new in `messages`. Add a user message, or end the list with an earlier one to go back to it."
        )
    return Lowered(
        accepted=(),
        conversation=_for_agent(stored[: place + 1]),
        rewind_to="" if place == len(stored) - 1 else target,
        cut_off=len(stored) - 1 - place,
    )


def _can_be_tried(stored: list[Message], place: int) -> bool:
    """Whether a run may begin here again: at anything the user said, and at results after which nothing was said."""
    return isinstance(stored[place], UserMessage) or (
        place == len(stored) - 1 and isinstance(stored[place], ToolMessage)
    )


def _for_agent(messages: list[Message]) -> tuple[Message, ...]:
    """Developer messages coming back from clients never reach a model; activity is for clients only."""
    return tuple(message for message in messages if not isinstance(message, DeveloperMessage | ActivityMessage))


def seen_state(view: ThreadView, posted: Any, hidden: frozenset[str]) -> tuple[Any, bool]:
    """The state this run begins with, and whether clients have to be told.

    A client that posts what it last saw changed nothing, so a patch made since then stays; anything else replaces the visible keys.
    """
    current = view.state.visible(hidden)
    stale = posted is None or posted == {} or same(posted, view.state_seen)
    if stale:
        return view.state.value, not same(current, view.state_seen)
    merged = view.state.replace_visible(posted, hidden)
    return merged, not same(merged, view.state.value)
