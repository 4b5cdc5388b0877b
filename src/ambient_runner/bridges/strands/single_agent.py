"""How a single Strands agent is run: its history put right, what is new as its prompt, and what the next run needs read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pydantic_core
from strands.agent.state import AgentState
from strands.hooks import MessageAddedEvent

from ambient_runner.bridges.strands.agent_clone import session_manager_of
from ambient_runner.bridges.strands.errors import InterruptLost
from ambient_runner.bridges.strands.instrumentation import Request, Wires, all_tool_names
from ambient_runner.bridges.strands.interrupts import responses
from ambient_runner.bridges.strands.memory import NOTHING_PENDING, Pending
from ambient_runner.bridges.strands.messages import content_blocks, context_blocks, messages_of, system_text
from ambient_runner.bridges.strands.text_bypass import Shortcut
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn
from ambient_runner.errors import NothingToAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from strands import Agent

    from ambient_runner.bridges.strands.driver import Ask
    from ambient_runner.bridges.toolkit.turns import Result

__all__ = ["AgentDriver"]

_CONTEXT_KEY = "agui_context"


class AgentDriver:
    """One agent that belongs to one thread.

    Without a session manager the conversation is put into the agent for every run. With one, the session is the history and only what is
    new is fed.
    """

    def __init__(self, agent: Agent) -> None:
        self.is_cancelled = False
        self._agent = agent
        self._wires = Wires.of(agent)
        self._has_session = session_manager_of(agent) is not None
        self._first_state = agent.state.get()

    @property
    def tool_names(self) -> Collection[str]:
        return self._agent.tool_names

    @property
    def all_tool_names(self) -> Collection[str]:
        return all_tool_names(self._agent)

    async def open(self, ask: Ask) -> AsyncGenerator[Any, None]:
        aside = _aside(ask)
        prompt = await self._with_session(ask) if self._has_session else self._rebuilt(ask)
        shortcut = None if self._wires.is_heard else Shortcut()
        self._wires.request = Request(
            tools=ask.tools,
            config=ask.config,
            aside=aside,
            system=system_text(ask.turns),
            used=ask.call_ids(),
            shortcut=shortcut,
        )
        self._agent.state.delete(_CONTEXT_KEY)  # A session would keep that of an earlier request.
        if ask.input.context:
            self._agent.state.set(
                _CONTEXT_KEY, [{"description": c.description, "value": c.value} for c in ask.input.context]
            )
        cast(
            "Any", self._agent
        )._cancel_signal.clear()  # A run that was cut may have left it, and the function may give this agent again.
        limits: Any = {"turns": ask.config.max_turns} if ask.config.max_turns else None
        natives = cast("AsyncGenerator[Any, None]", self._agent.stream_async(prompt, limits=limits))
        return shortcut.told(natives) if shortcut else natives

    def stop_after_tools(self) -> None:
        self._agent.cancel(after_current_tools=True)

    def cancel(self) -> None:
        self.is_cancelled = True
        self._agent.cancel()

    def keep(self, *, waits: bool) -> dict[str, Any]:
        if self._has_session:
            return {}
        state = {key: value for key, value in self._agent.state.get().items() if key != _CONTEXT_KEY}
        kept: dict[str, Any] = {"state": state} if state != self._first_state else {}
        if waits:
            kept["pending"] = Pending.of(self._agent).to_store()
        return pydantic_core.to_jsonable_python(kept, serialize_unknown=True)

    async def aclose(self) -> None:
        await self._agent.shutdown_async()

    def _rebuilt(self, ask: Ask) -> Any:
        """Put the conversation into the agent; gives the prompt. Raises: NothingToAnswer, InterruptLost."""
        pending = Pending.stored(ask.memory.get("pending"))
        self._agent.state = AgentState(ask.memory.get("state", self._first_state))
        if ask.incoming.resume:
            return self._resumed(ask, pending)
        NOTHING_PENDING.put_into(self._agent)
        messages: list[Any] = messages_of(ask.turns)
        if pending is not None:
            _put_back(messages, pending)
        if not messages or messages[-1]["role"] != "user":
            raise NothingToAnswer
        has_results = any("toolResult" in one for one in messages[-1]["content"])
        prompt = None if has_results else [messages.pop()]
        self._agent.messages = messages
        return prompt

    def _resumed(self, ask: Ask, pending: Pending | None) -> Any:
        """Put the interrupted turn back; gives the answers to its questions. Raises: InterruptLost."""
        if pending is None or not pending.is_active:
            raise InterruptLost
        at = _place(ask, pending)
        messages: list[Any] = messages_of(ask.turns[:at])
        if pending.message:
            messages.append(pending.message)
        self._agent.messages = messages
        pending.answered_with(_given(ask)).put_into(self._agent)
        return responses(pending.asked(), ask.incoming.resume)

    async def _with_session(self, ask: Ask) -> Any:
        """What is new for an agent whose session has the rest."""
        pending = Pending.of(self._agent)
        if pending.is_active and ask.incoming.resume and pending.asked():
            pending.answered_with(_given(ask)).put_into(self._agent)
            return responses(pending.asked(), ask.incoming.resume)
        if ask.incoming.resume:
            raise InterruptLost
        if pending.is_active:
            NOTHING_PENDING.put_into(self._agent)
            if pending.message:
                await self._append(pending.results_message(_given(ask)))
        return content_blocks(ask.incoming.user.content) if ask.incoming.user else None

    async def _append(self, message: Any) -> None:
        """Add to the history as the SDK does, so that the session hears of it."""
        self._agent.messages.append(message)
        await self._agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=self._agent, message=message))


def _aside(ask: Ask) -> list[dict[str, Any]]:
    """What the model reads beside the conversation: what the user said together with an answer, and the request's context."""
    also = content_blocks(ask.incoming.user.content) if ask.incoming.resume and ask.incoming.user else []
    return [*also, *context_blocks(ask.input)]


def _given(ask: Ask) -> dict[str, Result]:
    results = [result for turn in ask.turns if isinstance(turn, ResultsTurn) for result in turn.results]
    return {result.call_id: result for result in results if result.given}


def _place(ask: Ask, pending: Pending) -> int:
    """Where in the conversation the interrupted turn stands: everything from there on is the SDK's to say again."""
    calls = set(pending.calls)
    for at, turn in enumerate(ask.turns):
        if isinstance(turn, AssistantTurn) and calls.intersection(call.id for call in turn.calls):
            return at
    return len(ask.turns)


def _put_back(messages: list[Any], pending: Pending) -> None:
    """The model's own message where it is known: it holds signatures that providers want to see again."""
    if pending.message is None:
        return
    for message in messages:
        if [one["toolUse"]["toolUseId"] for one in message["content"] if "toolUse" in one] == pending.calls:
            message["content"] = pending.message["content"]
