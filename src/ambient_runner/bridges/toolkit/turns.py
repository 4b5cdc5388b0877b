"""The conversation as a model has to see it: canonical turns, made from AG-UI messages of any client in any order.

Every framework has its own history format and the same demands on it: a call is answered, in the next turn, once. This is where they are
met, so that an adapter only maps turns one by one. `inbound.py` reads what clients post; here nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.protocol.events import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from ambient_runner.protocol.strict_json import too_deep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ambient_runner.protocol.events import Content, Message, ResumeEntry, RunAgentInput, ToolCall

__all__ = [
    "EMPTY_RESULT",
    "NO_RESULT",
    "AssistantTurn",
    "Call",
    "Incoming",
    "Result",
    "ResultsTurn",
    "SystemTurn",
    "Turn",
    "UserTurn",
    "calls_of",
    "incoming",
    "no_result",
    "result_of",
    "turns",
]

EMPTY_RESULT = "(empty)"
"""What a model reads for a result that says nothing: several providers refuse an empty one."""
NO_RESULT = "This call was cancelled: it was never answered."
"""What a model reads for a call that nobody answered."""

_arguments = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A tool call. `arguments` is always the text of a JSON object that every parser takes, `{}` when what was streamed is not one."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a call gave. `given` is False for one that was made up because nobody answered."""

    call_id: str
    name: str
    content: Content
    is_error: bool = False
    given: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class UserTurn:
    id: str
    content: Content
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemTurn:
    id: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantTurn:
    """What the agent said and then called. `ids` are those of all messages it was made from."""

    ids: tuple[str, ...]
    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultsTurn:
    """The results of the turn before, one for each of its calls, in their order."""

    results: tuple[Result, ...]


Turn = UserTurn | SystemTurn | AssistantTurn | ResultsTurn


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """What a run is about, and what was before."""

    history: list[Turn]
    """Everything before what is new. Calls that `results` answers have no result in here, neither a made-up one."""
    user: UserTurn | None = None
    """The user message to answer."""
    results: tuple[Result, ...] = ()
    """The tool results to go on with, in the order of their calls."""
    resume: tuple[ResumeEntry, ...] = ()
    """The answers to interrupts."""


def turns(messages: Iterable[Message]) -> list[Turn]:
    """The conversation in canonical form: nothing is left for a provider to refuse.

    Neighbouring assistant messages become one turn. Every turn with calls is followed by one ResultsTurn that answers each of them, in
    order; where nobody did, by a Result that is not `given`. Results of unknown calls are left out; of several for one call the last
    counts. Left out as well: what subagents said, reasoning, developer and activity messages, and turns that say nothing.
    """
    own = [message for message in messages if message.subagent_run_id is None]
    build = _Builder({message.tool_call_id: message for message in own if isinstance(message, ToolMessage)})
    for message in own:
        build.add(message)
    return build.finish()


def calls_of(messages: Iterable[Message]) -> list[ToolCall]:
    """Every tool call of these messages, as it was made: also those of subagents."""
    return [call for one in messages if isinstance(one, AssistantMessage) for call in one.tool_calls or ()]


def incoming(run: RunAgentInput, *, new: Collection[str] | None = None) -> Incoming:
    """What is new in a run's input, and the turns before it.

    A user message at the end is what the run is about; tool results at the end are, if there are any; else `resume` is. `new` names the
    messages the run added (`current_run().new_ids`), where that is known: results before a last user message, and results that were
    there before, are then told apart. A run that resumes is about a user message only if that is one of them. A run that adds nothing and
    resumes nothing is another try, at the results at the end or at the user message there.
    """
    resume = tuple(run.resume or ())
    new = new if new or resume else None
    own = [message for message in run.messages if _counts(message)]
    asked = own.pop() if own and _asks(own[-1], resume, new) else None
    answered = _answered_now(own, new, trailing=asked is None)
    history = turns(own)
    results = [result for turn in history if isinstance(turn, ResultsTurn) for result in turn.results]
    return Incoming(
        history=_without(history, answered),
        user=_user(asked) if isinstance(asked, UserMessage) else None,
        results=tuple(result for result in results if result.call_id in answered),
        resume=resume,
    )


