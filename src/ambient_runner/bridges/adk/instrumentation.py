"""The ADK plugin that is inserted into each run and serves all agents of the tree.

It adds the client's tools and the platform's instructions to model requests. It skips the model call while a tool call waits for the
client: ADK would call the model with the call unanswered. It gives the parts of a streamed call the id of the complete call, and replaces
call ids that the thread has already used or that a client could not send back. A result that is nested too deeply becomes an error. The
result of a long-running tool is marked if the tool waits for the client.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin

from ambient_runner.bridges.adk.client_tools import RESERVED_NAMES, create_client_tools
from ambient_runner.bridges.adk.messages import exceeds_max_depth, mark_initial_result
from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.bridges.toolkit.tool_schemas import name_taken_events

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools import BaseTool, ToolContext
    from google.genai import types

    from ambient_runner.bridges.adk.client_tools import ClientTool
    from ambient_runner.bridges.adk.client_toolset import ClientToolset
    from ambient_runner.protocol.events import Event, Tool

__all__ = ["PAUSED_KEY", "RunPlugin"]

PAUSED_KEY = "ambient_paused"
"""Key in an event's custom metadata: the model was not called, because a tool call waits."""


class RunPlugin(BasePlugin):
    """`is_halted` returns True if an agent on a branch has to wait; `agents` are those that get the client's tools, None for all.

    An agent in `toolsets` gets what its toolsets offer. `own_tools` are names of the agents' tools as far as they are known before the run;
    those of toolsets are known with the model request. With `waits_for_long_running_tools`, the result of a long-running tool's function
    does not answer the call.
    """

    def __init__(
        self,
        is_halted: Callable[[str | None], bool],
        session: str,
        *,
        agents: Collection[str] | None = None,
        toolsets: Mapping[str, Sequence[ClientToolset]] | None = None,
        own_tools: Collection[str] = (),
        instructions: Sequence[str] = (),
        waits_for_long_running_tools: bool = False,
    ) -> None:
        super().__init__(name="ambient_runner")
        self._waits_for_long_running_tools = waits_for_long_running_tools
        self._tools: list[ClientTool] = []
        self._own_names = RESERVED_NAMES.union(own_tools)
        self._taken_names: dict[str, None] = {}
        self._reported_names: set[str] = set()
        self._is_halted = is_halted
        self._session = session
        self._agents = agents
        self._toolsets = toolsets or {}
        self._instructions = list(instructions)
        self._streaming: dict[str, list[types.FunctionCall]] = {}
        self._used_ids: set[str] = set()

    def offer_client_tools(self, tools: Sequence[Tool]) -> None:
        """Offer the client's tools to the agents of this run."""
        self._tools = create_client_tools(tools)

    def add_instructions(self, more: Sequence[str]) -> None:
        """Add to the instructions of every agent of this run."""
        self._instructions += more

    def reserve_call_ids(self, call_ids: Iterable[str]) -> None:
        """Reserve ids that no call of this run may use: some models count from zero in every turn."""
        self._used_ids.update(call_ids)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        if callback_context.session.id != self._session:
            return None  # an agent used as a tool has its own session, in which no client can answer
        if self._is_halted(callback_context.branch):
            return LlmResponse(custom_metadata={PAUSED_KEY: True})
        self._offer_tools(llm_request, self._tools_for(callback_context))
        if self._instructions:
            llm_request.append_instructions(self._instructions)
        return None

    def take_dropped_events(self) -> list[Event]:
        """Return the event for the client's tools that were left out since the last call; nothing if there are none."""
        names = [name for name in self._taken_names if name not in self._reported_names]
        self._reported_names.update(names)
        return name_taken_events(names)

    def _offer_tools(self, request: LlmRequest, tools: Sequence[ClientTool]) -> None:
        """Add the client's tools to a model request, without those whose name a tool of an agent has."""
        taken = [tool for tool in tools if tool.name in self._own_names or tool.name in request.tools_dict]
        self._taken_names |= dict.fromkeys(tool.declared_name for tool in taken)
        request.append_tools([tool for tool in tools if tool not in taken])

    def _tools_for(self, context: CallbackContext) -> list[ClientTool]:
        """Return the client's tools that the calling agent may use."""
        agent = context.agent_name
        if self._agents is None or agent in self._agents:
            return self._tools
        return [
            tool for toolset in self._toolsets.get(agent, ()) for tool in toolset.select_tools(self._tools, context)
        ]

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        parts = llm_response.content.parts if llm_response.content else None
        calls = [part.function_call for part in parts or () if part.function_call is not None]
        if not calls or callback_context.session.id != self._session:
            return
        agent_path = f"{callback_context.branch}/{callback_context.agent_name}"
        if llm_response.partial:
            self._assign_partial_ids(self._streaming.setdefault(agent_path, []), calls)
        else:
            self._assign_call_ids(self._streaming.pop(agent_path, []), calls)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Replace a result that is nested too deeply to be stored and read: it would fail this run and every later one of the thread.

        Mark the result of a long-running tool for which the run waits.
        """
        if exceeds_max_depth(result):
            return {"error": "The result of this tool is nested too deeply."}
        return mark_initial_result(result) if result and self._is_initial(tool, tool_context) else None

    def _is_initial(self, tool: BaseTool, context: ToolContext) -> bool:
        """Return True if the client answers the call. An agent used as a tool has its own session, in which no client can answer."""
        if not (self._waits_for_long_running_tools and tool.is_long_running and context.session.id == self._session):
            return False
        actions, call_id = context.actions, context.function_call_id
        return call_id not in {*actions.requested_tool_confirmations, *actions.requested_auth_configs}

    def _assign_partial_ids(self, begun: list[types.FunctionCall], calls: list[types.FunctionCall]) -> None:
        for call in calls:
            if call.name and call.will_continue:
                call.id = self._allocate_id(call.id or f"adk-{uuid.uuid4()}")
                begun.append(call)
            elif begun and not call.name:
                call.id = begun[-1].id

    def _assign_call_ids(self, begun: list[types.FunctionCall], calls: list[types.FunctionCall]) -> None:
        """Give complete calls the ids of their streamed parts, in order and by name."""
        for call in calls:
            match = next((partial for partial in begun if partial.name == call.name), None)
            if match is not None:
                begun.remove(match)
                call.id = match.id
            elif call.id:
                call.id = self._allocate_id(call.id)

    def _allocate_id(self, call_id: str) -> str:
        new_id = allocate_tool_call_id(call_id, self._used_ids)
        self._used_ids.add(new_id)
        return new_id
