"""The `ag_ui.core` models of a thread's messages, kept from one run for the next: a run on a long thread converts only what is new.

A run may change its models, and it may keep them. So the next run gets one only if nobody else can reach it any more and it is as it was
converted; otherwise its message is converted again (`agui_messages.py`). Checking a model costs a fifth of converting and freeing one.
The same holds for the models of a message's tool calls: once a run has changed or kept one of these, all messages with calls are converted
again.
"""

from __future__ import annotations

import sys
import weakref
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import ag_ui.core as ag

from ambient_runner.protocol.agui_messages import convert_plain_messages
from ambient_runner.protocol.events import AssistantMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ambient_runner.protocol.events import Message, ToolCall

__all__ = ["MessageModels", "estimate_model_bytes"]

_Columns = list[list[Any]]
_CallColumns = tuple[_Columns, _Columns, _Columns]
"""Columns of the lists of calls, of the calls, and of their functions."""
_BYTES_PER_MODEL = 1088
"""Bytes of a model and of what it is compared with, without its text."""

_MESSAGE_TEXTS, _CALL_TEXTS, _FUNCTION_TEXTS = ("id", "content"), ("id",), ("name", "arguments")
_get_fields, _get_fields_set, _get_extra = (
    attrgetter(f"__{name}__") for name in ("dict", "pydantic_fields_set", "pydantic_extra")
)
_get_member = cast("Callable[[dict[str, Any], str], Any]", vars(dict)["get"])


