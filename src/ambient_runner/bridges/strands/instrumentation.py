"""What we add to a thread's own Strands agent so that a run can be told and steered: five small insertions, none on the user's agent.

Tools of the client are offered to the model and never executed here; a call of one is a Strands interrupt, so the SDK itself finishes the
batch and stops before it asks the model again. A tool's result is sent when it is there. What only this request says (context, a system
message) reaches the model without entering its history.
"""

from __future__ import annotations

import importlib
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from strands.handlers.callback_handler import null_callback_handler
from strands.hooks import BeforeToolCallEvent
from strands.middleware import ExecuteToolStage, InvokeModelStage, ToolResultEvent, TypedEvent
from strands.tools.tools import PythonAgentTool

from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.bridges.strands.translate import TOOL_RESULT
from ambient_runner.bridges.toolkit.tool_call_ids import free_id
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox, clean_schema

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from strands import Agent
    from strands.middleware import InvokeModelContext, MiddlewareNext

    from ambient_runner.bridges.strands.text_bypass import Shortcut
    from ambient_runner.protocol.events import Tool

__all__ = ["APPROVAL", "FRONTEND", "Request", "Wires", "all_tool_names", "callable_tools"]

FRONTEND = "ambient-frontend"
"""The name of the interrupt that waits for a tool of the client."""
APPROVAL = "ambient-approval"
"""The name of the interrupt that asks before a tool runs."""
DECLINED = "The user declined this call."
_ENDED = "The tool tried to end the process."
_FORWARDED = "The call was handed to the user interface."

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the SDK lets a model call: under any other name it answers the call itself, with an error."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What one run adds to the agent."""

    tools: Toolbox = field(default_factory=lambda: Toolbox([]))
    config: StrandsAgentConfig = field(default_factory=StrandsAgentConfig)
    aside: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Blocks the model reads after the last user message."""
    system: str = ""
    """What the model reads after the system prompt."""
    used: set[str] = field(default_factory=set[str])
    """Ids of calls that the thread has already; the run adds its own."""
    shortcut: Shortcut | None = None
    """Where text is told, if not by the SDK."""


class Wires:
    """The insertions in one agent. `request` is what they serve: set before each run.

    Use `of`: a function may hand out the same agent again, for another thread or after a run that was cut.
    """

    @classmethod
    def of(cls, agent: Agent) -> Wires:
        """Those the agent has, put into it if it has none."""
        found = _WIRED.get(agent)
        if found is None:
            found = _WIRED[agent] = cls(agent)
        return found

    def __init__(self, agent: Agent) -> None:
        self.request = Request()
        self.is_heard = _is_heard(agent)
        """Whether something of the user's hears what the model streams."""
        stage = _agent_stream_stage() if agent.tool_names else None
        if stage is not None:
            agent.add_middleware(stage, _with_results)
        agent.add_middleware(InvokeModelStage, self._whole if self.is_heard else self._lean)
        agent.add_middleware(ExecuteToolStage, _contained)
        agent.add_hook(self._before_tool, BeforeToolCallEvent)
        for inner in _agents_inside(agent):
            _unwire(inner)
            inner.add_hook(self._ask_first, BeforeToolCallEvent)

    async def _whole(self, context: InvokeModelContext, next_fn: MiddlewareNext[Any, Any]) -> AsyncGenerator[Any, None]:
        """What the model streams, as it is: the user has something that hears it."""
        async for event in next_fn(self._prepared(context)):
            if "event" in event:
                self._own_id(event["event"])
            yield event

    async def _lean(self, context: InvokeModelContext, next_fn: MiddlewareNext[Any, Any]) -> AsyncGenerator[Any, None]:
        """What the model streams, without what nobody hears: every delta comes twice, and the SDK adds the state of the whole invocation
        to one of them. That is nearly half of what a run costs.
        """
        shortcut = self.request.shortcut
        if shortcut is not None:
            context = context.replace(model=shortcut.of(context.model))
        async for event in next_fn(self._prepared(context)):
            if "data" in event:
                if shortcut is not None:
                    continue
                event.pop("delta", None)  # The SDK adds the state to what has a delta.
            elif "event" in event:
                if "contentBlockDelta" in event["event"]:
                    continue
                self._own_id(event["event"])
            yield event

    def _own_id(self, chunk: dict[str, Any]) -> None:
        """Give a call an id of its own: some providers count anew in every answer, give none, or one that no client could send back.

        The SDK reads the chunk after us.
        """
        match chunk:
            case {"contentBlockStart": {"start": {"toolUse": dict()}}}:
                use: dict[str, Any] = chunk["contentBlockStart"]["start"]["toolUse"]
            case _:
                return
        use["toolUseId"] = free_id(use["toolUseId"] or "call", self.request.used)
        self.request.used.add(use["toolUseId"])

    def _prepared(self, context: InvokeModelContext) -> InvokeModelContext:
        request = self.request
        if request.tools.frontend:
            specs: list[Any] = [_spec(tool) for tool in request.tools.frontend.values()]
            context = context.replace(tool_specs=[*context.tool_specs, *specs])
        if request.system:
            context = context.replace(system_prompt=_extended(context.system_prompt, request.system))
        return _with_aside(context, request.aside) if request.aside else context

    def _before_tool(self, event: BeforeToolCallEvent) -> None:
        name = event.tool_use["name"]
        behavior = self.request.config.behavior(name)
        if self.request.tools.is_frontend(name):
            result = {"status": "success", "content": [{"text": _FORWARDED}]}
            if not behavior.continue_after_frontend_call:
                result = event.interrupt(FRONTEND, reason={"tool": name, "call": event.tool_use["toolUseId"]})
            event.selected_tool = _giving(self.request.tools.frontend[name], result)
        else:
            self._ask_first(event)

    def _ask_first(self, event: BeforeToolCallEvent) -> None:
        """Ask a person about a call that needs it. The question names the call itself: who answers may see only an agent's call outside."""
        if not self.request.config.behavior(event.tool_use["name"]).interrupt_on_call:
            return
        if not _approves(event.interrupt(APPROVAL, reason={"call": dict(event.tool_use)})):
            event.cancel_tool = DECLINED


