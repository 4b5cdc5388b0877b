"""A Strands agent whose model counts: `count 2000` is two thousand deltas, unpaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.models.model import Model

from benchmarks.workload import deltas, parse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class CountingModel(Model):
    """Answers with the deltas its newest user message asks for."""

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        async for text in deltas(parse(_prompt(messages[-1]))):
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def _prompt(message: Any) -> str:
    return "".join(block.get("text", "") for block in message["content"])


def agent() -> Agent:
    return Agent(model=CountingModel(), callback_handler=None)


async def loop(prompt: str) -> int:
    """Consume the SDK's own stream and do nothing with it; how many deltas came."""
    count = 0
    async for event in agent().stream_async(prompt):
        count += "data" in event
    return count


def published() -> Any:
    """The app of the published adapter."""
    from ag_ui_strands import StrandsAgent, create_strands_app  # pyright: ignore  # another environment

    return create_strands_app(StrandsAgent(agent(), name="bench"), "/", origins=["http://localhost"])
