"""Attributes on spans: OpenTelemetry's gen_ai conventions, Langfuse's own names, and the token usage of a run's terminal event."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.events import RunFinished, TokenUsage
from ambient_runner.telemetry.span_text import encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.protocol.events import Terminal
    from ambient_runner.runs.run import Run

__all__ = ["Attributes", "LangfuseAttributes", "SpanAttributes", "cost_of", "usage_of"]

Attributes = dict[str, "str | bool | int | float | Sequence[str]"]

DEFAULT_PROVIDER = "ambient_runner"
"""Provider name for agents that do not name one."""
_MAX_LABEL = 199

_COUNT_NAMES = (
    ("gen_ai.usage.input_tokens", "input", "input_tokens"),
    ("gen_ai.usage.output_tokens", "output", "output_tokens"),
    ("gen_ai.usage.cache_read.input_tokens", "cache_read_input_tokens", "cached_input_tokens"),
    ("gen_ai.usage.cache_creation.input_tokens", "cache_creation_input_tokens", "cache_write_input_tokens"),
    ("gen_ai.usage.reasoning.output_tokens", "reasoning_tokens", "reasoning_tokens"),
)
"""A token count: its OpenTelemetry name, its Langfuse name, and its field of TokenUsage."""


class SpanAttributes:
    """Attributes with OpenTelemetry's names, and ours under `ambient.`."""

    def common_attributes(self, run: Run) -> Attributes:
        """Return the attributes of every span of a run."""
        return {
            "session.id": run.thread.id,
            "user.id": run.actor.owner,
            "gen_ai.conversation.id": run.thread.id,
            "ambient.run": run.key,
            "ambient.thread": run.thread.id,
            "ambient.tenant": run.actor.tenant,
        }

    def run_attributes(self, run: Run) -> Attributes:
        return self.agent_attributes(run.agent) | {"ambient.continuation": run.is_continuation}

    def agent_attributes(self, name: str) -> Attributes:
        return _operation_attributes("invoke_agent") | {"gen_ai.agent.name": name}

    def tool_attributes(self, name: str, call: str) -> Attributes:
        return _operation_attributes("execute_tool") | {
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call,
        }

    def message_attributes(self, id: str = "") -> Attributes:  # noqa: A002  the protocol's name
        return _operation_attributes("chat") | ({"ambient.message": id} if id else {})

    def tool_arguments(self, text: str) -> Attributes:
        return {"gen_ai.tool.call.arguments": text}

    def tool_result(self, text: str) -> Attributes:
        return {"gen_ai.tool.call.result": text}

    def input_messages(self, text: str) -> Attributes:
        return {"gen_ai.input.messages": _encode_chat_message("user", text)}

    def output_messages(self, text: str) -> Attributes:
        return {"gen_ai.output.messages": _encode_chat_message("assistant", text)}

    def model_usage(self, usage: TokenUsage, cost: float | None = None) -> Attributes:
        """Return the usage of one model, for the span of its last message."""
        return _model_attributes(usage) | _token_counts([usage]) | _cost_attributes(cost)

    def total_usage(self, usage: Sequence[TokenUsage], cost: float | None = None) -> Attributes:
        """Return the usage of the whole run, for its root span."""
        model = _model_attributes(usage[0]) if len(usage) == 1 else {}
        return model | _token_counts(usage) | _cost_attributes(cost)

    def error_attributes(self, code: str, message: str) -> Attributes:
        return {"error.type": code}

    def cancelled_attributes(self) -> Attributes:
        return {}


