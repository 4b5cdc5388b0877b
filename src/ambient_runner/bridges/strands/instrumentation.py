"""Instrumentation: middleware and hooks that are inserted into a thread's own Strands agent, never into the user's.

They offer the client's tools to the model (`client_tools.py`), request approval before a tool runs, emit each tool result as soon as it
exists, give every call a unique id, and pass the content of one request (context, system messages) to the model without adding it to
the history.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from strands.handlers.callback_handler import null_callback_handler
from strands.hooks import BeforeToolCallEvent

from ambient_runner.bridges.strands.client_tools import (
    CLIENT_TOOL_INTERRUPT,
    fixed_result_tool,
    tool_spec,
)
from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.bridges.strands.interrupts import APPROVAL_INTERRUPT
from ambient_runner.bridges.strands.sdk import (
    ExecuteToolStage,
    InvokeModelStage,
    ToolResultEvent,
    TypedEvent,
    add_middleware,
    agent_stream_stage,
    middleware_handlers,
    registered_callbacks,
)
from ambient_runner.bridges.strands.translate import TOOL_RESULT
from ambient_runner.bridges.toolkit.interrupts import DECLINED, is_approved
from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.bridges.toolkit.turns import FORWARDED_RESULT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from strands import Agent
    from strands.middleware import InvokeModelContext, MiddlewareNext

    from ambient_runner.bridges.strands.text_bypass import TextBypass

__all__ = ["Instrumentation", "RunAdditions", "all_tool_names"]

_WITHHELD = "This tool is not available in this conversation."
_EXIT_MESSAGE = "The tool tried to end the process."

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunAdditions:
    """Data that one run adds to the agent's model calls and tool calls."""

    tools: Toolbox = field(default_factory=lambda: Toolbox([]))
    config: StrandsAgentConfig = field(default_factory=StrandsAgentConfig)
    extra_blocks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Content blocks appended to the last user message."""
    system_text: str = ""
    """Text appended to the system prompt."""
    used_call_ids: set[str] = field(default_factory=set[str])
    """Ids of the thread's calls. The run adds its own."""
    allowed_tools: frozenset[str] | None = None
    """Those of the agent's tools that the model may call; None for all."""
    resumed_call_ids: frozenset[str] = frozenset()
    """Ids of the calls of earlier runs: one that is resumed has been allowed."""
    text_bypass: TextBypass | None = None
    """Channel for text deltas; None if the SDK delivers them."""


