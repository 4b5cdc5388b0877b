"""A Strands model that plays a script, so that the real SDK runs without a network, and remembers what it was shown."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import anyio
from strands.models.model import Model

Step = dict[str, Any] | BaseException | anyio.Event
"""A chunk of the model's stream, something to raise, or an event to wait for."""
Turn = list[Step]
Script = Callable[[list[Any]], Turn]
"""Decides a turn from the messages the model is shown."""


class ScriptedModel(Model):
    """Plays one turn per call. `saw` holds the messages of every call, `specs` the names of its tools, `prompts` the system prompts."""

    def __init__(self, *turns: Turn, script: Script | None = None, **config: Any) -> None:
        self.config = {"model_id": "scripted-1", "context_window_limit": 200_000, **config}
        self.saw: list[list[Any]] = []
        self.specs: list[list[str]] = []
        self.prompts: list[str | None] = []
        self.tools: list[Any] = []
        self.closed = 0
        self.gate: Callable[[], anyio.Event | None] | None = None
        """Asked before every step: what to wait for, if anything."""
        self._turns = list(turns)
        self._script = script
        self._news = anyio.Event()

    def update_config(self, **model_config: Any) -> None:
        self.config.update(model_config)

    def get_config(self) -> Any:
        return self.config

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **options: Any
    ) -> AsyncGenerator[Any, None]:
        self.saw.append(_shown(messages))
        self._news.set()
        self.specs.append([spec["name"] for spec in tool_specs or ()])
        self.tools = list(tool_specs or ())
        self.prompts.append(system_prompt)
        turn = self._script(messages) if self._script else self._turns.pop(0)
        try:
            for step in turn:
                wait = self.gate() if self.gate else None
                if wait is not None:
                    await wait.wait()
                if isinstance(step, anyio.Event):
                    await step.wait()
                elif isinstance(step, BaseException):
                    raise step
                else:
                    yield copy.deepcopy(step)
        finally:
            self.closed += 1

    async def wait_for_calls(self, times: int) -> None:
        """Wait until the model has been called this many times."""
        while len(self.saw) < times:
            self._news = anyio.Event()
            await self._news.wait()

    @property
    def is_played_out(self) -> bool:
        return not self._turns


def _shown(messages: Iterable[Any]) -> list[Any]:
    """What the provider would be sent: roles and content, without the SDK's own bookkeeping."""
    return [{"role": message["role"], "content": copy.deepcopy(message["content"])} for message in messages]


def says(*deltas: str, stop: str = "end_turn", usage: tuple[int, int] = (10, 5)) -> Turn:
    """A turn of text alone."""
    return turn(text(*deltas), stop=stop, usage=usage)


def calls(*blocks: Turn, stop: str = "tool_use", usage: tuple[int, int] = (10, 5)) -> Turn:
    """A turn that ends in tool calls."""
    return turn(*blocks, stop=stop, usage=usage)


def turn(*blocks: Turn, stop: str = "end_turn", usage: tuple[int, int] = (10, 5)) -> Turn:
    received, made = usage
    return [
        {"messageStart": {"role": "assistant"}},
        *(step for block in blocks for step in block),
        {"messageStop": {"stopReason": stop}},
        {
            "metadata": {
                "usage": {"inputTokens": received, "outputTokens": made, "totalTokens": received + made},
                "metrics": {"latencyMs": 1},
            }
        },
    ]


def text(*deltas: str) -> Turn:
    return [
        {"contentBlockStart": {"start": {}}},
        *({"contentBlockDelta": {"delta": {"text": delta}}} for delta in deltas),
        {"contentBlockStop": {}},
    ]


def call(call_id: str, name: str, *deltas: str) -> Turn:
    """A tool call whose arguments come in these pieces; none at all for a tool without arguments."""
    return [
        {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}},
        *({"contentBlockDelta": {"delta": {"toolUse": {"input": delta}}}} for delta in deltas),
        {"contentBlockStop": {}},
    ]


def thought(*deltas: str, signature: str | None = None) -> Turn:
    signed = [{"contentBlockDelta": {"delta": {"reasoningContent": {"signature": signature}}}}] if signature else []
    return [
        {"contentBlockStart": {"start": {}}},
        *({"contentBlockDelta": {"delta": {"reasoningContent": {"text": delta}}}} for delta in deltas),
        *signed,
        {"contentBlockStop": {}},
    ]


def redacted(data: bytes) -> Turn:
    return [
        {"contentBlockStart": {"start": {}}},
        {"contentBlockDelta": {"delta": {"reasoningContent": {"redactedContent": data}}}},
        {"contentBlockStop": {}},
    ]


def said_user(*blocks: Any) -> dict[str, Any]:
    """A user message as the model sees it; plain strings are text blocks."""
    return {"role": "user", "content": [_block(block) for block in blocks]}


def said_assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [_block(block) for block in blocks]}


def tool_use(call_id: str, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments or {}}}


def tool_result(call_id: str, *blocks: Any, status: str = "success") -> dict[str, Any]:
    return {"toolResult": {"toolUseId": call_id, "status": status, "content": [_block(block) for block in blocks]}}


def _block(block: Any) -> Any:
    return {"text": block} if isinstance(block, str) else block
