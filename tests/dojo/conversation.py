"""A conversation as a page received it, as `tests/e2e/clients/dojo.mjs` reports it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Conversation", "Missing", "PageTurn", "require"]

Json = dict[str, Any]


class Missing(AssertionError):
    """The page does not get what it reads."""


def require(condition: bool, description: str) -> None:
    """Check something that the page needs. `description` says what that is. Raises: Missing."""
    if not condition:
        raise Missing(description)


@dataclass(frozen=True)
class PageTurn:
    """One run and what the page had after it. `before` is the number of messages it had before."""

    seen: Json
    before: int

    @property
    def messages(self) -> list[Json]:
        return self.seen["messages"]

    @property
    def new_messages(self) -> list[Json]:
        return self.messages[self.before :]

    @property
    def roles(self) -> list[str]:
        """The roles of the messages that the page shows."""
        return [message["role"] for message in self.messages if message["role"] != "developer"]

    @property
    def state(self) -> Json:
        return self.seen["states"][-1] or {}

    @property
    def states(self) -> list[Json]:
        """Every state that the page could have shown during the run."""
        return [state or {} for state in self.seen["states"]]

    @property
    def question(self) -> Json | None:
        """The value that the page gets of an interrupt, if there is one."""
        return self.seen["question"]

    @property
    def text(self) -> str:
        """The text that the run added."""
        texts = [message.get("content") or "" for message in self.new_messages if message["role"] == "assistant"]
        return "\n".join(text for text in texts if text)

    @property
    def text_deltas(self) -> int:
        return self.seen["textDeltas"]

    @property
    def reasoning(self) -> str:
        return "".join(message["content"] for message in self.messages if message["role"] == "reasoning")

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """Names and arguments of all calls so far."""
        return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in self._calls]

    @property
    def open_calls(self) -> list[tuple[str, Any]]:
        """The calls that have no result, which the page carries out."""
        answered = {message["toolCallId"] for message in self.messages if message["role"] == "tool"}
        found = [call for call in self._calls if call["id"] not in answered]
        return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in found]

    @property
    def results(self) -> dict[str, str]:
        """Results by the name of their tool."""
        names = {call["id"]: call["function"]["name"] for call in self._calls}
        return {
            names.get(message["toolCallId"], "?"): message["content"]
            for message in self.messages
            if message["role"] == "tool"
        }

    @property
    def _calls(self) -> list[Json]:
        return [call for message in self.messages for call in message.get("toolCalls") or []]


@dataclass(frozen=True)
class Conversation:
    """A conversation of one client with one agent."""

    turns: list[PageTurn]

    @classmethod
    def from_report(cls, report: Json) -> Conversation:
        """Raises: Missing, if the client did not accept a run or a run failed."""
        turns: list[PageTurn] = []
        for seen in report["turns"]:
            require(seen["error"] is None, f"the client accepts the run: {seen['error']}")
            require(seen["ending"] == "RUN_FINISHED", f"the run succeeds: {seen['ending']}")
            turns.append(PageTurn(seen, seen["before"]))
        return cls(turns)
