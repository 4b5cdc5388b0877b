"""A Strands agent whose model counts: `count 2000` is two thousand deltas, unpaced; `count 20 after 5 calls` calls a tool first."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from strands import Agent, tool
from strands.models.model import Model

from benchmarks.workload import parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@tool
def look_up(city: str) -> str:
    """Return what is known about a city."""
    return f"{city} has a harbour."


class CountingModel(Model):
    """Streams the workload of the last prompt, after its tool calls."""

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        prompts = [index for index, message in enumerate(messages) if _prompt_text(message)]
        work = parse_workload(_prompt_text(messages[prompts[-1]]))
        yield {"messageStart": {"role": "assistant"}}
        if (len(messages) - 1 - prompts[-1]) // 2 < work.calls:
            call = {"toolUseId": str(uuid.uuid4()), "name": "look_up"}
            yield {"contentBlockStart": {"start": {"toolUse": call}}}
            for piece in ('{"city"', ': "Lis', 'bon"}'):
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": piece}}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}
            return
        yield {"contentBlockStart": {"start": {}}}
        async for text in stream_deltas(work):
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def _prompt_text(message: Any) -> str:
    """Return the text of a user message; empty for others, which have tool results or are the model's own."""
    return "".join(block.get("text", "") for block in message["content"]) if message["role"] == "user" else ""


def build_agent() -> Agent:
    return Agent(model=CountingModel(), tools=[look_up], callback_handler=None)


async def run_loop(prompt: str) -> int:
    """Consume the SDK's own stream. Return the number of deltas."""
    count = 0
    async for event in build_agent().stream_async(prompt):
        count += "data" in event
    return count


def build_published_app() -> Any:
    """Return the app of the published adapter."""
    from ag_ui_strands import StrandsAgent, create_strands_app  # pyright: ignore  # another environment

    return create_strands_app(StrandsAgent(build_agent(), name="bench"), "/", origins=["http://localhost"])
