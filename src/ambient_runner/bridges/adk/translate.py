"""ADK events in, AG-UI events out. Pure: no await, no I/O; `bridge.py` drives it.

ADK streams a message as partial events that share one id, then repeats it whole under the same id: what was said is left out. Message
ids are ADK's event ids. Agents that run beside or below the one that talks to the user have lanes of their own, one per ADK branch.
Calls that wait for a client (`pending`) and questions to a person (`questions`) are kept for whoever ends the run.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.adk.interrupts import INTERNAL, QUESTIONS, is_provisional
from ambient_runner.bridges.adk.messages import is_failure, shown_result
from ambient_runner.bridges.adk.streamed_arguments import GrowingArguments
from ambient_runner.bridges.adk.usage import Usage
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.bridges.toolkit.json_values import json_or_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from google.adk.events import Event as AdkEvent
    from google.genai import types

    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event, Terminal

__all__ = ["Translator"]

ABORTED = "INVOCATION_ABORTED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A call without a result, and where in the tree of agents it was made."""

    call: types.FunctionCall
    branch: str | None
    lane: str | None


class Translator:
    """One run. `root` is the agent that talks to the user; those in `structured` answer with data instead of words.

    `known` are the calls of earlier runs: their results need no call before them.
    """

    def __init__(
        self,
        root: str,
        state: StateStore,
        *,
        structured: Collection[str] = (),
        known: Collection[str] = (),
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        self.pending: dict[str, Waiting] = {}
        self.questions: dict[str, Waiting] = {}
        self.usage = Usage()
        self.failure: str | None = None
        """The code of an error the model reported as its last word."""
        self.aborted = False
        self.result: Any = None
        """What the root agent made, when it answers with data."""
        self.state_changed = False
        self._root = root
        self._state = state
        self._structured = frozenset(structured)
        self._new_id = new_id
        self._compose = Composer(new_id)
        for call_id in known:
            self._compose.recall(call_id)
        self._lanes: dict[str, str] = {}
        self._streamed: set[str] = set()
        self._arguments: dict[str, GrowingArguments] = {}
        self._pretended: set[str] = set()
        """Calls a model made under the name of a question. ADK itself has asked nothing, so they are calls like any other."""
        self._held: dict[str, None] = {}
        """Calls for the client. They end last, when everything else of their turn is out: a client acts on their end."""

    def feed(self, event: AdkEvent) -> list[Event]:
        """What this event adds."""
        return self._partial(event) if event.partial else self._whole(event)

    def close(self, terminal: Terminal | None = None) -> list[Event]:
        """The ends of everything open."""
        return [*self._release(), *self._compose.close(terminal)]

    def is_halted(self, branch: str | None) -> bool:
        """Whether an agent there has to wait: it, or one below it, has left a call or a question open."""
        return any(_is_below(one.branch, branch) for one in (*self.pending.values(), *self.questions.values()))

    def _partial(self, event: AdkEvent) -> list[Event]:
        parts = event.content.parts if event.content else None
        if not parts:
            return []
        said = [] if event.branch is None and not self._lanes else self._enter(event)
        lane, key, author = self._lane(event), event.id, event.author
        self._streamed.add(key)
        for part in parts:
            if part.text is not None:
                said += self._words(part.text, key, author, lane, thought=bool(part.thought))
            elif part.function_call is not None:
                said += self._streaming(key, part.function_call, lane)
        return said

    def _whole(self, event: AdkEvent) -> list[Event]:
        self._note(event)
        parts = (event.content.parts if event.content else None) or []
        said = self._enter(event) if parts else []
        lane = self._lane(event)
        said += self._rest_of_words(event, lane) if event.id in self._streamed else []
        for part in parts:
            said += self._part(event, part, lane)
            said += self._signature(event, part, lane) if part.thought_signature else []
        said += self._compose.end_text(lane) + self._compose.end_reasoning(lane) if parts else []
        if any(part.function_response for part in parts):
            said += self._release()
        return said + self._actions(event, lane)

    def _part(self, event: AdkEvent, part: types.Part, lane: str | None) -> list[Event]:
        if part.text is not None:
            if event.id in self._streamed:
                return []
            return self._words(part.text, event.id, event.author, lane, thought=bool(part.thought))
        if part.function_call is not None:
            return self._call(event, part.function_call, lane)
        if part.function_response is not None:
            return self._result(event, part.function_response, lane)
        return self._other(part, lane)

    def _words(self, text: str, key: str, author: str, lane: str | None, *, thought: bool) -> list[Event]:
        if thought:
            return self._compose.reasoning(text, lane=lane, key=key)
        if author in self._structured:
            return []
        name = None if author == self._root and lane is None else author
        return self._compose.text(text, lane=lane, key=key, name=name, message_id=key)

    def _rest_of_words(self, event: AdkEvent, lane: str | None) -> list[Event]:
        """What the whole event says beyond its pieces. Mostly nothing: pieces are never repeated."""
        parts = (event.content.parts if event.content else None) or []
        thoughts = "".join(part.text for part in parts if part.text and part.thought)
        text = "".join(part.text for part in parts if part.text and not part.thought)
        said = self._compose.reasoning(thoughts, lane=lane, key=event.id, complete=True)
        if event.author in self._structured:
            return said
        name = None if event.author == self._root and lane is None else event.author
        return said + self._compose.text(text, lane=lane, key=event.id, complete=True, name=name, message_id=event.id)

    def _streaming(self, key: str, call: types.FunctionCall, lane: str | None) -> list[Event]:
        """A piece of a call. `plugin.py` gives all pieces of one the id it will have; others are left to the whole event."""
        if not call.id or (call.id not in self._arguments and not (call.name and call.will_continue)):
            return []
        said: list[Event] = []
        if call.id not in self._arguments:
            self._arguments[call.id] = GrowingArguments()
            said = self._compose.tool_start(call.id, call.name or "", lane, message_id=key)
        growing = self._arguments[call.id]
        text = "".join(
            growing.piece(one.json_path, _piece(one), goes_on=bool(one.will_continue))
            for one in call.partial_args or ()
        )
        return said + self._compose.tool_args(call.id, text)

    def _call(self, event: AdkEvent, call: types.FunctionCall, lane: str | None) -> list[Event]:
        if not call.id or call.name in INTERNAL:
            return []
        waiting = Waiting(call=call, branch=event.branch, lane=lane)
        waits = call.id in (event.long_running_tool_ids or ())
        if call.name in QUESTIONS and waits:
            self.questions[call.id] = waiting
            return []
        if call.name in QUESTIONS:
            self._pretended.add(call.id)
        growing = self._arguments.pop(call.id, None) or GrowingArguments()
        said = self._compose.tool_start(call.id, call.name or "", lane, message_id=event.id)
        said += self._compose.tool_args(call.id, growing.rest(call.args or {}))
        if not waits:
            return said + self._compose.tool_end(call.id)
        self.pending[call.id] = waiting
        self._held[call.id] = None
        return said

    def _result(self, event: AdkEvent, response: types.FunctionResponse, lane: str | None) -> list[Event]:
        name, call_id = response.name or "", response.id or ""
        is_answer = name in QUESTIONS and call_id not in self._pretended
        if is_answer or name in INTERNAL or is_provisional(event, call_id):
            return []
        self.pending.pop(call_id, None)
        self._held.pop(call_id, None)
        return self._compose.tool_result(
            call_id, shown_result(response), name=name, lane=lane, is_error=is_failure(response)
        )

    def _other(self, part: types.Part, lane: str | None) -> list[Event]:
        """What has no place in a text: code the model ran, and media it made."""
        if part.executable_code is not None:
            code = part.executable_code
            return self._compose.custom("adk:code", {"language": code.language, "code": code.code}, lane)
        if part.code_execution_result is not None:
            ran = part.code_execution_result
            return self._compose.custom("adk:code_result", {"outcome": ran.outcome, "output": ran.output}, lane)
        if part.inline_data is not None or part.file_data is not None:
            media = part.model_dump(mode="json", by_alias=True, exclude_none=True)
            return self._compose.custom("adk:media", media, lane)
        return []

    def _signature(self, event: AdkEvent, part: types.Part, lane: str | None) -> list[Event]:
        """What a provider wants back with a thought, words or a call, to know it for its own."""
        value, call = base64.b64encode(part.thought_signature or b"").decode(), part.function_call
        if part.thought:
            return self._compose.reasoning_encrypted(value, lane=lane)
        if call is not None and call.id not in self.questions and call.name not in INTERNAL:
            return self._compose.reasoning_encrypted(value, subtype="tool-call", entity_id=call.id, lane=lane)
        if call is None and event.author not in self._structured and _has_words(event):
            return self._compose.reasoning_encrypted(value, entity_id=event.id, lane=lane)
        return []

    def _actions(self, event: AdkEvent, lane: str | None) -> list[Event]:
        """What an event did besides speaking."""
        actions = event.actions
        said: list[Event] = []
        if actions.state_delta:
            changed = self._state.delta(actions.state_delta)
            self.state_changed = self.state_changed or bool(changed)
            said += changed
        if actions.artifact_delta:
            said += self._compose.custom("adk:artifacts", dict(actions.artifact_delta), lane)
        if event.custom_metadata:
            said += self._compose.custom("adk_custom_metadata", event.custom_metadata, lane)
        if event.grounding_metadata is not None:
            grounding = event.grounding_metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
            said += self._compose.custom("adk:grounding", grounding, lane)
        if event.finish_reason is not None and event.finish_reason.name not in {"STOP", "FINISH_REASON_UNSPECIFIED"}:
            said += self._compose.custom("adk:finish_reason", event.finish_reason.name, lane)
        return said + self._structured_output(event, lane)

    def _structured_output(self, event: AdkEvent, lane: str | None) -> list[Event]:
        text = "".join(part.text or "" for part in (event.content.parts if event.content else None) or ())
        if event.author not in self._structured or not text or event.error_code:
            return []
        value = json_or_text(text)
        if event.author == self._root and lane is None:
            self.result = value
        return self._compose.custom("adk:output", {"agent": event.author, "value": value}, lane)

    def _note(self, event: AdkEvent) -> None:
        """What the run's end has to say: tokens used, and an error that no exception brought."""
        if event.usage_metadata is not None:
            self.usage.add(event.model_version, event.usage_metadata)
        if event.error_code == ABORTED:
            self.aborted = True
        elif event.error_code:
            self.failure = event.error_code
        elif event.content is not None:
            self.failure = None

    def _enter(self, event: AdkEvent) -> list[Event]:
        """The lane of the event's branch, begun; back on the main lane all others are over."""
        branch = event.branch
        if branch is None:
            ended, self._lanes = self._lanes, {}
            return [one for lane in ended.values() for one in self._compose.end_subagent(lane)]
        if branch in self._lanes:
            return []
        above = max((one for one in self._lanes if _is_below(branch, one)), key=len, default=None)
        lane = self._lanes[branch] = self._new_id("subagent")
        _, _, cause = branch.rpartition("@")
        return self._compose.subagent(
            lane,
            event.author,
            parent=self._lanes[above] if above else None,
            parent_tool_call_id=cause if "@" in branch and not cause.isdigit() else None,
        )

    def _lane(self, event: AdkEvent) -> str | None:
        return self._lanes.get(event.branch) if event.branch else None

    def _release(self) -> list[Event]:
        held, self._held = self._held, {}
        return [one for call_id in held for one in self._compose.tool_end(call_id)]


def _is_below(branch: str | None, above: str | None) -> bool:
    """Whether a branch is `above` or under it. No branch is the trunk."""
    return above is None or branch == above or (branch or "").startswith((f"{above}.", f"{above}/"))


def _has_words(event: AdkEvent) -> bool:
    return any(part.text and not part.thought for part in (event.content.parts if event.content else None) or ())


def _piece(piece: types.PartialArg) -> Any:
    if piece.string_value is not None:
        return piece.string_value
    return piece.number_value if piece.number_value is not None else piece.bool_value
