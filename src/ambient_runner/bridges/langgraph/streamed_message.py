"""One message of a model, as it is said: text, reasoning and tool calls, whether it comes in chunks, whole, or both.

Nodes that run side by side speak at the same time, and each message is told as one. So every message has a Composer of its own, and
`translate.py` decides which message a native event belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.langgraph.messages import reasoning_of, text_pieces
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.json_values import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import Owner

__all__ = ["Call", "Speech"]


@dataclass(slots=True, eq=False)
class Call:
    """A tool call that is being written. Its name and id may come after the first of its arguments."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    told: str = ""
    """Its id in the thread, from when it begins there."""

    def add(self, chunk: Any) -> str:
        """Take a chunk; gives the arguments that can be told now."""
        self.id = self.id or chunk.get("id") or ""
        self.name = self.name or chunk.get("name") or ""
        self.pieces.append(chunk.get("args") or "")
        if not (self.id and self.name):
            return ""
        return self.pieces[-1] if self.told else "".join(self.pieces)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class Speech:
    """A message under the id `message_id`, in a lane. `task` names where in the graph it is said.

    With `shows_text` or `shows_calls` False that part of it is not told.
    """

    def __init__(self, message_id: str, lane: Owner, task: str, *, shows_text: bool, shows_calls: bool) -> None:
        self.message_id = message_id
        self.lane = lane
        self.task = task
        self.composer = Composer()
        self.calls: dict[Any, Call] = {}
        self._shows_text = shows_text
        self._shows_calls = shows_calls
        self._has_text = False
        self._has_thought = False
        self._latest: Any = None

    def say(self, message: Any) -> list[Event]:
        """The text and the reasoning of a chunk, or of the whole message when it came in one piece."""
        events: list[Event] = []
        if not self._shows_text:
            return events
        beside = reasoning_of(message.additional_kwargs) if message.additional_kwargs else ""
        if beside:
            events += self._think(beside)
        for kind, piece in text_pieces(message.content):
            match kind:
                case "text":
                    self._has_text = self._has_text or bool(piece)
                    events += self.composer.text(piece, lane=self.lane, message_id=self.message_id)
                case "reasoning":
                    events += self._think(piece)
                case _:
                    events += self.composer.reasoning_encrypted(piece, lane=self.lane)
        return events

    def complete(self, message: Any) -> list[Event]:
        """What of the whole message its chunks did not say."""
        return [] if self._has_text or self._has_thought else self.say(message)

    def chunks(self, message: Any) -> Iterator[tuple[Call, str]]:
        """The calls that go on in a chunk, each with the arguments that can be told now."""
        for chunk in message.tool_call_chunks if self._shows_calls else ():
            call = self._call(chunk)
            told = call.add(chunk)
            if call.id and call.name:
                yield call, told

    def missing(self, message: Any) -> Iterator[tuple[Call, str]]:
        """The calls of the whole message that no chunk began, or whose arguments no chunk had. Only here one without an id is told."""
        begun = list(self.calls.values())
        for given in message.tool_calls if self._shows_calls else ():
            native = given["id"] or ""
            call = next((one for one in begun if one.id == native), None)
            if call is None:
                call = self.calls[native, len(self.calls)] = Call(native, given["name"])
            else:
                begun.remove(call)
            if not call.arguments:
                call.pieces.append(json_text(given["args"]))
            elif call.told:
                continue
            yield call, call.arguments

    def end(self, kept_open: frozenset[str], *, is_whole: bool) -> list[Event]:
        """The end of all it has open, but for calls of the tools `kept_open`: the client gets those when the run ends.

        Unless the message `is_whole`, calls without arguments stay open too: those may come with the whole message.
        """
        events = [*self.composer.end_text(self.lane), *self.composer.end_reasoning(self.lane)]
        for call in self.calls.values():
            if call.told and call.name not in kept_open and (is_whole or call.arguments):
                events += self.composer.tool_end(call.told)
        return events

    def _call(self, chunk: Any) -> Call:
        """The call a chunk belongs to: by its index, else by its id, else the one before."""
        index, given = chunk.get("index"), chunk.get("id")
        key = index if index is not None else given if given else self._latest
        known = self.calls.get(key)
        if known is not None and given and known.id and known.id != given:
            key = given  # Some providers give every call the same index.
        self._latest = key
        return self.calls.setdefault(key, Call())

    def _think(self, piece: str) -> list[Event]:
        self._has_thought = self._has_thought or bool(piece)
        return self.composer.reasoning(piece, lane=self.lane)
