"""MultiAgentDriver: runs a Strands graph or swarm. Each run gets a new one; only the thread connects them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pydantic_core
from strands import Agent

from ambient_runner.bridges.strands.client_tools import CLIENT_TOOL_INTERRUPT
from ambient_runner.bridges.strands.errors import InterruptLost
from ambient_runner.bridges.strands.instrumentation import Instrumentation, RunAdditions, all_tool_names
from ambient_runner.bridges.strands.interrupts import (
    changed_interrupts,
    interrupt_response,
    open_interrupts,
    resume_responses,
)
from ambient_runner.bridges.strands.memory import choose_memory
from ambient_runner.bridges.strands.messages import (
    context_blocks,
    result_block,
    system_text,
    text_without_attachments,
    to_content_blocks,
)
from ambient_runner.bridges.strands.sdk import cancel_after_tools
from ambient_runner.bridges.toolkit.turns import result_from_message
from ambient_runner.errors import ArgumentsChanged
from ambient_runner.protocol.events import AssistantMessage, ToolMessage, UserMessage
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

    from strands.multiagent.base import MultiAgentBase

    from ambient_runner.bridges.strands.run_input import RunContext

__all__ = ["MultiAgentDriver", "leaf_agents"]


class MultiAgentDriver:
    """A graph or swarm of one thread. Its agents remember a conversation only within a run, so later runs get a transcript."""

    def __init__(self, first: MultiAgentBase, create: Callable[[], Awaitable[MultiAgentBase]]) -> None:
        self.is_stopping = False
        self._unused: MultiAgentBase | None = first
        self._create = create
        self._running: MultiAgentBase = first

    @property
    def tool_names(self) -> Collection[str]:
        return {name for agent in leaf_agents(self._running) for name in agent.tool_names}

    @property
    def all_tool_names(self) -> Collection[str]:
        return {name for agent in leaf_agents(self._running) for name in all_tool_names(agent)}

    async def open_stream(self, context: RunContext) -> AsyncGenerator[Any, None]:
        self._running, self._unused = self._unused or await self._create(), None
        used_call_ids = context.call_ids()
        for agent in leaf_agents(self._running):
            Instrumentation.for_agent(agent).additions = RunAdditions(
                tools=context.tools,
                config=context.config,
                extra_blocks=context_blocks(context.run_input),
                system_text=system_text(context.turns),
                used_call_ids=used_call_ids,
                allowed_tools=context.allowed_tools,
                resumed_call_ids=frozenset(context.call_ids()),
            )
        stream = self._running.stream_async(self._build_task(context), context.invocation_state)
        return cast("AsyncGenerator[Any, None]", stream)

    def stop_after_tools(self) -> None:
        for agent in leaf_agents(self._running):
            cancel_after_tools(agent)

    def cancel(self) -> None:
        self.is_stopping = True
        for agent in leaf_agents(self._running):
            agent.cancel()

    def dump_memory(self, *, is_paused: bool) -> dict[str, Any]:
        if not is_paused:
            return {}
        return pydantic_core.to_jsonable_python(
            {"orchestra": self._running.serialize_state()}, serialize_unknown=True, bytes_mode="base64"
        )

    async def aclose(self) -> None:
        for agent in leaf_agents(self._running):
            await agent.shutdown_async()

    def _build_task(self, context: RunContext) -> Any:
        """Return the input of the graph: responses to its interrupts, or a new task.

        Raises: InterruptLost, ArgumentsChanged, ArgumentsWithheld.
        """
        stored: Any = choose_memory(context, "orchestra")
        responses = _interrupt_responses(stored, context) if stored else []
        if responses and context.new_input.user is None:
            self._running.deserialize_state(stored)
            return responses
        if context.new_input.resume:
            raise InterruptLost
        user_blocks = to_content_blocks(context.new_input.user.content) if context.new_input.user else []
        return _join_text_blocks([*_transcript_blocks(context), *user_blocks])


def _interrupt_responses(stored: Any, context: RunContext) -> list[Any]:
    """Return the SDK's responses to its stored interrupts: the answers of people, and the client's tool results.

    A result of a client tool belongs to a node here, not to a turn. Raises: ArgumentsChanged, ArgumentsWithheld.
    """
    interrupts: dict[str, Any] = stored["_internal_state"]["interrupt_state"]["interrupts"]
    messages = {
        message.tool_call_id: message for message in context.run_input.messages if isinstance(message, ToolMessage)
    }
    client_results = [
        (native_id, messages.get(interrupt["reason"]["call"]))
        for native_id, interrupt in interrupts.items()
        if interrupt["name"] == CLIENT_TOOL_INTERRUPT
    ]
    resume, wraps = context.new_input.resume, context.config.wrap_interrupt_answer
    if changed_interrupts(current_run_or_none(), stored, open_interrupts(interrupts), resume):
        raise ArgumentsChanged
    return [
        *(resume_responses(open_interrupts(interrupts), resume, wraps=wraps) if resume else []),
        *(
            interrupt_response(native_id, result_block(result_from_message(message))["toolResult"])
            for native_id, message in client_results
            if message is not None
        ),
    ]


def _transcript_blocks(context: RunContext) -> list[dict[str, Any]]:
    """Return the earlier conversation as text, because a graph has no history of its own."""
    lines = [
        f"{message.__struct_config__.tag}: {text}"
        for message in context.run_input.messages
        if isinstance(message, UserMessage | AssistantMessage) and (text := text_without_attachments(message.content))
    ]
    if lines and context.new_input.user:
        lines.pop()
    return [{"text": "\n".join(["The conversation so far:", *lines])}] if lines else []


def _join_text_blocks(blocks: list[dict[str, Any]]) -> Any:
    """Return one text if all blocks are text: a swarm quotes it to its agents."""
    if all("text" in block for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return blocks


def leaf_agents(executor: Any) -> list[Agent]:
    """Return the agents of a graph or swarm, through nested graphs."""
    if isinstance(executor, Agent):
        return [executor]
    nodes: Any = getattr(executor, "nodes", {})
    return [agent for node in nodes.values() for agent in leaf_agents(node.executor)]
