"""Canonical turns of a conversation, from the AG-UI messages of any client in any order.

Every framework has its own history format with the same rules: each tool call is answered once, in the next turn. The rules are met here,
so that an adapter only maps turns one by one. `protocol/run_input.py` validates what clients send; nothing is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.protocol.events import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from ambient_runner.protocol.strict_json import is_too_deep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ambient_runner.protocol.events import Content, Message, ResumeEntry, RunAgentInput, ToolCall

__all__ = [
    "EMPTY_RESULT",
    "FORWARDED_RESULT",
    "MISSING_RESULT",
    "AssistantTurn",
    "NewInput",
    "ResultsTurn",
    "SystemTurn",
    "Turn",
    "TurnToolCall",
    "TurnToolResult",
    "UserTurn",
    "collect_tool_calls",
    "find_new_input",
    "missing_result",
    "result_from_message",
    "to_turns",
    "unanswered_tool_calls",
]

EMPTY_RESULT = "(empty)"
"""Content of an empty tool result: several providers refuse empty content."""
MISSING_RESULT = "This call was cancelled: it was never answered."
"""Content of the placeholder result of an unanswered call."""
FORWARDED_RESULT = "The call was handed to the user interface."
"""Content of the placeholder result of an unanswered call for which the model did not wait."""

_argument_decoder = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnToolCall:
    """A tool call. `arguments` is always a valid JSON object as text; `{}` if what was streamed is not one."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnToolResult:
    """The result of a call. `is_answered` is False for the placeholder of an unanswered call."""

    call_id: str
    name: str
    content: Content
    is_error: bool = False
    is_answered: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class UserTurn:
    """A user message."""

    id: str
    content: Content
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemTurn:
    """A system message."""

    id: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantTurn:
    """The agent's text and the tool calls after it. `ids` are those of all messages merged into it."""

    ids: tuple[str, ...]
    text: str = ""
    calls: tuple[TurnToolCall, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultsTurn:
    """The results of the calls of the previous turn, one for each, in their order."""

    results: tuple[TurnToolResult, ...]


Turn = UserTurn | SystemTurn | AssistantTurn | ResultsTurn


@dataclass(frozen=True, kw_only=True, slots=True)
class NewInput:
    """The new part of a run's input, and the history before it."""

    history: list[Turn]
    """The turns before the new input. Calls that `results` answers have no result here, not even a placeholder."""
    user: UserTurn | None = None
    """The user message to answer."""
    results: tuple[TurnToolResult, ...] = ()
    """The tool results to continue with, in the order of their calls."""
    resume: tuple[ResumeEntry, ...] = ()
    """The answers to interrupts."""


def to_turns(messages: Iterable[Message], *, continuing: Collection[str] = ()) -> list[Turn]:
    """Return the conversation in canonical form, which every provider accepts.

    `continuing` are client tools for whose results the model does not wait: what it writes after such a call is a turn of its own.

    Adjacent assistant messages become one turn. Every turn with calls is followed by one ResultsTurn with a result for each of them, in
    order; an unanswered call gets a placeholder (`is_answered` is False). Results of unknown calls are left out; of several for one call
    the last is used. Also left out: messages of subagents, reasoning, developer and activity messages, and empty turns.
    """
    messages_of_agent = [message for message in messages if message.subagent_run_id is None]
    builder = _TurnBuilder(
        {message.tool_call_id: message for message in messages_of_agent if isinstance(message, ToolMessage)}, continuing
    )
    for message in messages_of_agent:
        builder.add_message(message)
    return builder.finish()


def collect_tool_calls(messages: Iterable[Message]) -> list[ToolCall]:
    """Return every tool call of these messages, unchanged, including those of subagents."""
    assistant = [message for message in messages if isinstance(message, AssistantMessage)]
    return [call for message in assistant for call in message.tool_calls or ()]


def unanswered_tool_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the tool calls of these messages that have no result, including those of subagents."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    return [call for call in collect_tool_calls(messages) if call.id not in answered]


def find_new_input(
    run_input: RunAgentInput, *, new_ids: Collection[str] | None = None, continuing: Collection[str] = ()
) -> NewInput:
    """Return the new part of a run's input, and the turns before it.

    New is a user message at the end, else tool results at the end, else `resume`. `new_ids` are the messages the run added
    (`current_run().new_ids`), if known: they tell new results from old ones, also before a last user message. In a run that resumes, a user
    message is new only if it is one of them. A run that adds nothing and resumes nothing is a retry: of the results or the user message at
    the end. `continuing` as for `to_turns`.
    """
    resume = tuple(run_input.resume or ())
    new_ids = new_ids if new_ids or resume else None
    conversation = [message for message in run_input.messages if _is_conversation_message(message)]
    newest = conversation.pop() if conversation and _is_new_user_message(conversation[-1], resume, new_ids) else None
    answered = _newly_answered_ids(conversation, new_ids, trailing=newest is None)
    history = to_turns(conversation, continuing=continuing)
    results = [result for turn in history if isinstance(turn, ResultsTurn) for result in turn.results]
    return NewInput(
        history=_remove_results(history, answered),
        user=_user_turn(newest) if isinstance(newest, UserMessage) else None,
        results=tuple(result for result in results if result.call_id in answered),
        resume=resume,
    )


def _is_new_user_message(message: Message, resume: Sequence[ResumeEntry], new_ids: Collection[str] | None) -> bool:
    return isinstance(message, UserMessage) and (not resume or message.id in (new_ids or ()))


def _is_conversation_message(message: Message) -> bool:
    kinds = UserMessage | SystemMessage | AssistantMessage | ToolMessage
    return isinstance(message, kinds) and message.subagent_run_id is None


def _newly_answered_ids(messages: Sequence[Message], new_ids: Collection[str] | None, *, trailing: bool) -> set[str]:
    """Return the ids of the calls whose results are new in this run."""
    if new_ids is not None:
        results = [message for message in messages if isinstance(message, ToolMessage)]
        return {message.tool_call_id for message in results if message.id in new_ids}
    answered: set[str] = set()
    for message in reversed(messages if trailing else ()):
        if not isinstance(message, ToolMessage):
            break
        answered.add(message.tool_call_id)
    return answered


def _remove_results(history: list[Turn], answered: Collection[str]) -> list[Turn]:
    if not answered:
        return history
    remaining: list[Turn] = []
    for turn in history:
        if isinstance(turn, ResultsTurn):
            turn = ResultsTurn(results=tuple(result for result in turn.results if result.call_id not in answered))
            if not turn.results:
                continue
        remaining.append(turn)
    return remaining


@dataclass(slots=True)
class _OpenAssistantTurn:
    """An assistant turn that more messages may be merged into."""

    ids: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    calls: list[TurnToolCall] = field(default_factory=list[TurnToolCall])

    def add_message(self, message: AssistantMessage, calls: list[TurnToolCall]) -> None:
        self.ids.append(message.id)
        self.calls += calls
        if message.content:
            self.texts.append(message.content)


class _TurnBuilder:
    def __init__(self, results: Mapping[str, ToolMessage], continuing: Collection[str] = ()) -> None:
        self._results = results
        self._continuing = continuing
        self._turns: list[Turn] = []
        self._open = _OpenAssistantTurn()
        self._seen_call_ids: set[str] = set()

    def add_message(self, message: Message) -> None:
        match message:
            case AssistantMessage():
                if self._open.calls and all(call.name in self._continuing for call in self._open.calls):
                    self._close_assistant_turn()
                self._open.add_message(message, self._new_calls(message.tool_calls or ()))
            case ToolMessage() if any(call.id == message.tool_call_id for call in self._open.calls):
                self._close_assistant_turn()
            case UserMessage():
                self._close_assistant_turn()
                self._turns.append(_user_turn(message))
            case SystemMessage():
                self._close_assistant_turn()
                self._turns.append(SystemTurn(id=message.id, text=message.content))
            case _:
                pass

    def finish(self) -> list[Turn]:
        self._close_assistant_turn()
        return self._turns

    def _close_assistant_turn(self) -> None:
        done, self._open = self._open, _OpenAssistantTurn()
        if not done.texts and not done.calls:
            return
        calls = tuple(done.calls)
        self._turns.append(AssistantTurn(ids=tuple(done.ids), text="\n\n".join(done.texts), calls=calls))
        if calls:
            self._turns.append(
                ResultsTurn(results=tuple(self._result_for_call(call, self._results.get(call.id)) for call in calls))
            )

    def _result_for_call(self, call: TurnToolCall, message: ToolMessage | None) -> TurnToolResult:
        if message is not None:
            return result_from_message(message, call.name)
        if call.name in self._continuing:
            return TurnToolResult(call_id=call.id, name=call.name, content=FORWARDED_RESULT, is_answered=False)
        return missing_result(call.id, call.name)

    def _new_calls(self, calls: Iterable[ToolCall]) -> list[TurnToolCall]:
        """Return the calls whose id is new in the conversation: results could not be matched to a duplicate id."""
        new_calls: list[TurnToolCall] = []
        for call in calls:
            if call.id not in self._seen_call_ids:
                self._seen_call_ids.add(call.id)
                new_calls.append(
                    TurnToolCall(
                        id=call.id, name=call.function.name, arguments=_valid_arguments(call.function.arguments)
                    )
                )
        return new_calls


def _user_turn(message: UserMessage) -> UserTurn:
    return UserTurn(id=message.id, content=message.content, name=message.name)


def _valid_arguments(text: str) -> str:
    """Return the text if it is a JSON object, else `{}`: a stopped run may leave half of one, and a model may nest without end."""
    try:
        encoded = text.encode()
        _argument_decoder.decode(encoded)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return "{}"
    return "{}" if is_too_deep(encoded) else text


def missing_result(call_id: str, name: str = "") -> TurnToolResult:
    """Return the placeholder result of an unanswered call."""
    return TurnToolResult(call_id=call_id, name=name, content=MISSING_RESULT, is_error=True, is_answered=False)


def result_from_message(message: ToolMessage, name: str = "") -> TurnToolResult:
    """Return the result in a tool message, with content that is never empty."""
    return TurnToolResult(
        call_id=message.tool_call_id,
        name=name,
        content=message.content or message.error or EMPTY_RESULT,
        is_error=message.error is not None or (message.metadata or {}).get("isError") is True,
    )
