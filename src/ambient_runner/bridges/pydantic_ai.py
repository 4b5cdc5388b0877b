"""A pydantic-ai agent as an agent of this server: its own AG-UI adapter, through `AGUIBridge`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.base import FrameworkCapabilities
from ambient_runner.errors import needing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import BaseEvent, RunAgentInput

__all__ = ["PydanticAIBridge"]


class PydanticAIBridge(AGUIBridge):
    """A pydantic-ai agent. `options` go to `AGUIAdapter.run_stream`: `deps`, `model`, `usage_limits` and the like."""

    def __init__(self, agent: Any, **options: Any) -> None:
        with needing("pydantic_ai", install="pydantic-ai-slim[ag-ui]"):
            from pydantic_ai.ui.ag_ui import AGUIAdapter

        async def run(input: RunAgentInput) -> AsyncGenerator[BaseEvent, None]:  # noqa: A002  the ADR's name
            adapter = AGUIAdapter(agent=agent, run_input=input)
            stream = cast("AsyncGenerator[BaseEvent, None]", adapter.run_stream(**options))
            async with aclosing(stream) as events:
                async for event in events:
                    yield event

        super().__init__(run, capabilities=FrameworkCapabilities(thinking=True))