_WIRED: WeakKeyDictionary[Agent, Wires] = WeakKeyDictionary()


def all_tool_names(agent: Agent) -> set[str]:
    """The tools of an agent and of those inside it."""
    return {name for one in (agent, *_agents_inside(agent)) for name in one.tool_names}


def _agents_inside(agent: Agent) -> list[Agent]:
    """The agents that are tools of this one, and those inside them: each calls its tools by itself."""
    tools: list[Any] = [tool for tool in agent.tool_registry.registry.values() if tool.tool_type == "agent"]
    return [one for tool in tools for one in (tool.agent, *_agents_inside(tool.agent))]


def _unwire(agent: Agent) -> None:
    """Take our hook away again: a function may give one inner agent to every thread it makes an agent for."""
    found: list[Any] = cast("Any", agent.hooks)._registered_callbacks.get(BeforeToolCallEvent, [])
    found[:] = [entry for entry in found if not isinstance(getattr(entry.callback, "__self__", None), Wires)]


def callable_tools(tools: Sequence[Tool]) -> list[Tool]:
    """Those of the client's tools that the model can call. The log names the others."""
    fit = [tool for tool in tools if _NAME.fullmatch(tool.name)]
    unfit = [tool.name[:64] for tool in tools if not _NAME.fullmatch(tool.name)]
    if unfit:
        logger.warning("Tools of a client were left out, a name is 1 to 64 letters, digits, _ or -: %r", unfit[:10])
    return fit


async def _with_results(context: Any, next_fn: MiddlewareNext[Any, Any]) -> AsyncGenerator[Any, None]:
    """Every event, and before each tool result one that the SDK passes on to us."""
    async for event in next_fn(context):
        if isinstance(event, ToolResultEvent):
            yield TypedEvent({TOOL_RESULT: event.tool_result})
        yield event


async def _contained(context: Any, next_fn: MiddlewareNext[Any, Any]) -> AsyncGenerator[Any, None]:
    """A tool that would end the process has failed, and the model hears so: the SDK would leave its call without a result."""
    try:
        async for event in next_fn(context):
            yield event
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(_ENDED) from error


def _is_heard(agent: Agent) -> bool:
    """Whether a callback handler or middleware of the user's hears what the model streams."""
    handlers: dict[Any, list[Any]] = cast("Any", agent)._middleware_registry._handlers
    stages = [stage for stage, found in handlers.items() if found and stage is not ExecuteToolStage]
    return agent.callback_handler is not null_callback_handler or bool(stages)


def _agent_stream_stage() -> Any:
    """The stage around an agent's whole stream. The SDK does not export it yet; without it results come in one batch."""
    try:
        return importlib.import_module("strands.middleware._agent_stream").AgentStreamStage
    except (ImportError, AttributeError):
        logger.warning("This version of strands-agents sends tool results only when all of a turn are there")
        return None


def _spec(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description or tool.name,
        "inputSchema": {"json": clean_schema(tool.parameters, dialect="json")},
    }


def _extended(prompt: Any, more: str) -> Any:
    if isinstance(prompt, list):
        return [*prompt, {"text": more}]  # pyright: ignore[reportUnknownVariableType]
    return f"{prompt}\n\n{more}" if prompt else more


def _with_aside(context: InvokeModelContext, aside: list[dict[str, Any]]) -> InvokeModelContext:
    """The blocks at the end of the last user message: after tool results, where providers allow text."""
    messages: list[Any] = list(context.messages)
    if not messages or messages[-1]["role"] != "user":
        return context
    messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *aside]}
    trailing = context.dynamic_trailing_blocks + len(aside)
    return context.replace(messages=messages, dynamic_trailing_blocks=trailing)


def _giving(tool: Tool, result: dict[str, Any]) -> PythonAgentTool:
    """A tool that gives this result."""

    async def give(use: Any, **state: Any) -> Any:
        return {**result, "toolUseId": use["toolUseId"]}

    spec: Any = _spec(tool)
    return PythonAgentTool(tool.name, spec, give)


def _approves(answer: Any) -> bool:
    """Whether a person said yes. Anything else, also what nobody can understand, is a no."""
    return isinstance(answer, dict) and answer.get("approved") is True  # pyright: ignore[reportUnknownMemberType]
