"""Recordings of ACP agents: parsing them, and answering a live client with them. Pure; `cli/playback.py` does the reading and writing.

A recording has one message per line, `{"t": seconds, "dir": "c2a" or "a2c", "msg": message}`: what a client and an agent sent each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["PlannedMessage", "Playback", "RecordedMessage", "parse_recording"]

Sender = Literal["client", "agent"]

_METHOD_NOT_FOUND = -32601
_SENDERS: dict[str, Sender] = {"c2a": "client", "a2c": "agent"}
_MAX_SHOWN = 120
"""Characters of a value that a report shows."""


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One line of a recording. `message` is a text if the agent wrote a line that was not JSON."""

    time: float
    sender: Sender
    message: Any

    @property
    def method(self) -> str | None:
        """The method of a request or a notification; None for a response."""
        return as_object(self.message).get("method")

    @property
    def key(self) -> tuple[str, str]:
        """The members that a live message must have in common with this one to stand for it."""
        return _message_key(as_object(self.message))


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message to send, and the seconds that the agent had waited before it."""

    delay: float
    message: Any


def parse_recording(text: str) -> list[RecordedMessage]:
    """Return the messages of a recording. Raises: ConfigError, naming the line that is none."""
    return [_parse_line(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _parse_line(line: str, number: int) -> RecordedMessage:
    try:
        entry = as_object(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Line {number} of the recording is not JSON.") from error
    time, message = entry.get("t"), entry.get("msg")
    sender = _SENDERS.get(str(entry.get("dir")))
    # Only an agent writes lines that are not JSON.
    is_message = isinstance(message, dict) or (isinstance(message, str) and sender == "agent")
    if sender is None or not is_message or not isinstance(time, int | float):
        raise ConfigError(
            f"Line {number} of the recording is no recorded message. "
            'Write {"t": seconds, "dir": "c2a" or "a2c", "msg": {…}}.'
        )
    return RecordedMessage(float(time), sender, message)


class Playback:
    """Plays the agent of a recording. `report` gets a sentence for everything that the client asks otherwise than recorded.

    Client messages are matched by their method, responses by the id of the request. Consecutive ones may come in any order. One that the
    client leaves out is passed over, with what the agent sent because of it, as soon as the client sends a later one.
    """

    def __init__(self, recording: Sequence[RecordedMessage], report: Callable[[str], None]) -> None:
        self._recording = recording
        self._report = report
        self._position = 0
        self._awaited: list[RecordedMessage] = []
        self._live_ids: dict[str, Any] = {}
        self._live_texts: dict[str, str] = {}
        """Recorded session ids and directories, and those of the live client."""

    def start(self) -> list[PlannedMessage]:
        """Return what the agent sends before the client has sent anything."""
        return self._advance()

    def receive(self, message: dict[str, Any]) -> list[PlannedMessage]:
        """Return what the agent sends after this message of the client."""
        recorded = self._find_awaited(message) or self._find_later(message)
        if recorded is None:
            return self._answer_unrecorded(message)
        self._learn(as_object(recorded.message), message)
        self._compare(recorded, message)
        return [] if self._awaited else self._advance()

    def _advance(self) -> list[PlannedMessage]:
        """Return the agent's messages up to the next messages of the client, which are awaited from then on."""
        planned: list[PlannedMessage] = []
        for entry in self._recording[self._position :]:
            if entry.sender == "client":
                self._awaited.append(entry)
            elif self._awaited:
                break
            else:
                planned.append(PlannedMessage(self._delay_before(self._position), self._fill_message(entry.message)))
            self._position += 1
        return planned

    def _delay_before(self, index: int) -> float:
        before = self._recording[index - 1].time if index else 0.0
        return max(0.0, self._recording[index].time - before)

    def _find_awaited(self, message: dict[str, Any]) -> RecordedMessage | None:
        found = next((entry for entry in self._awaited if entry.key == _message_key(message)), None)
        if found is not None:
            self._awaited.remove(found)
        return found

    def _find_later(self, message: dict[str, Any]) -> RecordedMessage | None:
        """Return a later message of the client that this one stands for, and pass over everything before it."""
        key = _message_key(message)
        for index in range(self._position, len(self._recording)):
            entry = self._recording[index]
            if entry.sender == "client" and entry.key == key:
                passed_over = [*self._awaited, *self._client_messages(self._position, index)]
                self._report_missing(passed_over, entry)
                self._awaited = []
                self._position = index + 1
                return entry
        return None

    def _client_messages(self, first: int, last: int) -> list[RecordedMessage]:
        return [entry for entry in self._recording[first:last] if entry.sender == "client"]

    def _report_missing(self, entries: Sequence[RecordedMessage], found: RecordedMessage) -> None:
        for entry in entries:
            self._report(f"The client sent {self._name(found)} and not {self._name(entry)}, which was recorded before.")

    def _answer_unrecorded(self, message: dict[str, Any]) -> list[PlannedMessage]:
        """Answer a request with the recorded answer to another one of its method, else with an error."""
        method: Any = message.get("method")
        if method is None:
            self._report(f"The client answered a request with the id {message.get('id')!r}, which was not recorded.")
            return []
        if "id" not in message:
            self._report(f"The client sent {method}, which was not recorded here.")
            return []
        answer = self._find_answer(method)
        self._report(
            f"The client asked {method}, which was not recorded here: it gets "
            f"{'an error' if answer is None else 'another answer to that method'}."
        )
        error = {"code": _METHOD_NOT_FOUND, "message": "Not recorded"}
        filled = {"error": error} if answer is None else cast("dict[str, Any]", self._fill(answer))
        return [PlannedMessage(0.0, {"jsonrpc": "2.0", **filled, "id": message["id"]})]

    def _find_answer(self, method: str) -> dict[str, Any] | None:
        ids = {
            entry.message.get("id") for entry in self._recording if entry.sender == "client" and entry.method == method
        }
        answers = (as_object(entry.message) for entry in self._recording if entry.sender == "agent")
        return next((answer for answer in answers if "method" not in answer and answer.get("id") in ids), None)

    def _learn(self, recorded: dict[str, Any], live: dict[str, Any]) -> None:
        """Keep the live id of a request, and the session and directory that it names."""
        if "method" not in recorded:
            return
        self._live_ids[_id_key(recorded)] = live.get("id")
        for name in ("sessionId", "cwd"):
            before, now = as_object(recorded.get("params")).get(name), as_object(live.get("params")).get(name)
            if isinstance(before, str) and isinstance(now, str) and before:
                self._live_texts[before] = now

    def _fill_message(self, message: Any) -> Any:
        """Return a message of the agent with the live ids in it."""
        filled, request_id = self._fill(message), _id_key(as_object(message))
        if not isinstance(message, dict) or "method" in message or request_id not in self._live_ids:
            return filled
        return {**as_object(filled), "id": self._live_ids[request_id]}

    def _fill(self, value: Any) -> Any:
        match value:
            case str():
                for before, now in self._live_texts.items():
                    value = value.replace(before, now)
                return value
            case dict():
                return {name: self._fill(part) for name, part in cast("dict[str, Any]", value).items()}
            case list():
                return [self._fill(part) for part in cast("list[Any]", value)]
            case _:
                return value

    def _compare(self, recorded: RecordedMessage, live: dict[str, Any]) -> None:
        expected = as_object(self._fill(recorded.message))
        for part in ("params", "result", "error"):
            for path, now, before in _differences(live.get(part), expected.get(part), ""):
                where = f" at {path.removeprefix('.')}" if path else ""
                self._report(
                    f"{self._name(recorded)}{where}: the client sent {_show(now)}, recorded was {_show(before)}."
                )

    def _name(self, entry: RecordedMessage) -> str:
        """Return a name for a message of the client."""
        if entry.method is not None:
            return entry.method
        request_id = entry.message.get("id")
        asked = (other for other in self._recording if other.sender == "agent" and other.method is not None)
        method = next((other.method for other in asked if other.message.get("id") == request_id), "a request")
        return f"the answer to {method}"


def _message_key(message: dict[str, Any]) -> tuple[str, str]:
    method: Any = message.get("method")
    return ("method", str(method)) if method is not None else ("response", _id_key(message))


def _id_key(message: dict[str, Any]) -> str:
    return json.dumps(message.get("id"))


def _differences(live: Any, recorded: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, the live and the recorded value of everything that differs."""
    match live, recorded:
        case dict(), dict():
            now, before = cast("dict[str, Any]", live), cast("dict[str, Any]", recorded)
            for name in {**before, **now}:
                yield from _differences(now.get(name), before.get(name), f"{path}.{name}")
        case list(), list() if len(cast("list[Any]", live)) == len(cast("list[Any]", recorded)):
            for index, (now, before) in enumerate(
                zip(cast("list[Any]", live), cast("list[Any]", recorded), strict=True)
            ):
                yield from _differences(now, before, f"{path}[{index}]")
        case _ if live != recorded:
            yield path, live, recorded
        case _:
            pass


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
