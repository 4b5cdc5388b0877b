"""Translation of ADK events into AG-UI events. Pure: no await, no I/O; `run.py` drives it.

ADK streams a message as partial events that share one id, then repeats the complete message under the same id; streamed parts are not
sent again. If a callback has replaced the complete text, the thread is corrected. Message ids are ADK's event ids. Every ADK branch, such
as a parallel agent, is a subagent. `pending_calls` (tool calls that wait for the client) and `interrupts` determine the outcome of the run.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.genai import types

from ambient_runner.bridges.adk.interrupts import INTERNAL_TOOLS, INTERRUPT_CALLS, is_provisional
from ambient_runner.bridges.adk.messages import is_failure, is_initial_result, result_content
from ambient_runner.bridges.adk.outcome import is_root_output
from ambient_runner.bridges.adk.streamed_arguments import StreamedArguments
from ambient_runner.bridges.adk.subagents import Subagents, is_in_branch
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.bridges.toolkit.json_values import parse_json_or_text, to_jsonable, to_text_or_json
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.projections.private_entries import correct_history
from ambient_runner.protocol.events import AssistantMessage, TextMessageContent, TextMessageStart

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from google.adk.events import Event as ADKEvent

    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Custom, Event, Terminal

__all__ = ["Translator"]

ABORTED = "INVOCATION_ABORTED"
_TOKEN_COUNTS = {
    "input_tokens": "prompt_token_count",
    "output_tokens": "candidates_token_count",
    "total_tokens": "total_token_count",
    "reasoning_tokens": "thoughts_token_count",
    "cached_input_tokens": "cached_content_token_count",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingCall:
    """A call without a result, and the branch and the subagent that made it."""

    call: types.FunctionCall
    branch: str | None
    subagent_id: str | None


class Translator:
    """Translator of one run. `root_agent` talks to the user; `structured_agents` answer with data instead of text.

    `known_call_ids` are the calls of earlier runs: their results need no TOOL_CALL_START in this run. `predictions` are the values of the
    `PredictState` event by tool name. ADK repeats the `run_metadata` of the run's configuration on every event; clients do not get it.
    """

    def __init__(
        self,
        root_agent: str,
        state: StateStore,
        *,
        structured_agents: Collection[str] = (),
        known_call_ids: Collection[str] = (),
        predictions: Mapping[str, list[dict[str, str]]] | None = None,
        interrupt_calls: Collection[str] = INTERRUPT_CALLS,
        run_metadata: Collection[str] = (),
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        self.pending_calls: dict[str, PendingCall] = {}
        self.interrupts: dict[str, PendingCall] = {}
        self.usage = Usage()
        self.error_code: str | None = None
        """Code of the error that the model reported last, without later content."""
        self.is_aborted = False
        self.result: Any = None
        """Output of the root agent if it has an output schema."""
        self.has_state_changed = False
        self._root_agent = root_agent
        self._state = state
        self._structured_agents = frozenset(structured_agents)
        self._predictions = predictions or {}
        self._interrupt_calls = interrupt_calls
        self._run_metadata = run_metadata
        self._composer = Composer(new_id)
        for call_id in known_call_ids:
            self._composer.continue_tool_call(call_id)
        self._subagents = Subagents(self._composer, new_id)
        self._streamed_texts: dict[str, list[TextMessageStart | TextMessageContent]] = {}
        """Text events of messages that are not complete yet, by the id of the ADK event."""
        self._streamed_arguments: dict[str, StreamedArguments] = {}
        self._imitated_ids: set[str] = set()
        """Calls a model made under the name of an interrupt. ADK did not make them, so they are ordinary tool calls."""
        self._held_calls: dict[str, None] = {}
        """Calls of client tools. They end after all other events of their turn, because the client executes them on TOOL_CALL_END."""

    def feed(self, event: ADKEvent) -> list[Event]:
        """Return the AG-UI events of one ADK event."""
        return self._partial_event(event) if event.partial else self._complete_event(event)

    def close(self, terminal: Terminal | None = None) -> list[Event]:
        """Return the events that end everything open."""
        return [*self._end_held_calls(), *self._composer.close(terminal)]

    def is_halted(self, branch: str | None) -> bool:
        """Return True if an agent on this branch has to wait: it or a descendant has an open call or interrupt."""
        waiting = (*self.pending_calls.values(), *self.interrupts.values())
        return any(is_in_branch(pending.branch, branch) for pending in waiting)

    def _partial_event(self, event: ADKEvent) -> list[Event]:
        parts = event.content.parts if event.content else None
        if not parts:
            return []
        events = self._subagents.enter_branch(event.branch, event.author)
        subagent_id, key, author = self._subagents.subagent_of(event.branch), event.id, event.author
        streamed = self._streamed_texts.setdefault(key, [])
        for part in parts:
            if part.text is not None:
                added = self._text_events(part.text, key, author, subagent_id, thought=bool(part.thought))
                streamed += [event for event in added if isinstance(event, TextMessageStart | TextMessageContent)]
                events += added
            elif part.function_call is not None:
                events += self._partial_call_events(key, part.function_call, subagent_id)
        return events

    def _complete_event(self, event: ADKEvent) -> list[Event]:
        self._record_outcome(event)
        parts = (event.content.parts if event.content else None) or []
        events = self._subagents.enter_branch(event.branch, event.author) if parts else []
        subagent_id = self._subagents.subagent_of(event.branch)
        events += self._unsent_text_events(event, subagent_id) if event.id in self._streamed_texts else []
        for part in parts:
            events += self._part_events(event, part, subagent_id)
            events += self._signature_events(event, part, subagent_id) if part.thought_signature else []
        events += self._composer.end_text(subagent_id) + self._composer.end_reasoning(subagent_id) if parts else []
        if any(part.function_response for part in parts):
            events += self._end_held_calls()
        return events + self._action_events(event, subagent_id)

    def _part_events(self, event: ADKEvent, part: types.Part, subagent_id: str | None) -> list[Event]:
        if part.text is not None:
            if event.id in self._streamed_texts:
                return []
            return self._text_events(part.text, event.id, event.author, subagent_id, thought=bool(part.thought))
        if part.function_call is not None:
            return self._call_events(event, part.function_call, subagent_id)
        if part.function_response is not None:
            return self._result_events(event, part.function_response, subagent_id)
        return self._custom_events(part, subagent_id)

    def _text_events(self, text: str, key: str, author: str, subagent_id: str | None, *, thought: bool) -> list[Event]:
        if thought:
            return self._composer.reasoning(text, subagent_id=subagent_id, key=key)
        if author in self._structured_agents:
            return []
        name = None if author == self._root_agent and subagent_id is None else author
        return self._composer.text(text, subagent_id=subagent_id, key=key, name=name, message_id=key)

    def _unsent_text_events(self, event: ADKEvent, subagent_id: str | None) -> list[Event]:
        """Return the text of a complete event that its partial events lack; usually none."""
        parts = (event.content.parts if event.content else None) or []
        thoughts = "".join(part.text for part in parts if part.text and part.thought)
        text = "".join(part.text for part in parts if part.text and not part.thought)
        events = self._composer.reasoning(thoughts, subagent_id=subagent_id, key=event.id, complete=True)
        if event.author in self._structured_agents:
            return events
        name = None if event.author == self._root_agent and subagent_id is None else event.author
        streamed, self._streamed_texts[event.id] = self._streamed_texts[event.id], []
        correction = _correct_text(streamed, text, name)
        has_streamed_call = any(call.id in self._streamed_arguments for call in event.get_function_calls())
        if correction is not None and not has_streamed_call:  # the correction would remove the call from the message
            return [*events, *self._composer.end_text(subagent_id), correction]
        return events + self._composer.text(
            text, subagent_id=subagent_id, key=event.id, complete=True, name=name, message_id=event.id
        )

    def _partial_call_events(self, key: str, call: types.FunctionCall, subagent_id: str | None) -> list[Event]:
        """Return the events of a streamed call. `instrumentation.py` sets its id. Calls without one wait for the complete event."""
        if not call.id or (call.id not in self._streamed_arguments and not (call.name and call.will_continue)):
            return []
        events: list[Event] = []
        if call.id not in self._streamed_arguments:
            self._streamed_arguments[call.id] = StreamedArguments()
            events = self._start_call(call.id, call.name or "", subagent_id, key)
        arguments = self._streamed_arguments[call.id]
        text = "".join(
            arguments.add_part(partial.json_path, _partial_value(partial), continues=bool(partial.will_continue))
            for partial in call.partial_args or ()
        )
        return events + self._composer.tool_args(call.id, text)

    def _start_call(self, call_id: str, name: str, subagent_id: str | None, message_id: str) -> list[Event]:
        """Start a call, unless it has started before. Clients first get the arguments of the tool that are state, if any."""
        started = self._composer.tool_start(call_id, name, subagent_id, message_id=message_id)
        if not started or name not in self._predictions:
            return started
        prediction = self._composer.custom("PredictState", self._predictions[name], subagent_id)
        return [*started[:-1], *prediction, started[-1]]

    def _call_events(self, event: ADKEvent, call: types.FunctionCall, subagent_id: str | None) -> list[Event]:
        if not call.id or call.name in INTERNAL_TOOLS:
            return []
        pending = PendingCall(call=call, branch=event.branch, subagent_id=subagent_id)
        is_long_running = call.id in (event.long_running_tool_ids or ())
        if call.name in self._interrupt_calls and is_long_running:
            self.interrupts[call.id] = pending
            return []
        if call.name in INTERRUPT_CALLS and not is_long_running:
            self._imitated_ids.add(call.id)
        arguments = self._streamed_arguments.pop(call.id, None) or StreamedArguments()
        events = self._start_call(call.id, call.name or "", subagent_id, event.id)
        events += self._composer.tool_args(call.id, arguments.finish(call.args or {}))
        if not is_long_running:
            return events + self._composer.tool_end(call.id)
        self.pending_calls[call.id] = pending
        self._held_calls[call.id] = None
        return events

    def _result_events(self, event: ADKEvent, response: types.FunctionResponse, subagent_id: str | None) -> list[Event]:
        name, call_id = response.name or "", response.id or ""
        is_answer = name in INTERRUPT_CALLS and call_id not in self._imitated_ids
        if is_provisional(event, call_id):
            self.pending_calls.pop(call_id, None)  # the interrupt waits instead
            return []
        if is_answer or name in INTERNAL_TOOLS:
            return []
        if is_initial_result(response):
            # The call is one of an earlier run if that waited for a confirmation.
            call = types.FunctionCall(id=call_id, name=name)
            pending = PendingCall(call=call, branch=event.branch, subagent_id=subagent_id)
            self.pending_calls.setdefault(call_id, pending)
            return []
        self.pending_calls.pop(call_id, None)
        self._held_calls.pop(call_id, None)
        return self._composer.tool_result(
            call_id, result_content(response), name=name, subagent_id=subagent_id, is_error=is_failure(response)
        )

    def _custom_events(self, part: types.Part, subagent_id: str | None) -> list[Event]:
        """Return code executions and generated media as CUSTOM events."""
        if part.executable_code is not None:
            code = part.executable_code
            return self._composer.custom("adk:code", {"language": code.language, "code": code.code}, subagent_id)
        if part.code_execution_result is not None:
            result = part.code_execution_result
            return self._composer.custom(
                "adk:code_result", {"outcome": result.outcome, "output": result.output}, subagent_id
            )
        if part.inline_data is not None or part.file_data is not None:
            media = part.model_dump(mode="json", by_alias=True, exclude_none=True)
            return self._composer.custom("adk:media", media, subagent_id)
        return []

    def _signature_events(self, event: ADKEvent, part: types.Part, subagent_id: str | None) -> list[Event]:
        """Return the provider's signature of a thought, text or call. The provider needs it in later requests."""
        value, call = base64.b64encode(part.thought_signature or b"").decode(), part.function_call
        if part.thought:
            return self._composer.reasoning_encrypted(value, subagent_id=subagent_id)
        if call is not None and call.id not in self.interrupts and call.name not in INTERNAL_TOOLS:
            return self._composer.reasoning_encrypted(
                value, subtype="tool-call", entity_id=call.id, subagent_id=subagent_id
            )
        if call is None and event.author not in self._structured_agents and _has_text(event):
            return self._composer.reasoning_encrypted(value, entity_id=event.id, subagent_id=subagent_id)
        return []

    def _action_events(self, event: ADKEvent, subagent_id: str | None) -> list[Event]:
        """Return the events of everything but content: state, artifacts, metadata, finish reason and structured output."""
        actions = event.actions
        events: list[Event] = []
        if actions.state_delta:
            changed = self._state.update_with_patch(actions.state_delta)
            self.has_state_changed = self.has_state_changed or bool(changed)
            events += changed
        if actions.artifact_delta:
            events += self._composer.custom("adk:artifacts", dict(actions.artifact_delta), subagent_id)
        metadata = {key: value for key, value in (event.custom_metadata or {}).items() if self._is_news(key)}
        if metadata:
            events += self._composer.custom("adk_custom_metadata", metadata, subagent_id)
        if event.grounding_metadata is not None:
            grounding = event.grounding_metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
            events += self._composer.custom("adk:grounding", grounding, subagent_id)
        if event.finish_reason is not None and event.finish_reason.name not in {"STOP", "FINISH_REASON_UNSPECIFIED"}:
            events += self._composer.custom("adk:finish_reason", event.finish_reason.name, subagent_id)
        return events + self._structured_output_events(event, subagent_id) + self._root_output_events(event)

    def _root_output_events(self, event: ADKEvent) -> list[Event]:
        """Keep the output of the root node as the result of the run, and return it as text if the event has no text of its own."""
        if not is_root_output(event):
            return []
        if event.output is None:
            text = "".join(part.text or "" for part in (event.content.parts if event.content else None) or ())
            is_structured = event.author in self._structured_agents
            self.result = parse_json_or_text(text) if is_structured else text
            return []
        self.result = to_jsonable(event.output)
        if event.content is not None and event.content.parts:
            return []
        text = to_text_or_json(self.result)
        return self._text_events(text, event.id, event.author, None, thought=False) + self._composer.end_text()

    def _structured_output_events(self, event: ADKEvent, subagent_id: str | None) -> list[Event]:
        text = "".join(part.text or "" for part in (event.content.parts if event.content else None) or ())
        if event.author not in self._structured_agents or not text or event.error_code:
            return []
        value = parse_json_or_text(text)
        if event.author == self._root_agent and subagent_id is None:
            self.result = value
        return self._composer.custom("adk:output", {"agent": event.author, "value": value}, subagent_id)

    def _record_outcome(self, event: ADKEvent) -> None:
        """Record token usage, and errors that ADK reports without an exception, for the terminal event."""
        if event.usage_metadata is not None:
            self.usage.add_counts(_token_counts(event.usage_metadata), model=event.model_version)
        if event.error_code == ABORTED:
            self.is_aborted = True
        elif event.error_code:
            self.error_code = event.error_code
        elif event.content is not None:
            self.error_code = None

    def _is_news(self, key: str) -> bool:
        """Return True if metadata under this key is an agent's own, neither ours nor the run configuration's."""
        return key not in self._run_metadata and not _is_own_key(key)

    def _end_held_calls(self) -> list[Event]:
        held, self._held_calls = self._held_calls, {}
        return [event for call_id in held for event in self._composer.tool_end(call_id)]


