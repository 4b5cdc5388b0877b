"""The `ag_ui.core` models of a thread's messages, kept from one run for the next: a run on a long thread converts only what is new.

A run may change its models, and it may keep them. So the next run gets one only if nobody else can reach it any more and it is as it was
converted; otherwise its message is converted again (`agui_messages.py`). Checking a model costs a fifth of converting and freeing one.
"""

from __future__ import annotations

import sys
import weakref
from itertools import islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.agui_messages import copy_text_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ambient_runner.protocol.events import Message

__all__ = ["BYTES_PER_MODEL", "MessageModels"]

BYTES_PER_MODEL = 1024
"""Bytes of a model and of what it is compared with, without its text."""

_get_fields, _get_fields_set, _get_extra = (
    attrgetter(f"__{name}__") for name in ("dict", "pydantic_fields_set", "pydantic_extra")
)
_get_member = cast("Callable[[dict[str, Any], str], Any]", vars(dict)["get"])


class MessageModels:
    """The models of one thread. They belong to one run at a time: `convert` is called when a run begins."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._models: list[Any] = []
        """The model of each message; None for those that are no text messages."""
        self._columns = _read_columns(())
        """The columns of the models (`_read_columns`) as long as nobody else holds or changes one."""
        self.size = 0
        """Bytes of memory, about. The texts count too: in the end, nobody else may have them."""

    def convert(self, messages: Sequence[Message]) -> list[Any]:
        """Return what `copy_text_messages` does. No model in it is one that an earlier run still has or has changed."""
        self._truncate(_count_common(self._messages, messages))
        self._reconvert_unusable_models()
        self._append(messages[len(self._messages) :])
        return self._models.copy()

    def _truncate(self, count: int) -> None:
        """Forget all messages but the first ones."""
        if count == len(self._messages):
            return
        text_count = sum(model is not None for model in islice(self._models, count))
        self.size -= self._measure_from(count)
        del self._messages[count:], self._models[count:]
        for column in self._columns:
            del column[text_count:]

    def _reconvert_unusable_models(self) -> None:
        """Convert the messages again whose models another run may not get: somebody holds them, or has changed them."""
        found = _read_columns(self._models)
        if found == self._columns:
            return
        rows = zip(zip(*found, strict=True), zip(*self._columns, strict=True), strict=True)
        are_unusable = iter([row != expected for row, expected in rows])
        for at, message in enumerate(self._messages):
            if self._models[at] is not None and next(are_unusable):
                self._models[at] = copy_text_messages([message])[0]
        del found, rows  # They hold parts of the models, and holders are counted.
        self._columns = _copy_columns(self._models)

    def _append(self, messages: Sequence[Message]) -> None:
        start = len(self._models)
        self._messages += messages
        self._models += copy_text_messages(messages)
        self.size += self._measure_from(start)
        for column, new in zip(self._columns, _copy_columns(islice(self._models, start, None)), strict=True):
            column += new

    def _measure_from(self, start: int) -> int:
        """Return the bytes of the models from this message on. Their texts are counted as they were: a run may have changed the models."""
        pairs = zip(self._messages[start:], self._models[start:], strict=True)
        texts = (message.content for message, model in pairs if model is not None)
        return sum(BYTES_PER_MODEL + len(text) for text in texts if isinstance(text, str))


def _count_common(old: list[Message], new: Sequence[Message]) -> int:
    """Return the number of messages that both begin with. Nearly always they are the same objects, which are not compared further."""
    if old == list(new[: len(old)]):
        return len(old)
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def _read_columns(models: Iterable[Any]) -> list[list[Any]]:
    """Return everything of these models that differs once somebody else holds or changes one: values of each, without a call for each."""
    texts = list[Any](filter(None, models))
    fields, *others = ([*map(get, texts)] for get in (_get_fields, _get_fields_set, _get_extra))
    contents = map(_get_member, fields, repeat("content"))
    return [
        *([*map(sys.getrefcount, held)] for held in (texts, fields, *others)),
        [*map(weakref.getweakrefcount, texts)],
        [*map(type, texts)],
        [*map(type, contents)],  # A subclass of `str` may equal the text.
        *others,
        fields,
    ]


def _copy_columns(models: Iterable[Any]) -> list[list[Any]]:
    """Return the columns of models that nobody else holds, for later comparison: copies of what an agent can change."""
    *columns, fields_sets, extras, fields = _read_columns(models)
    return [*columns, _repeat_first(fields_sets), _repeat_first(extras), [each.copy() for each in fields]]


def _repeat_first(values: list[Any]) -> list[Any]:
    """Return a copy of the first value as often as there are values: they are equal."""
    return [values[0].copy()] * len(values) if values else []
