"""How several agents are run together: a Strands graph or swarm. Every run gets a fresh one; the thread is what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pydantic_core
from strands import Agent

from ambient_runner.bridges.strands.errors import InterruptLost
from ambient_runner.bridges.strands.instrumentation import FRONTEND, Request, Wires, all_tool_names
from ambient_runner.bridges.strands.interrupts import answer, open_questions, responses
from ambient_runner.bridges.strands.messages import content_blocks, context_blocks, result_block, system_text, text_of
from ambient_runner.bridges.toolkit.turns import result_of
from ambient_runner.protocol.events import AssistantMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

    from strands.multiagent.base import MultiAgentBase

    from ambient_runner.bridges.strands.driver import Ask

__all__ = ["OrchestraDriver"]


class OrchestraDriver:
    """A graph or swarm of one thread. Its agents remember what was said only within a run, so later runs are told what was before."""

    def __init__(self, first: MultiAgentBase, make: Callable[[], Awaitable[MultiAgentBase]]) -> None:
        self.is_cancelled = False
        self._fresh: MultiAgentBase | None = first
        self._make = make
        self._running: MultiAgentBase = first

    @property
    def tool_names(self) -> Collection[str]:
        return {name for agent in _agents(self._running) for name in agent.tool_names}

    @property
    def all_tool_names(self) -> Collection[str]:
        return {name for agent in _agents(self._running) for name in all_tool_names(agent)}

    async def open(self, ask: Ask) -> AsyncGenerator[Any, None]:
        self._running, self._fresh = self._fresh or await self._make(), None
        aside, system, used = context_blocks(ask.input), system_text(ask.turns), ask.call_ids()
        for agent in _agents(self._running):
            Wires.of(agent).request = Request(tools=ask.tools, config=ask.config, aside=aside, system=system, used=used)
        return cast("AsyncGenerator[Any, None]", self._running.stream_async(self._task(ask)))

    def stop_after_tools(self) -> None:
        for agent in _agents(self._running):
            agent.cancel(after_current_tools=True)

    def cancel(self) -> None:
        self.is_cancelled = True
        for agent in _agents(self._running):
            agent.cancel()

    def keep(self, *, waits: bool) -> dict[str, Any]:
        if not waits:
            return {}
        return pydantic_core.to_jsonable_python(
            {"orchestra": self._running.serialize_state()}, serialize_unknown=True, bytes_mode="base64"
        )

    async def aclose(self) -> None:
        for agent in _agents(self._running):
            await agent.shutdown_async()

    def _task(self, ask: Ask) -> Any:
        """What the agents are given: answers to what they wait for, or a new task. Raises: InterruptLost."""
        stored: Any = ask.memory.get("orchestra")
        answers = _answers(stored, ask) if stored else []
        if answers and ask.incoming.user is None:
            self._running.deserialize_state(stored)
            return answers
        if ask.incoming.resume:
            raise InterruptLost
        user = content_blocks(ask.incoming.user.content) if ask.incoming.user else []
        return _plain([*_before(ask), *user])


def _answers(stored: Any, ask: Ask) -> list[Any]:
    """What people and the client have answered, as the SDK takes it. Tool results of the client belong to a node, not to a turn."""
    asked: dict[str, Any] = stored["_internal_state"]["interrupt_state"]["interrupts"]
    results = {one.tool_call_id: one for one in ask.input.messages if isinstance(one, ToolMessage)}
    given = [(name, results.get(one["reason"]["call"])) for name, one in asked.items() if one["name"] == FRONTEND]
    return [
        *(responses(open_questions(asked), ask.incoming.resume) if ask.incoming.resume else []),
        *(
            answer(name, result_block(result_of(message))["toolResult"])
            for name, message in given
            if message is not None
        ),
    ]


def _before(ask: Ask) -> list[dict[str, Any]]:
    """The conversation so far in words: a graph has no history of its own."""
    lines = [
        f"{message.__struct_config__.tag}: {text}"
        for message in ask.input.messages
        if isinstance(message, UserMessage | AssistantMessage) and (text := text_of(message.content))
    ]
    if lines and ask.incoming.user:
        lines.pop()
    return [{"text": "\n".join(["The conversation so far:", *lines])}] if lines else []


def _plain(blocks: list[dict[str, Any]]) -> Any:
    """One text when there is nothing else: a swarm quotes it to its agents."""
    if all("text" in block for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return blocks


def _agents(orchestra: Any) -> list[Agent]:
    """The agents at the leaves, through graphs in graphs."""
    if isinstance(orchestra, Agent):
        return [orchestra]
    nodes: Any = getattr(orchestra, "nodes", {})
    return [agent for node in nodes.values() for agent in _agents(node.executor)]