class MessageModels:
    """The models of one thread. They belong to one run at a time: `convert` is called when a run begins."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._models: list[Any] = []
        """The model of each message; None for those that are not plain ones."""
        self._expected_columns = _copy_columns([], _MESSAGE_TEXTS)
        """The columns of the models (`_read_columns`) as long as nobody else holds or changes one."""
        self._expected_call_columns = _copy_call_columns(())
        """Those of their tool calls (`_read_call_columns`)."""
        self.size = 0
        """Bytes of memory, about. The texts count too: in the end, nobody else may have them."""

    def convert(self, messages: Sequence[Message]) -> list[Any]:
        """Return what `convert_plain_messages` does. No model in it is one that an earlier run still has or has changed."""
        self._truncate(_count_common(self._messages, messages))
        self._reconvert_unusable_models()
        self._append(messages[len(self._messages) :])
        return self._models.copy()

    def _truncate(self, count: int) -> None:
        """Forget all messages but the first ones."""
        if count == len(self._messages):
            return
        kept = list(_keep_converted(self._messages[:count], self._models))
        calls = _calls_of_messages(kept)
        self.size -= self._measure_from(count)
        del self._messages[count:], self._models[count:]
        call_count = sum(map(len, calls))
        counts = (len(kept), len(calls), call_count, call_count)
        for columns, left in zip((self._expected_columns, *self._expected_call_columns), counts, strict=True):
            for column in columns:
                del column[left:]

    def _reconvert_unusable_models(self) -> None:
        """Convert the messages again whose models another run may not get: somebody holds them, or has changed them."""
        found = _read_columns([*filter(None, self._models)], _MESSAGE_TEXTS)
        are_calls_usable = _read_call_columns(self._models) == self._expected_call_columns
        if found == self._expected_columns and are_calls_usable:
            return
        rows = zip(zip(*found, strict=True), zip(*self._expected_columns, strict=True), strict=True)
        are_unusable = iter([row != expected for row, expected in rows])
        for at, message in enumerate(self._messages):
            if self._models[at] is None:
                continue
            if next(are_unusable) or (not are_calls_usable and _calls_of_messages([message])):
                self._models[at] = convert_plain_messages([message])[0]
        # They hold parts of the models, and holders are counted.
        del found, rows
        self._expected_columns, self._expected_call_columns = [], _copy_call_columns(())
        self._expected_columns = _copy_columns([*filter(None, self._models)], _MESSAGE_TEXTS)
        self._expected_call_columns = _copy_call_columns(self._models)

    def _append(self, messages: Sequence[Message]) -> None:
        start = len(self._models)
        self._messages += messages
        self._models += convert_plain_messages(messages)
        self.size += self._measure_from(start)
        _extend_columns(
            self._expected_columns, _copy_columns([*filter(None, islice(self._models, start, None))], _MESSAGE_TEXTS)
        )
        new_calls = _copy_call_columns(islice(self._models, start, None))
        for columns, added in zip(self._expected_call_columns, new_calls, strict=True):
            _extend_columns(columns, added)

    def _measure_from(self, start: int) -> int:
        """Return the bytes of the models from this message on. Their texts are counted as they were: a run may have changed the models."""
        messages = list(_keep_converted(self._messages[start:], self._models[start:]))
        return estimate_model_bytes(messages) + _count_text_chars(messages)


def estimate_model_bytes(messages: Sequence[Message]) -> int:
    """Return about how much memory the models of these messages and their calls take, without their texts."""
    return _BYTES_PER_MODEL * (len(messages) + 2 * sum(map(len, _calls_of_messages(messages))))


def _count_text_chars(messages: Sequence[Message]) -> int:
    """Return the length of the texts of plain messages, and of the arguments of their calls."""
    contents = (message.content for message in messages)
    arguments = (call.function.arguments for calls in _calls_of_messages(messages) for call in calls)
    return sum(len(content) for content in contents if isinstance(content, str)) + sum(map(len, arguments))


def _calls_of_messages(messages: Iterable[Message]) -> list[list[ToolCall]]:
    """Return the tool calls of each message that has some."""
    return [message.tool_calls for message in messages if type(message) is AssistantMessage and message.tool_calls]


def _keep_converted(messages: Iterable[Message], models: Iterable[Any]) -> Iterable[Message]:
    """Yield the messages that have a model."""
    return (message for message, model in zip(messages, models, strict=False) if model is not None)


def _count_common(old: list[Message], new: Sequence[Message]) -> int:
    """Return the number of messages that both begin with. Nearly always they are the same objects, which are not compared further."""
    if old == list(new[: len(old)]):
        return len(old)
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def _read_columns(models: list[Any], texts: Sequence[str]) -> _Columns:
    """Return everything of these models that differs once somebody else holds, changes or replaces one: values of each, without a call for
    each.

    `texts` are the members that have their texts.
    """
    fields, *others = ([*map(get, models)] for get in (_get_fields, _get_fields_set, _get_extra))
    text_types = ([*map(type, map(_get_member, fields, repeat(text)))] for text in texts)
    return [
        [*map(id, models)],  # An equal one in place of ours may have a holder of its own.
        *([*map(sys.getrefcount, held)] for held in (models, fields, *others)),
        [*map(weakref.getweakrefcount, models)],
        [*map(type, models)],
        *text_types,  # A subclass of `str` may equal the text.
        *others,
        fields,
    ]


def _read_call_columns(models: Iterable[Any]) -> _CallColumns | None:
    """Return the columns of the lists of tool calls, of the calls and of their functions; None if something else is in place of one."""
    lists = _calls_of_models(models)
    if not _all_have_type(lists, list):
        return None
    holders = [*map(sys.getrefcount, lists)]
    calls = [*chain.from_iterable(lists)]
    if not _all_have_type(calls, ag.ToolCall):
        return None
    functions = [*map(_get_member, map(_get_fields, calls), repeat("function"))]
    if not _all_have_type(functions, ag.FunctionCall):
        return None
    return (
        [[*map(id, lists)], holders, lists],
        _read_columns(calls, _CALL_TEXTS),
        _read_columns(functions, _FUNCTION_TEXTS),
    )


def _calls_of_models(models: Iterable[Any]) -> list[Any]:
    """Return what each model has as its tool calls, if that is not empty."""
    fields = map(_get_fields, list[Any](filter(None, models)))
    return [*filter(None, map(_get_member, fields, repeat("tool_calls")))]


def _all_have_type(values: Iterable[Any], kind: type) -> bool:
    return set(map(type, values)) <= {kind}


def _copy_columns(models: list[Any], texts: Sequence[str]) -> _Columns:
    """Return the columns of models that nobody else holds, for later comparison: copies of what an agent can change.

    The copies keep alive what is in the models, so that nothing else gets its identity.
    """
    copies = [each.copy() for each in map(_get_fields, models)]
    # Only now: the copies hold what is in them.
    *columns, fields_sets, extras, _ = _read_columns(models, texts)
    return [*columns, _freeze_sets(fields_sets), [{}] * len(extras), copies]


def _freeze_sets(values: list[set[str]]) -> list[frozenset[str]]:
    """Return a copy of each set. Equal ones share it: those of all texts are, and those of all calls."""
    if values and values.count(values[0]) == len(values):
        return [frozenset(values[0])] * len(values)
    known: dict[frozenset[str], frozenset[str]] = {}
    return [known.setdefault(each, each) for each in map(frozenset, values)]


def _copy_call_columns(models: Iterable[Any]) -> _CallColumns:
    """Return the columns of the calls of models that nobody else holds. The columns of the models exist already: they hold the lists."""
    lists = _calls_of_models(models)
    copies = [each.copy() for each in lists]
    holders = [*map(sys.getrefcount, lists)]
    calls = [*chain.from_iterable(lists)]
    call_columns = _copy_columns(calls, _CALL_TEXTS)
    functions = [*map(_get_member, map(_get_fields, calls), repeat("function"))]
    return [[*map(id, lists)], holders, copies], call_columns, _copy_columns(functions, _FUNCTION_TEXTS)


def _extend_columns(columns: _Columns, added: _Columns) -> None:
    for column, new in zip(columns, added, strict=True):
        column += new
