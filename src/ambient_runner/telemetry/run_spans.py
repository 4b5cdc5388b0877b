"""One run as a tree of spans: the run, its subagents, its tool calls and its assistant messages. A fold over events that only observes.

Everything here belongs to one run. `tracing.py` feeds it, `span_writer.py` writes the spans, `attributes.py` has the names; nothing blocks.
Reasoning is not traced.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.errors import BridgeError
from ambient_runner.protocol.events import (
    EVENT_TYPES,
    AssistantMessage,
    Cancelled,
    Interrupted,
    RunError,
    RunStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    TextMessageChunk,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    UserMessage,
    content_as_text,
    outcome_name,
)
from ambient_runner.protocol.repair import Repairer
from ambient_runner.telemetry.attributes import cost_of, usage_of
from ambient_runner.telemetry.span_ids import parent_of, span_context
from ambient_runner.telemetry.span_text import BoundedText
from ambient_runner.telemetry.span_writer import SpanWriter

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from ambient_runner.protocol.events import Event, Terminal, TokenUsage
    from ambient_runner.runs.run import Run
    from ambient_runner.telemetry.attributes import Attributes
    from ambient_runner.telemetry.span_writer import ExportTarget

__all__ = ["IGNORED_EVENTS", "RunSpans"]

IGNORED_EVENTS = frozenset(EVENT_TYPES) - {
    RunStarted,
    TextMessageStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageChunk,
    ToolCallStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallChunk,
    ToolCallResult,
    SubagentStarted,
    SubagentFinished,
    SubagentError,
}
"""Event types that a trace does not show."""


@dataclass(kw_only=True, slots=True, eq=False)
class _OpenSpan:
    """The span of an open message or tool call, and its text so far."""

    span: Span
    text: BoundedText = field(default_factory=BoundedText)
    ended_at: int = 0


class RunSpans:
    """The spans of one run. `feed` takes its events, `end` its terminal event; after that no span is open."""

    def __init__(self, target: ExportTarget, run: Run) -> None:
        self._run = run
        self._attributes = target.attributes
        self._writer = SpanWriter(target, run)
        self._repairer = Repairer(run.input.thread_id, run.input.run_id)
        self._started_at = time.time_ns()
        self._first_output_at = 0
        self._messages: dict[str, _OpenSpan] = {}
        self._calls: dict[str, _OpenSpan] = {}
        self._subagents: dict[str, Span] = {}
        self._last_message: _OpenSpan | None = None
        """The newest message, whose span stays open: the run's usage goes on it and is known only at the end."""
        self._has_ended = False
        self.root = self._start_root()
        self._add_client_results()

    def append_delta(self, event: Event) -> bool:
        """Append a delta to its open message or tool call; return False for any other event. Cheap, and cannot fail."""
        if type(event) is TextMessageContent:
            open_span = self._messages.get(event.message_id)
        elif type(event) is ToolCallArgs:
            open_span = self._calls.get(event.tool_call_id)
        else:
            return False
        if open_span is None:
            return False
        open_span.text.append(event.delta)
        return True

    def feed(self, event: Event) -> None:
        """Observe one event. It is repaired as the pipeline will repair it before storing, so that the trace shows what the thread has."""
        if not self._has_ended:
            for repaired in self._repairer.feed(event):
                self._apply_event(repaired)

    def end(self, terminal: Terminal) -> None:
        """Close all spans. Only the first call has an effect."""
        if self._has_ended:
            return
        self._has_ended = True
        for closing in self._repairer.close():
            self._apply_event(closing)
        outcome = outcome_name(terminal)
        for call in self._calls.values():
            self._close_call(call, "pending" if outcome in {"success", "interrupt"} else outcome)
        answer = str(self._last_message.text) if self._last_message else ""
        self._write_usage(terminal)
        if isinstance(terminal, RunError):
            self._writer.set_error(self.root, terminal.code or BridgeError.code, terminal.message)
        self._writer.end_span(
            self.root,
            self._final_attributes(terminal, outcome)
            | self._writer.content_attributes(self._attributes.output_messages, answer),
        )

    def _start_root(self) -> Span:
        run = self._run
        prompt = "\n".join(
            content_as_text(message.content) for message in run.accepted if isinstance(message, UserMessage)
        )
        return self._writer.start_span(
            f"invoke_agent {run.agent}",
            parent_of(run),
            self._attributes.run_attributes(run)
            | self._writer.content_attributes(self._attributes.input_messages, prompt),
            reserved=span_context(run.trace_id, run.key),
            link=span_context(run.resumes.trace_id, run.resumes.run) if run.resumes else None,
            start=self._started_at,
        )

    def _add_client_results(self) -> None:
        """Add spans for the results of client tools that an earlier run called."""
        for message in self._run.accepted:
            if isinstance(message, ToolMessage):
                call = self._open_earlier_call(message.tool_call_id)
                self._finish_call(call, content_as_text(message.content), message.error or "")

    def _apply_event(self, event: Event) -> None:
        match event:
            case TextMessageStart() if event.role in {"assistant", None}:
                attributes = self._attributes.message_attributes(self._writer.clean_name(event.message_id))
                self._messages[event.message_id] = self._open_span("chat", event.subagent_run_id, attributes)
            case TextMessageContent() if event.message_id in self._messages:
                self._messages[event.message_id].text.append(event.delta)
            case TextMessageEnd() if event.message_id in self._messages:
                self._end_message(self._messages.pop(event.message_id), is_own=event.subagent_run_id is None)
            case ToolCallStart():
                self._calls[event.tool_call_id] = self._open_call(event)
            case ToolCallArgs() if event.tool_call_id in self._calls:
                self._calls[event.tool_call_id].text.append(event.delta)
            case ToolCallResult():
                call = self._calls.pop(event.tool_call_id, None) or self._open_earlier_call(event.tool_call_id)
                failed = (event.metadata or {}).get("isError") is True
                self._finish_call(call, content_as_text(event.content), "The tool failed." if failed else "")
            case SubagentStarted():
                self._begin_subagent(event)
            case SubagentFinished() | SubagentError():
                self._end_subagent(event)
            case _:
                pass

    def _open_span(self, name: str, subagent: str | None, attributes: Attributes, call: str = "") -> _OpenSpan:
        self._first_output_at = self._first_output_at or time.time_ns()
        reserved = span_context(self._run.trace_id, self._run.key, call) if call else None
        return _OpenSpan(span=self._writer.start_span(name, self._parent_span(subagent), attributes, reserved=reserved))

    def _parent_span(self, subagent: str | None) -> Span:
        return self._subagents.get(subagent or "", self.root)

    def _open_call(self, event: ToolCallStart) -> _OpenSpan:
        name, call = self._writer.clean_name(event.tool_call_name), self._writer.clean_name(event.tool_call_id)
        return self._open_span(
            f"execute_tool {name}", event.subagent_run_id, self._attributes.tool_attributes(name, call), call
        )

    def _open_earlier_call(self, id: str) -> _OpenSpan:  # noqa: A002  the protocol's name
        """Open a span for a call of an earlier run whose result arrives in this one. It is linked to the earlier span."""
        tool, arguments = _find_call(self._run, id)
        name, call, earlier = self._writer.clean_name(tool), self._writer.clean_name(id), self._run.resumes
        origin = span_context(earlier.trace_id, earlier.run, call) if earlier else None
        attributes = self._attributes.tool_attributes(name, call)
        open_span = _OpenSpan(
            span=self._writer.start_span(
                f"execute_tool {name}", self.root, attributes, link=origin, start=self._started_at
            )
        )
        open_span.text.append(arguments)
        return open_span

    def _finish_call(self, call: _OpenSpan, result: str, error: str = "") -> None:
        if error:
            self._writer.set_error(call.span, "tool_error", error)
        self._close_call(call, "error" if error else "success", result)

    def _close_call(self, call: _OpenSpan, outcome: str, result: str = "") -> None:
        content = self._writer.content_attributes(
            self._attributes.tool_arguments, str(call.text)
        ) | self._writer.content_attributes(self._attributes.tool_result, result)
        self._writer.end_span(call.span, {"ambient.outcome": outcome} | content)

    def _begin_subagent(self, event: SubagentStarted) -> None:
        caller = self._calls.get(event.parent_tool_call_id or "")
        parent = caller.span if caller else self._parent_span(event.parent_subagent_run_id)
        name = self._writer.clean_name(event.name)
        self._subagents[event.subagent_run_id] = self._writer.start_span(
            f"invoke_agent {name}", parent, self._attributes.agent_attributes(name)
        )

    def _end_subagent(self, event: SubagentFinished | SubagentError) -> None:
        span = self._subagents.pop(event.subagent_run_id, None)
        if span is None:
            return
        if isinstance(event, SubagentError):
            self._writer.set_error(span, event.code or BridgeError.code, event.message)
        self._writer.end_span(span)

    def _end_message(self, message: _OpenSpan, *, is_own: bool) -> None:
        message.ended_at = time.time_ns()
        message.span.set_attributes(
            self._writer.content_attributes(self._attributes.output_messages, str(message.text))
        )
        if is_own:
            self._close_last_message()
            self._last_message = message
        else:
            self._writer.end_span(message.span)

    def _close_last_message(self, attributes: Attributes | None = None) -> None:
        if self._last_message is not None:
            self._writer.end_span(self._last_message.span, attributes, at=self._last_message.ended_at)
            self._last_message = None

    def _write_usage(self, terminal: Terminal) -> None:
        """Write the usage of each model: the first on the newest message, every other on a separate span."""
        cost = cost_of(terminal)
        for index, usage in enumerate(self._clean_usage(terminal)):
            if self._last_message is None:
                span = self._writer.start_span(
                    "chat", self.root, self._attributes.message_attributes(), start=self._started_at
                )
                self._last_message = _OpenSpan(span=span, ended_at=time.time_ns())
            if usage.model:
                self._last_message.span.update_name(f"chat {usage.model}")
            self._close_last_message(self._attributes.model_usage(usage, None if index else cost))
        self._close_last_message()

    def _clean_usage(self, terminal: Terminal) -> list[TokenUsage]:
        """Return the usage of each model with the names that the agent gave redacted."""
        return [
            replace(
                usage,
                provider=self._writer.clean_name(usage.provider or "") or None,
                model=self._writer.clean_name(usage.model or "") or None,
            )
            for usage in usage_of(terminal)
        ]

    def _final_attributes(self, terminal: Terminal, outcome: str) -> Attributes:
        attributes: Attributes = {"ambient.outcome": outcome}
        attributes |= self._attributes.total_usage(self._clean_usage(terminal), cost_of(terminal))
        if self._first_output_at:
            attributes["gen_ai.response.time_to_first_chunk"] = (self._first_output_at - self._started_at) / 1e9
        match terminal:
            case RunError():
                pass
            case _ if isinstance(terminal.outcome, Interrupted):
                attributes["ambient.interrupts"] = [
                    self._writer.clean_name(interrupt.id) for interrupt in terminal.outcome.interrupts
                ]
            case _ if isinstance(terminal.outcome, Cancelled):
                attributes |= self._attributes.cancelled_attributes()
            case _:
                pass
        return attributes


def _find_call(run: Run, id: str) -> tuple[str, str]:  # noqa: A002
    """Return the tool name and arguments of a call in the thread's messages."""
    for message in reversed(run.input.messages):
        for call in (message.tool_calls or ()) if isinstance(message, AssistantMessage) else ():
            if call.id == id:
                return call.function.name, call.function.arguments
    return "unknown", ""
