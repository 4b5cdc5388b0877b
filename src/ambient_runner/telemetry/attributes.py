"""Attributes on spans: OpenTelemetry's gen_ai conventions, Langfuse's own names, and the token usage of a run's terminal event."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.events import RunFinished, TokenUsage
from ambient_runner.telemetry.span_text import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.protocol.events import Terminal
    from ambient_runner.runs.run import Run

__all__ = ["Attributes", "Dialect", "LangfuseDialect", "cost_of", "usage_of"]

Attributes = dict[str, "str | bool | int | float | Sequence[str]"]

PROVIDER = "ambient_runner"
"""What stands for the provider as long as the agent has not named one."""
_LONGEST_LABEL = 199

_COUNTS = (
    ("gen_ai.usage.input_tokens", "input", "input_tokens"),
    ("gen_ai.usage.output_tokens", "output", "output_tokens"),
    ("gen_ai.usage.cache_read.input_tokens", "cache_read_input_tokens", "cached_input_tokens"),
    ("gen_ai.usage.cache_creation.input_tokens", "cache_creation_input_tokens", "cache_write_input_tokens"),
    ("gen_ai.usage.reasoning.output_tokens", "reasoning_tokens", "reasoning_tokens"),
)
"""A count as OpenTelemetry names it, as Langfuse does, and its field of TokenUsage."""


class Dialect:
    """OpenTelemetry's names, and ours under `ambient.`."""

    def everywhere(self, run: Run) -> Attributes:
        """What stands on every span of a run."""
        return {
            "session.id": run.thread.id,
            "user.id": run.actor.owner,
            "gen_ai.conversation.id": run.thread.id,
            "ambient.run": run.key,
            "ambient.thread": run.thread.id,
            "ambient.tenant": run.actor.tenant,
        }

    def run(self, run: Run) -> Attributes:
        return self.agent(run.agent) | {"ambient.continuation": run.is_continuation}

    def agent(self, name: str) -> Attributes:
        return _operation("invoke_agent") | {"gen_ai.agent.name": name}

    def tool(self, name: str, call: str) -> Attributes:
        return _operation("execute_tool") | {
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call,
        }

    def message(self, id: str = "") -> Attributes:  # noqa: A002  the protocol's name
        return _operation("chat") | ({"ambient.message": id} if id else {})

    def arguments(self, text: str) -> Attributes:
        return {"gen_ai.tool.call.arguments": text}

    def result(self, text: str) -> Attributes:
        return {"gen_ai.tool.call.result": text}

    def asked(self, text: str) -> Attributes:
        return {"gen_ai.input.messages": _spoken("user", text)}

    def answered(self, text: str) -> Attributes:
        return {"gen_ai.output.messages": _spoken("assistant", text)}

    def usage(self, usage: TokenUsage, cost: float | None = None) -> Attributes:
        """What one model took, on the message it ended with."""
        return _model(usage) | _counts([usage]) | _cost(cost)

    def totals(self, usage: Sequence[TokenUsage], cost: float | None = None) -> Attributes:
        """What the whole run took, on its root."""
        one = _model(usage[0]) if len(usage) == 1 else {}
        return one | _counts(usage) | _cost(cost)

    def failed(self, code: str, message: str) -> Attributes:
        return {"error.type": code}

    def stopped(self) -> Attributes:
        return {}