def _is_own_key(key: str) -> bool:
    """Return True for custom metadata that this bridge has added (`external_events.py`, `instrumentation.py`)."""
    return key.startswith("ambient_")


def _has_text(event: ADKEvent) -> bool:
    return any(part.text and not part.thought for part in (event.content.parts if event.content else None) or ())


def _correct_text(
    streamed: Sequence[TextMessageStart | TextMessageContent], text: str, name: str | None
) -> Custom | None:
    """Return the correction of a streamed message whose complete text is another one; None if it continues what was streamed."""
    deltas = [event.delta for event in streamed if isinstance(event, TextMessageContent)]
    if not text or text.startswith("".join(deltas)):
        return None
    message_id, *others = dict.fromkeys(event.message_id for event in streamed)
    subagent_id = streamed[0].subagent_run_id
    message = AssistantMessage(id=message_id, name=name, content=text, subagent_run_id=subagent_id)
    return correct_history([message], others)


def _partial_value(piece: types.PartialArg) -> Any:
    if piece.string_value is not None:
        return piece.string_value
    return piece.number_value if piece.number_value is not None else piece.bool_value


def _token_counts(metadata: types.GenerateContentResponseUsageMetadata) -> dict[str, int | None]:
    return {name: getattr(metadata, adk_name) for name, adk_name in _TOKEN_COUNTS.items()}