class Instrumentation:
    """The insertions in one agent. Set `additions` before each run.

    Use `for_agent`: a factory may return the same agent again, for another thread or after a run that did not complete.
    """

    @classmethod
    def for_agent(cls, agent: Agent) -> Instrumentation:
        """Return the agent's instrumentation, inserted now if it has none."""
        instrumentation = _INSTRUMENTED.get(agent)
        if instrumentation is None:
            instrumentation = _INSTRUMENTED[agent] = cls(agent)
        return instrumentation

    def __init__(self, agent: Agent) -> None:
        self.additions = RunAdditions()
        self.has_listeners = _has_listeners(agent)
        """True if a callback handler or middleware of the user receives the model's stream."""
        stage = _agent_stream_stage() if agent.tool_names else None
        if stage is not None:
            add_middleware(agent, stage, _emit_tool_results)
        stream = self._stream_unfiltered if self.has_listeners else self._stream_deduplicated
        add_middleware(agent, InvokeModelStage, stream)
        add_middleware(agent, ExecuteToolStage, _contain_process_exit)
        agent.add_hook(self._before_tool_call, BeforeToolCallEvent)
        for nested in _nested_agents(agent):
            _remove_approval_hook(nested)
            nested.add_hook(self._request_approval, BeforeToolCallEvent)

    async def _stream_unfiltered(
        self, context: InvokeModelContext, next_fn: MiddlewareNext[Any, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the model's stream unchanged, because the user has a listener."""
        async for event in next_fn(self._extend_request(context)):
            if "event" in event:
                self._assign_call_id(event["event"])
            yield event

    async def _stream_deduplicated(
        self, context: InvokeModelContext, next_fn: MiddlewareNext[Any, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the model's stream without duplicates: the SDK emits each delta twice, and adds the state of the whole invocation to one
        of the two. The duplicates are almost half of a run's cost.
        """
        bypass = self.additions.text_bypass
        if bypass is not None:
            context = replace(context, model=bypass.tap_model(context.model))
        async for event in next_fn(self._extend_request(context)):
            if "data" in event:
                if bypass is not None:
                    continue
                event.pop("delta", None)  # the SDK adds the state to events that have a delta
            elif "event" in event:
                if "contentBlockDelta" in event["event"]:
                    continue
                self._assign_call_id(event["event"])
            yield event

    def _assign_call_id(self, chunk: dict[str, Any]) -> None:
        """Give a tool call a unique id before the SDK reads it.

        Some providers count from zero in every answer, give no id, or one that a client could not send back.
        """
        match chunk:
            case {"contentBlockStart": {"start": {"toolUse": dict()}}}:
                use: dict[str, Any] = chunk["contentBlockStart"]["start"]["toolUse"]
            case _:
                return
        use["toolUseId"] = allocate_tool_call_id(use["toolUseId"] or "call", self.additions.used_call_ids)
        self.additions.used_call_ids.add(use["toolUseId"])

    def _extend_request(self, context: InvokeModelContext) -> InvokeModelContext:
        additions = self.additions
        if additions.allowed_tools is not None:
            specs: list[Any] = [spec for spec in context.tool_specs if spec["name"] in additions.allowed_tools]
            context = replace(context, tool_specs=specs)
        if additions.tools.client_tools:
            context = replace(context, tool_specs=_add_client_specs(context.tool_specs, additions.tools))
        if additions.system_text:
            context = replace(
                context, system_prompt=_extend_system_prompt(context.system_prompt, additions.system_text)
            )
        return _append_blocks(context, additions.extra_blocks) if additions.extra_blocks else context

    def _before_tool_call(self, event: BeforeToolCallEvent) -> None:
        name = event.tool_use["name"]
        if not self.additions.tools.is_client_tool(name):
            if self._is_withheld(event.tool_use):
                event.cancel_tool = _WITHHELD
            else:
                self._request_approval(event)
            return
        result: Any = {"status": "success", "content": [{"text": FORWARDED_RESULT}]}
        if not self.additions.config.behavior(name).continue_after_frontend_call:
            reason = {"tool": name, "call": event.tool_use["toolUseId"]}
            result = event.interrupt(CLIENT_TOOL_INTERRUPT, reason=reason)
        event.selected_tool = fixed_result_tool(self.additions.tools.client_tools[name], result)

    def _is_withheld(self, use: Any) -> bool:
        """Return True for a call of a tool that this run does not offer. A model may know its name from the history."""
        allowed = self.additions.allowed_tools
        return (
            allowed is not None
            and use["name"] not in allowed
            and use["toolUseId"] not in self.additions.resumed_call_ids
        )

    def _request_approval(self, event: BeforeToolCallEvent) -> None:
        """Interrupt before a call that needs approval. The interrupt contains the call, because a client may see only an outer one."""
        if not self.additions.config.behavior(event.tool_use["name"]).interrupt_on_call:
            return
        if not is_approved(event.interrupt(APPROVAL_INTERRUPT, reason={"call": dict(event.tool_use)})):
            event.cancel_tool = DECLINED


_INSTRUMENTED: WeakKeyDictionary[Agent, Instrumentation] = WeakKeyDictionary()


def all_tool_names(agent: Agent) -> set[str]:
    """Return the names of the tools of an agent and of its nested agents."""
    return {name for owner in (agent, *_nested_agents(agent)) for name in owner.tool_names}


def _nested_agents(agent: Agent) -> list[Agent]:
    """Return the agents that are tools of this one, recursively. Each of them calls its own tools."""
    tools: list[Any] = [tool for tool in agent.tool_registry.registry.values() if tool.tool_type == "agent"]
    return [nested for tool in tools for nested in (tool.agent, *_nested_agents(tool.agent))]


def _remove_approval_hook(agent: Agent) -> None:
    """Remove our earlier hook: a factory may use the same nested agent in the agents of several threads."""
    entries = registered_callbacks(agent).get(BeforeToolCallEvent, [])
    entries[:] = [
        entry for entry in entries if not isinstance(getattr(entry.callback, "__self__", None), Instrumentation)
    ]


async def _emit_tool_results(context: Any, next_fn: MiddlewareNext[Any, Any]) -> AsyncGenerator[Any, None]:
    """Yield all events, and before each tool result an event of ours that the SDK passes through at once."""
    async for event in next_fn(context):
        if isinstance(event, ToolResultEvent):
            yield TypedEvent({TOOL_RESULT: event.tool_result})
        yield event


async def _contain_process_exit(context: Any, next_fn: MiddlewareNext[Any, Any]) -> AsyncGenerator[Any, None]:
    """Turn a tool's attempt to exit the process into a failed call. The SDK would leave the call without a result."""
    try:
        async for event in next_fn(context):
            yield event
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(_EXIT_MESSAGE) from error


def _has_listeners(agent: Agent) -> bool:
    """Return True if a callback handler or middleware of the user receives the model's stream."""
    handlers = middleware_handlers(agent)
    stages = [stage for stage, registered in handlers.items() if registered and stage is not ExecuteToolStage]
    return agent.callback_handler is not null_callback_handler or bool(stages)


def _agent_stream_stage() -> Any:
    """Return the middleware stage around an agent's stream; None, with a warning, if this version lacks it."""
    stage = agent_stream_stage()
    if stage is None:
        logger.warning(
            "This version of strands-agents has no agent stream stage: "
            "tool results are sent when all calls of a turn have ended. Upgrade strands-agents to send each at once."
        )
    return stage


def _add_client_specs(specs: list[Any], tools: Toolbox) -> list[Any]:
    """Return the specifications with the client's tools. A tool that the agent has too keeps the agent's description."""
    known = {spec["name"] for spec in specs}
    return [*specs, *(tool_spec(tool) for name, tool in tools.client_tools.items() if name not in known)]


def _extend_system_prompt(prompt: Any, text: str) -> Any:
    if isinstance(prompt, list):
        return [*prompt, {"text": text}]  # pyright: ignore[reportUnknownVariableType]
    return f"{prompt}\n\n{text}" if prompt else text


def _append_blocks(context: InvokeModelContext, blocks: list[dict[str, Any]]) -> InvokeModelContext:
    """Append blocks to the last user message. After tool results, providers allow text there."""
    messages: list[Any] = list(context.messages)
    if not messages or messages[-1]["role"] != "user":
        return context
    messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *blocks]}
    trailing = context.dynamic_trailing_blocks + len(blocks)
    return replace(context, messages=messages, dynamic_trailing_blocks=trailing)
