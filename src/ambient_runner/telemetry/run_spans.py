"""One run as a tree of spans: the run, its subagents, its tool calls, what the assistant said. A fold over events that only observes.

Everything here belongs to one run. `tracing.py` feeds it, `pen.py` writes, `dialects.py` has the names; nothing waits. What the agent
thinks is not traced.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    outcome_of,
    words_of,
)
from ambient_runner.protocol.repair import Repairer
from ambient_runner.telemetry.attributes import cost_of, usage_of
from ambient_runner.telemetry.span_ids import parent_of, span_context
from ambient_runner.telemetry.span_text import Words
from ambient_runner.telemetry.span_writer import Pen

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from ambient_runner.protocol.events import Event, Terminal
    from ambient_runner.runs.run import Run
    from ambient_runner.telemetry.attributes import Attributes
    from ambient_runner.telemetry.span_writer import Target

__all__ = ["UNSEEN", "Trace"]

UNSEEN = frozenset(EVENT_TYPES) - {
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
"""Types of events that leave nothing in a trace."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Open:
    """A message or a call, and what it has said so far."""

    span: Span
    words: Words = field(default_factory=Words)
    ended: int = 0


class Trace:
    """The spans of one run. `feed` takes its events as they pass, `end` its last word; after that nothing is open."""

    def __init__(self, target: Target, run: Run) -> None:
        self._run = run
        self._say = target.dialect
        self._pen = Pen(target, run)
        self._legal = Repairer(run.input.thread_id, run.input.run_id)
        self._began = time.time_ns()
        self._first_word = 0
        self._texts: dict[str, _Open] = {}
        self._calls: dict[str, _Open] = {}
        self._subagents: dict[str, Span] = {}
        self._held: _Open | None = None
        """The newest message, over but not closed: what the run took is said on it, and is known only at the end."""
        self._ended = False
        self.root = self._root()
        self._bring_results()

    def hears(self, event: Event) -> bool:
        """Take a delta of something open; False for anything else. Cheap, and it cannot fail."""
        if type(event) is TextMessageContent:
            grown = self._texts.get(event.message_id)
        elif type(event) is ToolCallArgs:
            grown = self._calls.get(event.tool_call_id)
        else:
            return False
        if grown is None:
            return False
        grown.words.add(event.delta)
        return True

    def feed(self, event: Event) -> None:
        """Observe one event. It is repaired here as it will be before it is stored, so that a trace shows what a thread has."""
        if not self._ended:
            for legal in self._legal.feed(event):
                self._fold(legal)

    def end(self, terminal: Terminal) -> None:
        """Close everything. Only the first end counts."""
        if self._ended:
            return
        self._ended = True
        for closing in self._legal.close():
            self._fold(closing)
        outcome = outcome_of(terminal)
        for call in self._calls.values():
            self._close_call(call, "pending" if outcome in {"success", "interrupt"} else outcome)
        answer = str(self._held.words) if self._held else ""
        self._say_usage(terminal)
        if isinstance(terminal, RunError):
            self._pen.fail(self.root, terminal.code or BridgeError.code, terminal.message)
        self._pen.close(self.root, self._ending(terminal, outcome) | self._pen.words(self._say.answered, answer))

    def _root(self) -> Span:
        run = self._run
        asked = "\n".join(words_of(message.content) for message in run.accepted if isinstance(message, UserMessage))
        return self._pen.begin(
            f"invoke_agent {run.agent}",
            parent_of(run),
            self._say.run(run) | self._pen.words(self._say.asked, asked),
            own=span_context(run.trace_id, run.key),
            link=span_context(run.resumes.trace_id, run.resumes.run) if run.resumes else None,
            start=self._began,
        )

    def _bring_results(self) -> None:
        """What the client has done for an earlier run."""
        for message in self._run.accepted:
            if isinstance(message, ToolMessage):
                call = self._earlier_call(message.tool_call_id)
                self._answer(call, words_of(message.content), message.error or "")

    def _fold(self, event: Event) -> None:
        match event:
            case TextMessageStart() if event.role in {"assistant", None}:
                about = self._say.message(self._pen.name(event.message_id))
                self._texts[event.message_id] = self._opened("chat", event.subagent_run_id, about)
            case TextMessageContent() if event.message_id in self._texts:
                self._texts[event.message_id].words.add(event.delta)
            case TextMessageEnd() if event.message_id in self._texts:
                self._end_text(self._texts.pop(event.message_id), is_own=event.subagent_run_id is None)
            case ToolCallStart():
                self._calls[event.tool_call_id] = self._call(event)
            case ToolCallArgs() if event.tool_call_id in self._calls:
                self._calls[event.tool_call_id].words.add(event.delta)
            case ToolCallResult():
                call = self._calls.pop(event.tool_call_id, None) or self._earlier_call(event.tool_call_id)
                failed = (event.metadata or {}).get("isError") is True
                self._answer(call, words_of(event.content), "The tool failed." if failed else "")
            case SubagentStarted():
                self._begin_subagent(event)
            case SubagentFinished() | SubagentError():
                self._end_subagent(event)
            case _:
                pass

    def _opened(self, name: str, lane: str | None, about: Attributes, call: str = "") -> _Open:
        self._first_word = self._first_word or time.time_ns()
        own = span_context(self._run.trace_id, self._run.key, call) if call else None
        return _Open(span=self._pen.begin(name, self._lane(lane), about, own=own))

    def _lane(self, subagent: str | None) -> Span:
        return self._subagents.get(subagent or "", self.root)

    def _call(self, event: ToolCallStart) -> _Open:
        name, call = self._pen.name(event.tool_call_name), self._pen.name(event.tool_call_id)
        return self._opened(f"execute_tool {name}", event.subagent_run_id, self._say.tool(name, call), call)

    def _earlier_call(self, id: str) -> _Open:  # noqa: A002  the protocol's name
        """A call that an earlier run made and whose result comes in this one: a span of this run, linked to that one."""
        tool, arguments = _known_call(self._run, id)
        name, call, earlier = self._pen.name(tool), self._pen.name(id), self._run.resumes
        made = span_context(earlier.trace_id, earlier.run, call) if earlier else None
        about = self._say.tool(name, call)
        opened = _Open(span=self._pen.begin(f"execute_tool {name}", self.root, about, link=made, start=self._began))
        opened.words.add(arguments)
        return opened

    def _answer(self, call: _Open, result: str, error: str = "") -> None:
        if error:
            self._pen.fail(call.span, "tool_error", error)
        self._close_call(call, "error" if error else "success", result)

    def _close_call(self, call: _Open, outcome: str, result: str = "") -> None:
        said = self._pen.words(self._say.arguments, str(call.words)) | self._pen.words(self._say.result, result)
        self._pen.close(call.span, {"ambient.outcome": outcome} | said)

    def _begin_subagent(self, event: SubagentStarted) -> None:
        caller = self._calls.get(event.parent_tool_call_id or "")
        parent = caller.span if caller else self._lane(event.parent_subagent_run_id)
        name = self._pen.name(event.name)
        self._subagents[event.subagent_run_id] = self._pen.begin(f"invoke_agent {name}", parent, self._say.agent(name))

    def _end_subagent(self, event: SubagentFinished | SubagentError) -> None:
        span = self._subagents.pop(event.subagent_run_id, None)
        if span is None:
            return
        if isinstance(event, SubagentError):
            self._pen.fail(span, event.code or BridgeError.code, event.message)
        self._pen.close(span)

    def _end_text(self, said: _Open, *, is_own: bool) -> None:
        said.ended = time.time_ns()
        said.span.set_attributes(self._pen.words(self._say.answered, str(said.words)))
        if is_own:
            self._release()
            self._held = said
        else:
            self._pen.close(said.span)

    def _release(self, about: Attributes | None = None) -> None:
        if self._held is not None:
            self._pen.close(self._held.span, about, at=self._held.ended)
            self._held = None

    def _say_usage(self, terminal: Terminal) -> None:
        """What each model took: the first on the newest message, every other on a span of its own."""
        cost = cost_of(terminal)
        for at, usage in enumerate(usage_of(terminal)):
            if self._held is None:
                spent = self._pen.begin("chat", self.root, self._say.message(), start=self._began)
                self._held = _Open(span=spent, ended=time.time_ns())
            if usage.model:
                self._held.span.update_name(f"chat {self._pen.name(usage.model)}")
            self._release(self._say.usage(usage, None if at else cost))
        self._release()

    def _ending(self, terminal: Terminal, outcome: str) -> Attributes:
        about: Attributes = {"ambient.outcome": outcome}
        about |= self._say.totals(usage_of(terminal), cost_of(terminal))
        if self._first_word:
            about["gen_ai.response.time_to_first_chunk"] = (self._first_word - self._began) / 1e9
        match terminal:
            case RunError():
                pass
            case _ if isinstance(terminal.outcome, Interrupted):
                about["ambient.interrupts"] = [self._pen.name(one.id) for one in terminal.outcome.interrupts]
            case _ if isinstance(terminal.outcome, Cancelled):
                about |= self._say.stopped()
            case _:
                pass
        return about


def _known_call(run: Run, id: str) -> tuple[str, str]:  # noqa: A002
    """The tool's name and arguments of a call in the conversation."""
    for message in reversed(run.input.messages):
        for call in (message.tool_calls or ()) if isinstance(message, AssistantMessage) else ():
            if call.id == id:
                return call.function.name, call.function.arguments
    return "unknown", ""
