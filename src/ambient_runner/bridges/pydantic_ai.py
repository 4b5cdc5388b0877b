"""Bridge for pydantic-ai agents: pydantic-ai's own AG-UI adapter, served through `AGUIBridge`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.base import FrameworkCapabilities
from ambient_runner.bridges.toolkit.content import context_text
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.tools import declare_tool
from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError, optional_dependency
from ambient_runner.protocol.agui_models import input_from_agui

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from ag_ui.core import BaseEvent, RunAgentInput

    from ambient_runner.protocol.events import Tool

__all__ = ["PydanticAIBridge"]


class PydanticAIBridge(AGUIBridge):
    """Serves a pydantic-ai agent. `options` are passed to `AGUIAdapter.run_stream`: `deps`, `model`, `usage_limits` and others.

    Each run gets a shallow copy of `deps`, and the client's context as an additional instruction.
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
            stream = cast("AsyncGenerator[BaseEvent, None]", adapter.run_stream(**_options_for_run(options, input)))
            async with aclosing(stream) as events:
                async for event in events:
                    yield event

        super().__init__(run, capabilities=FrameworkCapabilities(thinking=True))
        self._toolsets = getattr(agent, "toolsets", ())

    async def _list_tools_of(self, agent: Any) -> list[Tool]:
        """Return the function tools of the agent. Those of other toolsets, such as MCP servers, are known only in a run."""
        tools: list[Any] = [
            tool.tool_def for toolset in self._toolsets for tool in as_object(getattr(toolset, "tools", None)).values()
        ]
        return [declare_tool(tool.name, tool.description, tool.parameters_json_schema) for tool in tools]


def _options_for_run(options: Mapping[str, Any], run_input: RunAgentInput) -> dict[str, Any]:
    """Return the options of one run: with dependencies of its own, and with the client's context as an instruction."""
    # pydantic-ai sets the run's state on `deps`: runs of other threads would read it.
    own = {**options, "deps": copy.copy(options["deps"])} if "deps" in options else {**options}
    context = context_text(input_from_agui(run_input).context)
    if context:
        instructions = own.get("instructions")
        is_several = isinstance(instructions, Sequence) and not isinstance(instructions, str)
        own["instructions"] = [
            *(cast("Sequence[Any]", instructions) if is_several else [instructions] if instructions else []),
            context,
        ]
    return own