class LangfuseAttributes(SpanAttributes):
    """Attributes with Langfuse's own names, which it prefers. Langfuse sums usage over observations, so the root span has none."""

    def __init__(self, stage: str = "") -> None:
        self._stage: Attributes = {"langfuse.environment": stage} if stage else {}

    def common_attributes(self, run: Run) -> Attributes:
        thread = _langfuse_label(run.thread.id)
        return (
            super().common_attributes(run)
            | self._stage
            | {
                "session.id": thread,
                "user.id": _langfuse_label(run.actor.owner),
                "langfuse.trace.name": run.agent,
                "langfuse.trace.tags": [f"agent:{run.agent}"],
                "langfuse.trace.metadata.run": run.key,
                "langfuse.trace.metadata.thread": thread,
            }
        )

    def agent_attributes(self, name: str) -> Attributes:
        return super().agent_attributes(name) | _observation_type("agent")

    def tool_attributes(self, name: str, call: str) -> Attributes:
        return super().tool_attributes(name, call) | _observation_type("tool")

    def message_attributes(self, id: str = "") -> Attributes:  # noqa: A002
        return super().message_attributes(id) | _observation_type("generation")

    def tool_arguments(self, text: str) -> Attributes:
        return {"langfuse.observation.input": text}

    def tool_result(self, text: str) -> Attributes:
        return {"langfuse.observation.output": text}

    input_messages = tool_arguments
    output_messages = tool_result

    def model_usage(self, usage: TokenUsage, cost: float | None = None) -> Attributes:
        counts = {short: count for _, short, field in _COUNT_NAMES if (count := getattr(usage, field)) is not None}
        if usage.total_tokens is not None:
            counts["total"] = usage.total_tokens
        attributes: Attributes = {"langfuse.observation.usage_details": encode_json(counts)} if counts else {}
        if usage.model:
            attributes["langfuse.observation.model.name"] = usage.model
        if cost is not None:
            attributes["langfuse.observation.cost_details"] = encode_json({"total": cost})
        return _model_attributes(usage) | attributes

    def total_usage(self, usage: Sequence[TokenUsage], cost: float | None = None) -> Attributes:
        return _model_attributes(usage[0]) if len(usage) == 1 else {}

    def error_attributes(self, code: str, message: str) -> Attributes:
        attributes: Attributes = {"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": message}
        return super().error_attributes(code, message) | attributes

    def cancelled_attributes(self) -> Attributes:
        return {
            "langfuse.observation.level": "WARNING",
            "langfuse.observation.status_message": "The run was stopped.",
        }


def _operation_attributes(name: str) -> Attributes:
    return {"gen_ai.operation.name": name, "gen_ai.provider.name": DEFAULT_PROVIDER}


def _observation_type(name: str) -> Attributes:
    return {"langfuse.observation.type": name}


def _encode_chat_message(role: str, text: str) -> str:
    return encode_json([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _model_attributes(usage: TokenUsage) -> Attributes:
    provider: Attributes = {"gen_ai.provider.name": usage.provider} if usage.provider else {}
    return provider | ({"gen_ai.response.model": usage.model} if usage.model else {})


def _token_counts(usage: Sequence[TokenUsage]) -> Attributes:
    """Return the sum of each count; a count that no entry has is left out."""
    totals: Attributes = {}
    for name, _, field in _COUNT_NAMES:
        counts: list[int] = [count for entry in usage if (count := getattr(entry, field)) is not None]
        if counts:
            totals[name] = sum(counts)
    return totals


def _cost_attributes(cost: float | None) -> Attributes:
    return {} if cost is None else {"ambient.cost.usd": cost}


def _langfuse_label(text: str) -> str:
    """Return the text if Langfuse stores it, else its hash: Langfuse drops texts that are not ASCII or have 200 characters or more."""
    if text.isascii() and len(text) <= _MAX_LABEL:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


_RESULT_USAGE_NAMES = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_input_tokens": "cache_read_input_tokens",
    "cache_write_input_tokens": "cache_creation_input_tokens",
}
_COST_NAMES = ("total_cost_usd", "totalCostUsd", "cost_usd", "costUsd")


def usage_of(terminal: Terminal) -> list[TokenUsage]:
    """Return the token usage of a run, one entry per model, as far as the terminal event reports it."""
    if terminal.usage:
        return terminal.usage
    usage = _object_members(_object_members(_run_result(terminal)).get("usage"))
    counts = {field: usage[name] for field, name in _RESULT_USAGE_NAMES.items() if _is_count(usage.get(name))}
    return [TokenUsage(**counts)] if counts else []


def cost_of(terminal: Terminal) -> float | None:
    """Return the cost in US dollars, if the framework reports it."""
    for members in (_object_members(_run_result(terminal)), terminal.metadata or {}):
        for name in _COST_NAMES:
            cost = members.get(name)
            if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0:
                return float(cost)
    return None


def _run_result(terminal: Terminal) -> object:
    return terminal.result if isinstance(terminal, RunFinished) else None


def _object_members(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
