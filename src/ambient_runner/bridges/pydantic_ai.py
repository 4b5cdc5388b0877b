"""Bridge for pydantic-ai agents: pydantic-ai's own AG-UI adapter, served through `AGUIBridge`."""

from __future__ import annotations

import inspect
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.base import FrameworkCapabilities
from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError, optional_dependency

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import BaseEvent, RunAgentInput

__all__ = ["PydanticAIBridge"]


class PydanticAIBridge(AGUIBridge):
    """Serves a pydantic-ai agent. `options` are passed to `AGUIAdapter.run_stream`: `deps`, `model`, `usage_limits` and others.

    Raises: ConfigError for an option that `run_stream` does not have.
    """

    def __init__(self, agent: Any, **options: Any) -> None:
        with optional_dependency("pydantic_ai", install="pydantic-ai-slim[ag-ui]"):
            from pydantic_ai.ui.ag_ui import AGUIAdapter

        known = list(inspect.signature(AGUIAdapter.run_stream).parameters)[1:]
        for name in options:
            if name not in known:
                raise ConfigError(
                    f"AGUIAdapter.run_stream of pydantic-ai has no option {name!r}.{did_you_mean(name, known)}"
                )

        async def run(input: RunAgentInput) -> AsyncGenerator[BaseEvent, None]:  # noqa: A002  the adapter contract's name
            adapter = AGUIAdapter(agent=agent, run_input=input)
            stream = cast("AsyncGenerator[BaseEvent, None]", adapter.run_stream(**options))
            async with aclosing(stream) as events:
                async for event in events:
                    yield event

        super().__init__(run, capabilities=FrameworkCapabilities(thinking=True))
