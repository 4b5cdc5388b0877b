"""A Strands agent whose model counts: `count 2000` is two thousand deltas, unpaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.models.model import Model

from benchmarks.workload import parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class CountingModel(Model):
    """Streams the workload of the last user message."""

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        async for text in stream_deltas(parse_workload(_prompt_text(messages[-1]))):
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def _prompt_text(message: Any) -> str:
    return "".join(block.get("text", "") for block in message["content"])


def build_agent() -> Agent:
    return Agent(model=CountingModel(), callback_handler=None)


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
