"""SingleAgentDriver: runs one Strands agent. It loads the history, builds the prompt from the new input, and dumps the memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import pydantic_core
from strands.agent.state import AgentState
from strands.hooks import MessageAddedEvent

from ambient_runner.bridges.strands.errors import InterruptLost
from ambient_runner.bridges.strands.history import HistoryWindow
from ambient_runner.bridges.strands.instrumentation import Instrumentation, RunAdditions, all_tool_names
from ambient_runner.bridges.strands.interrupts import resume_responses
from ambient_runner.bridges.strands.memory import NO_INTERRUPTS, InterruptMemory, choose_memory
from ambient_runner.bridges.strands.messages import context_blocks, system_text, to_content_blocks, to_strands_messages
from ambient_runner.bridges.strands.sdk import cancel_after_tools, clear_cancel_signal, session_manager_of
from ambient_runner.bridges.strands.text_bypass import TextBypass
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn
from ambient_runner.errors import ArgumentsWithheld, NoUserMessage
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from strands import Agent

    from ambient_runner.bridges.strands.run_input import RunContext
    from ambient_runner.bridges.toolkit.turns import TurnToolResult

__all__ = ["SingleAgentDriver"]

logger = logging.getLogger(__name__)

_CONTEXT_KEY = "agui_context"


class SingleAgentDriver:
    """One agent of one thread.

    Without a session manager, each run loads the whole conversation into the agent. With one, the session has the history, and only the
    new input is passed.
    """

    def __init__(self, agent: Agent) -> None:
        self.is_stopping = False
        self._agent = agent
        self._instrumentation = Instrumentation.for_agent(agent)
        self._has_session = session_manager_of(agent) is not None
        self._keeps_history = self._has_session
        self._initial_state = agent.state.get()
        self._window = HistoryWindow(agent)

    @property
    def tool_names(self) -> Collection[str]:
        return self._agent.tool_names

    @property
    def all_tool_names(self) -> Collection[str]:
        return all_tool_names(self._agent)

    async def open_stream(self, context: RunContext) -> AsyncGenerator[Any, None]:
        extra_blocks = _extra_blocks(context)
        self._keeps_history = self._has_session or not context.config.replay_history_into_strands
        prompt = await self._session_prompt(context) if self._keeps_history else self._load_history(context)
        bypass = None if self._instrumentation.has_listeners else TextBypass()
        self._instrumentation.additions = RunAdditions(
            tools=context.tools,
            config=context.config,
            extra_blocks=extra_blocks,
            system_text=system_text(context.turns),
            used_call_ids=context.call_ids(),
            allowed_tools=context.allowed_tools,
            resumed_call_ids=frozenset(context.call_ids()),
            text_bypass=bypass,
        )
        self._set_client_context(context)
        # A cancelled run may have left its signal set, and a factory may return this agent again.
        clear_cancel_signal(self._agent)
        limits: Any = {"turns": context.config.max_turns} if context.config.max_turns else None
        stream = self._agent.stream_async(prompt, invocation_state=context.invocation_state, limits=limits)
        natives = cast("AsyncGenerator[Any, None]", stream)
        return bypass.merge_stream(natives) if bypass else natives

    def stop_after_tools(self) -> None:
        cancel_after_tools(self._agent)

    def cancel(self) -> None:
        self.is_stopping = True
        self._agent.cancel()

    def dump_memory(self, *, is_paused: bool) -> dict[str, Any]:
        if self._keeps_history:
            return {}
        state = {key: value for key, value in self._agent.state.get().items() if key != _CONTEXT_KEY}
        memory: dict[str, Any] = {"state": state} if state != self._initial_state else {}
        window = self._window.dump()
        if window is not None:
            memory["conversation_manager"] = window
        if is_paused:
            memory["pending"] = InterruptMemory.from_agent(self._agent).to_stored()
        return pydantic_core.to_jsonable_python(memory, serialize_unknown=True)

    async def aclose(self) -> None:
        await self._agent.shutdown_async()

    def _set_client_context(self, context: RunContext) -> None:
        """Store the request's `context` in the agent's state, in place of that of an earlier request, which a session would keep."""
        self._agent.state.delete(_CONTEXT_KEY)
        items = context.run_input.context
        if items:
            value = [{"description": item.description, "value": item.value} for item in items]
            self._agent.state.set(_CONTEXT_KEY, value)

    def _load_history(self, context: RunContext) -> Any:
        """Load the conversation into the agent and return the prompt. Raises: NoUserMessage, InterruptLost, ArgumentsWithheld."""
        interrupt_memory = InterruptMemory.from_stored(choose_memory(context, "pending"))
        self._agent.state = AgentState(context.memory.get("state", self._initial_state))
        if context.new_input.resume:
            try:
                return self._load_interrupted_turn(context, interrupt_memory)
            except ArgumentsWithheld:
                if any(entry.status == "resolved" for entry in context.new_input.resume):
                    raise
                # All are cancelled: a tool that would run again with a placeholder is given up instead.
        NO_INTERRUPTS.load_into(self._agent)
        messages: list[Any] = to_strands_messages(context.turns)
        if interrupt_memory is not None:
            _restore_assistant_message(messages, interrupt_memory)
        if not messages or messages[-1]["role"] != "user":
            raise NoUserMessage
        has_results = any("toolResult" in block for block in messages[-1]["content"])
        prompt = None if has_results else [messages.pop()]
        self._load_messages(messages, context)
        return prompt

    def _load_interrupted_turn(self, context: RunContext, interrupt_memory: InterruptMemory | None) -> Any:
        """Load the history and the interrupted turn, and return the responses to its interrupts.

        Raises: InterruptLost, ArgumentsWithheld.
        """
        if interrupt_memory is None or not interrupt_memory.is_active:
            raise InterruptLost
        index = _interrupted_turn_index(context, interrupt_memory)
        messages: list[Any] = to_strands_messages(context.turns[:index])
        if interrupt_memory.assistant_message:
            messages.append(interrupt_memory.assistant_message)
        self._load_messages(messages, context)
        return self._load_interrupts(interrupt_memory, context)

    def _load_interrupts(self, interrupt_memory: InterruptMemory, context: RunContext) -> list[Any]:
        """Load the interrupts into the agent and return the responses to them. One whose call has changed is left out, and raised again.

        Raises: ArgumentsWithheld.
        """
        changed = interrupt_memory.changed_interrupts(current_run_or_none(), context.new_input.resume)
        if changed:
            run_input = context.run_input
            logger.warning(
                "Run %s on thread %s: the arguments of an answered interrupt have changed. The call is not executed; it is asked again.",
                run_input.run_id,
                run_input.thread_id,
            )
        left = interrupt_memory.without(changed)
        left.add_client_results(_client_results(context)).load_into(self._agent)
        wraps = context.config.wrap_interrupt_answer
        return resume_responses(left.open_interrupts(), context.new_input.resume, wraps=wraps)

    def _load_messages(self, messages: list[Any], context: RunContext) -> None:
        self._window.load(messages, context.memory.get("conversation_manager"))

    async def _session_prompt(self, context: RunContext) -> Any:
        """Return the prompt for an agent whose session has the history. That of a fork is empty at first. Raises: InterruptLost."""
        interrupt_memory, resume = InterruptMemory.from_agent(self._agent), context.new_input.resume
        if interrupt_memory.is_active and resume and interrupt_memory.open_interrupts():
            return self._load_interrupts(interrupt_memory, context)
        if resume:
            raise InterruptLost
        run = current_run_or_none()
        if run is not None and run.is_fork and not self._agent.messages:
            for message in to_strands_messages(context.new_input.history):
                await self._append_message(message)
        if interrupt_memory.is_active:
            NO_INTERRUPTS.load_into(self._agent)
            if interrupt_memory.assistant_message:
                await self._append_message(interrupt_memory.results_message(_client_results(context)))
        return to_content_blocks(context.new_input.user.content) if context.new_input.user else None

    async def _append_message(self, message: Any) -> None:
        """Append a message to the history as the SDK does, so that the session manager stores it."""
        self._agent.messages.append(message)
        await self._agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=self._agent, message=message))


def _extra_blocks(context: RunContext) -> list[dict[str, Any]]:
    """Return the blocks to add to the model's request: a user message sent together with an answer, and the request's context."""
    new_input = context.new_input
    user_blocks = to_content_blocks(new_input.user.content) if new_input.resume and new_input.user else []
    return [*user_blocks, *context_blocks(context.run_input)]


def _client_results(context: RunContext) -> dict[str, TurnToolResult]:
    """Return the answered results of the conversation by call id."""
    results = [result for turn in context.turns if isinstance(turn, ResultsTurn) for result in turn.results]
    return {result.call_id: result for result in results if result.is_answered}


def _interrupted_turn_index(context: RunContext, interrupt_memory: InterruptMemory) -> int:
    """Return the index of the interrupted turn in the conversation. The SDK repeats everything from there on."""
    call_ids = set(interrupt_memory.call_ids)
    for index, turn in enumerate(context.turns):
        if isinstance(turn, AssistantTurn) and call_ids.intersection(call.id for call in turn.calls):
            return index
    return len(context.turns)


def _restore_assistant_message(messages: list[Any], interrupt_memory: InterruptMemory) -> None:
    """Replace the interrupted turn by the model's own message: it contains signatures that providers require again."""
    if interrupt_memory.assistant_message is None:
        return
    for message in messages:
        call_ids = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        if call_ids == interrupt_memory.call_ids:
            message["content"] = interrupt_memory.assistant_message["content"]