def _asks(message: Message, resume: Sequence[ResumeEntry], new: Collection[str] | None) -> bool:
    return isinstance(message, UserMessage) and (not resume or message.id in (new or ()))


def _counts(message: Message) -> bool:
    kinds = UserMessage | SystemMessage | AssistantMessage | ToolMessage
    return isinstance(message, kinds) and message.subagent_run_id is None


def _answered_now(messages: Sequence[Message], new: Collection[str] | None, *, trailing: bool) -> set[str]:
    """The calls whose results are what this run brings."""
    if new is not None:
        return {one.tool_call_id for one in messages if isinstance(one, ToolMessage) and one.id in new}
    answered: set[str] = set()
    for message in reversed(messages if trailing else ()):
        if not isinstance(message, ToolMessage):
            break
        answered.add(message.tool_call_id)
    return answered


def _without(history: list[Turn], answered: Collection[str]) -> list[Turn]:
    if not answered:
        return history
    kept: list[Turn] = []
    for turn in history:
        if isinstance(turn, ResultsTurn):
            turn = ResultsTurn(results=tuple(one for one in turn.results if one.call_id not in answered))
            if not turn.results:
                continue
        kept.append(turn)
    return kept


@dataclass(slots=True)
class _Building:
    """An assistant turn that may go on."""

    ids: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])

    def add(self, message: AssistantMessage, calls: list[Call]) -> None:
        self.ids.append(message.id)
        self.calls += calls
        if message.content:
            self.texts.append(message.content)


class _Builder:
    def __init__(self, results: Mapping[str, ToolMessage]) -> None:
        self._results = results
        self._turns: list[Turn] = []
        self._open = _Building()
        self._called: set[str] = set()

    def add(self, message: Message) -> None:
        match message:
            case AssistantMessage():
                self._open.add(message, self._new_calls(message.tool_calls or ()))
            case ToolMessage() if any(call.id == message.tool_call_id for call in self._open.calls):
                self._close()
            case UserMessage():
                self._close()
                self._turns.append(_user(message))
            case SystemMessage():
                self._close()
                self._turns.append(SystemTurn(id=message.id, text=message.content))
            case _:
                pass

    def finish(self) -> list[Turn]:
        self._close()
        return self._turns

    def _close(self) -> None:
        done, self._open = self._open, _Building()
        if not done.texts and not done.calls:
            return
        calls = tuple(done.calls)
        self._turns.append(AssistantTurn(ids=tuple(done.ids), text="\n\n".join(done.texts), calls=calls))
        if calls:
            self._turns.append(ResultsTurn(results=tuple(_result(call, self._results.get(call.id)) for call in calls)))

    def _new_calls(self, calls: Iterable[ToolCall]) -> list[Call]:
        """One call per id in a whole conversation: a second one could not be told from the first."""
        fresh: list[Call] = []
        for call in calls:
            if call.id not in self._called:
                self._called.add(call.id)
                fresh.append(Call(id=call.id, name=call.function.name, arguments=_object(call.function.arguments)))
        return fresh


def _user(message: UserMessage) -> UserTurn:
    return UserTurn(id=message.id, content=message.content, name=message.name)


def _object(text: str) -> str:
    """The text if it is a JSON object. A run that was stopped may have left half of one, and a model may write brackets without end."""
    try:
        encoded = text.encode()
        _arguments.decode(encoded)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return "{}"
    return "{}" if too_deep(encoded) else text


def _result(call: Call, message: ToolMessage | None) -> Result:
    return no_result(call.id, call.name) if message is None else result_of(message, call.name)


def no_result(call_id: str, name: str = "") -> Result:
    """What stands in for the result of a call that nobody answered."""
    return Result(call_id=call_id, name=name, content=NO_RESULT, is_error=True, given=False)


def result_of(message: ToolMessage, name: str = "") -> Result:
    """What a tool message says, to the model: never nothing."""
    return Result(
        call_id=message.tool_call_id,
        name=name,
        content=message.content or message.error or EMPTY_RESULT,
        is_error=message.error is not None or (message.metadata or {}).get("isError") is True,
    )
