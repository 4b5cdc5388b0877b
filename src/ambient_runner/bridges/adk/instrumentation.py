"""Our hand inside an ADK run: one plugin, made for one run, whatever the tree of agents looks like.

It offers the client's tools, keeps the model from being asked while a call waits for someone (ADK itself would ask it with the call
unanswered), adds what the platform has to say to the instructions, gives the pieces of a streamed call the id the call will have, and
a call another id when the thread has seen its own before or no client could send it back. A result nobody could read again becomes an
error.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin

from ambient_runner.bridges.adk.client_tools import callable_tools, offer
from ambient_runner.bridges.adk.messages import is_too_deep
from ambient_runner.bridges.toolkit.tool_call_ids import free_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools import BaseTool, ToolContext
    from google.genai import types

    from ambient_runner.protocol.events import Tool

__all__ = ["PAUSED", "RunPlugin"]

PAUSED = "ambient_paused"
"""In an event's custom metadata: the model was not asked, because a call waits."""


class RunPlugin(BasePlugin):
    """`is_halted` says whether an agent on a branch of `session` has to wait; `agents` limits who gets the client's tools."""

    def __init__(
        self,
        tools: Sequence[Tool],
        is_halted: Callable[[str | None], bool],
        session: str,
        *,
        agents: Collection[str] | None = None,
        instructions: Sequence[str] = (),
    ) -> None:
        super().__init__(name="ambient_runner")
        self._tools = callable_tools(tools)
        self._is_halted = is_halted
        self._session = session
        self._agents = agents
        self._instructions = list(instructions)
        self._streaming: dict[str, list[types.FunctionCall]] = {}
        self._taken: set[str] = set()

    def instruct(self, more: Sequence[str]) -> None:
        """Add to the instructions of every agent of this run."""
        self._instructions += more

    def reserve(self, call_ids: Iterable[str]) -> None:
        """No call of this run gets one of these ids: some models count from zero in every turn."""
        self._taken.update(call_ids)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        if callback_context.session.id != self._session:
            return None  # an agent used as a tool, in a session of its own: nobody could answer what it leaves open
        if self._is_halted(callback_context.branch):
            return LlmResponse(custom_metadata={PAUSED: True})
        agent = callback_context.agent_name
        if self._agents is None or agent in self._agents:
            offer(llm_request, self._tools)
        if self._instructions:
            llm_request.append_instructions(self._instructions)
        return None

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        parts = llm_response.content.parts if llm_response.content else None
        calls = [part.function_call for part in parts or () if part.function_call is not None]
        if not calls or callback_context.session.id != self._session:
            return
        place = f"{callback_context.branch}/{callback_context.agent_name}"
        if llm_response.partial:
            self._name_pieces(self._streaming.setdefault(place, []), calls)
        else:
            self._name_calls(self._streaming.pop(place, []), calls)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """A result nobody could write down or read again would end this run, and every later one of the thread."""
        return {"error": "The result of this tool is nested too deeply."} if is_too_deep(result) else None

    def _name_pieces(self, begun: list[types.FunctionCall], calls: list[types.FunctionCall]) -> None:
        for call in calls:
            if call.name and call.will_continue:
                call.id = self._unique(call.id or f"adk-{uuid.uuid4()}")
                begun.append(call)
            elif begun and not call.name:
                call.id = begun[-1].id

    def _name_calls(self, begun: list[types.FunctionCall], calls: list[types.FunctionCall]) -> None:
        """The whole calls get the ids their pieces had, in order and by name."""
        for call in calls:
            match = next((one for one in begun if one.name == call.name), None)
            if match is not None:
                begun.remove(match)
                call.id = match.id
            elif call.id:
                call.id = self._unique(call.id)

    def _unique(self, call_id: str) -> str:
        free = free_id(call_id, self._taken)
        self._taken.add(free)
        return free