class LangfuseDialect(Dialect):
    """The same with Langfuse's own names, which it prefers. It adds up usage over observations, so the root has none."""

    def __init__(self, stage: str = "") -> None:
        self._stage: Attributes = {"langfuse.environment": stage} if stage else {}

    def everywhere(self, run: Run) -> Attributes:
        thread = _label(run.thread.id)
        return (
            super().everywhere(run)
            | self._stage
            | {
                "session.id": thread,
                "user.id": _label(run.actor.owner),
                "langfuse.trace.name": run.agent,
                "langfuse.trace.tags": [f"agent:{run.agent}"],
                "langfuse.trace.metadata.run": run.key,
                "langfuse.trace.metadata.thread": thread,
            }
        )

    def agent(self, name: str) -> Attributes:
        return super().agent(name) | _kind("agent")

    def tool(self, name: str, call: str) -> Attributes:
        return super().tool(name, call) | _kind("tool")

    def message(self, id: str = "") -> Attributes:  # noqa: A002
        return super().message(id) | _kind("generation")

    def arguments(self, text: str) -> Attributes:
        return {"langfuse.observation.input": text}

    def result(self, text: str) -> Attributes:
        return {"langfuse.observation.output": text}

    asked = arguments
    answered = result

    def usage(self, usage: TokenUsage, cost: float | None = None) -> Attributes:
        counts = {short: count for _, short, field in _COUNTS if (count := getattr(usage, field)) is not None}
        if usage.total_tokens is not None:
            counts["total"] = usage.total_tokens
        said: Attributes = {"langfuse.observation.usage_details": plain(counts)} if counts else {}
        if usage.model:
            said["langfuse.observation.model.name"] = usage.model
        if cost is not None:
            said["langfuse.observation.cost_details"] = plain({"total": cost})
        return _model(usage) | said

    def totals(self, usage: Sequence[TokenUsage], cost: float | None = None) -> Attributes:
        return _model(usage[0]) if len(usage) == 1 else {}

    def failed(self, code: str, message: str) -> Attributes:
        said: Attributes = {"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": message}
        return super().failed(code, message) | said

    def stopped(self) -> Attributes:
        return {
            "langfuse.observation.level": "WARNING",
            "langfuse.observation.status_message": "The run was stopped.",
        }


def _operation(name: str) -> Attributes:
    return {"gen_ai.operation.name": name, "gen_ai.provider.name": PROVIDER}


def _kind(name: str) -> Attributes:
    return {"langfuse.observation.type": name}


def _spoken(role: str, text: str) -> str:
    return plain([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _model(usage: TokenUsage) -> Attributes:
    provider: Attributes = {"gen_ai.provider.name": usage.provider} if usage.provider else {}
    return provider | ({"gen_ai.response.model": usage.model} if usage.model else {})


def _counts(usage: Sequence[TokenUsage]) -> Attributes:
    """The sums of what is known; what no entry says is left out."""
    found: Attributes = {}
    for name, _, field in _COUNTS:
        counts: list[int] = [count for one in usage if (count := getattr(one, field)) is not None]
        if counts:
            found[name] = sum(counts)
    return found


def _cost(cost: float | None) -> Attributes:
    return {} if cost is None else {"ambient.cost.usd": cost}


def _label(text: str) -> str:
    """The text if Langfuse would keep it: it drops what is not ASCII or has 200 characters."""
    if text.isascii() and len(text) <= _LONGEST_LABEL:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


_NAMES = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_input_tokens": "cache_read_input_tokens",
    "cache_write_input_tokens": "cache_creation_input_tokens",
}
_COSTS = ("total_cost_usd", "totalCostUsd", "cost_usd", "costUsd")


def usage_of(terminal: Terminal) -> list[TokenUsage]:
    """One entry for each model, as far as the run says it."""
    if terminal.usage:
        return terminal.usage
    told = _members(_members(_result(terminal)).get("usage"))
    counts = {field: told[name] for field, name in _NAMES.items() if _is_count(told.get(name))}
    return [TokenUsage(**counts)] if counts else []


def cost_of(terminal: Terminal) -> float | None:
    """Dollars, where the framework knows the price."""
    for place in (_members(_result(terminal)), terminal.metadata or {}):
        for name in _COSTS:
            cost = place.get(name)
            if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0:
                return float(cost)
    return None


def _result(terminal: Terminal) -> object:
    return terminal.result if isinstance(terminal, RunFinished) else None


def _members(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
