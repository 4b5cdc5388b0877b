"""Input of one Strands run: the conversation as turns, the new part of it, the tools and the memory, as a driver needs them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.content import load_attachments
from ambient_runner.bridges.strands.messages import text_without_attachments
from ambient_runner.bridges.toolkit.callbacks import try_hook
from ambient_runner.bridges.toolkit.composer import random_id
from ambient_runner.bridges.toolkit.turns import (
    AssistantTurn,
    ResultsTurn,
    UserTurn,
    collect_tool_calls,
    find_new_input,
    to_turns,
)
from ambient_runner.errors import NoUserMessage
from ambient_runner.protocol.events import TextPart
from ambient_runner.runs.run import RunAttribute, current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Collection

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
    from ambient_runner.bridges.toolkit.turns import NewInput, Turn
    from ambient_runner.protocol.events import Content, Event, RunAgentInput

__all__ = ["INVOCATION_STATE", "RunContext", "build_run_context"]

INVOCATION_STATE = RunAttribute[dict[str, Any]]("Strands invocation state")
"""The invocation state that the server's endpoint gives the run of a request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """One run for a driver."""

    run_input: RunAgentInput
    turns: list[Turn]
    """The whole conversation."""
    new_input: NewInput
    """The new part of the conversation."""
    tools: Toolbox
    config: StrandsAgentConfig
    memory: dict[str, Any]
    """Data that the previous run stored."""
    own_memory: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The adapter's own copy of such data, from which nothing is redacted. It may be of an earlier run."""
    invocation_state: dict[str, Any] | None = None
    """Values for the agent's tools and hooks."""
    allowed_tools: frozenset[str] | None = None
    """Those of the agent's tools that the model may call; None for all."""
    pending_call_ids: tuple[str, ...] = ()
    """Client tool calls of the last turn that have no result yet, although others have."""
    is_answered: bool = False
    """True if the input has only results of calls for which the model did not wait: it has answered already."""

    @property
    def needs_model(self) -> bool:
        """False if the run only takes results that the client has sent."""
        return not self.pending_call_ids and not self.is_answered

    def call_ids(self) -> set[str]:
        """Return the ids of all tool calls of the thread."""
        return {call.id for call in collect_tool_calls(self.run_input.messages)}


async def build_run_context(
    run_input: RunAgentInput,
    agui_input: AguiInput,
    tools: Toolbox,
    config: StrandsAgentConfig,
    memory: dict[str, Any],
) -> tuple[RunContext, list[Event]]:
    """Return the context of a run, and the error events of a failed `state_context_builder`. Raises: NoUserMessage."""
    run, continuing = current_run_or_none(), config.continuing_tools
    conversation = to_turns(run_input.messages, continuing=continuing)
    new_ids = None if run is None else run.new_ids
    new_input = find_new_input(run_input, new_ids=new_ids, continuing=continuing)
    has_only_results = bool(new_input.results) and new_input.user is None and not new_input.resume
    ends_with_answer = not conversation or isinstance(conversation[-1], AssistantTurn)
    if ends_with_answer and not new_input.resume and not has_only_results:
        conversation.append(_default_turn(config))
        new_input = dataclasses.replace(new_input, user=conversation[-1])
    conversation, hook_errors = await _add_state_context(conversation, agui_input, config)
    conversation = await load_attachments(conversation, config)
    if new_input.user is not None:
        user = next(turn for turn in reversed(conversation) if isinstance(turn, UserTurn))
        new_input = dataclasses.replace(new_input, user=user)
    context = RunContext(
        run_input=run_input,
        turns=conversation,
        new_input=new_input,
        tools=tools,
        config=config,
        memory=memory,
        pending_call_ids=_pending_call_ids(conversation, tools, continuing) if has_only_results else (),
        is_answered=has_only_results and ends_with_answer,
    )
    return context, hook_errors


def _pending_call_ids(conversation: list[Turn], tools: Toolbox, continuing: Collection[str]) -> tuple[str, ...]:
    """Return the client tool calls of the last turn without a result. A server does not start a run that has some."""
    last = conversation[-1]
    return tuple(
        result.call_id
        for result in (last.results if isinstance(last, ResultsTurn) else ())
        if not result.is_answered and tools.is_client_tool(result.name) and result.name not in continuing
    )


def _default_turn(config: StrandsAgentConfig) -> UserTurn:
    """Return the user turn for a request with nothing to answer. Raises: NoUserMessage."""
    if not config.default_prompt:
        raise NoUserMessage
    return UserTurn(id=random_id("message"), content=config.default_prompt)


async def _add_state_context(
    conversation: list[Turn], agui_input: AguiInput, config: StrandsAgentConfig
) -> tuple[list[Turn], list[Event]]:
    """Return the turns with the last user turn rewritten by `state_context_builder`, and the error events if that fails."""
    builder = config.state_context_builder
    index = next((i for i in reversed(range(len(conversation))) if isinstance(conversation[i], UserTurn)), None)
    if builder is None or index is None:
        return conversation, []
    user = conversation[index]
    assert isinstance(user, UserTurn)
    text, hook_errors = await try_hook(
        "state_context_builder", builder, agui_input, text_without_attachments(user.content)
    )
    if hook_errors:
        return conversation, hook_errors
    rewritten = dataclasses.replace(user, content=_replace_text(user.content, str(text)))
    return [*conversation[:index], rewritten, *conversation[index + 1 :]], []


def _replace_text(content: Content, text: str) -> Content:
    """Return the content with another text and the same attachments."""
    if isinstance(content, str):
        return text
    return [TextPart(text=text), *(part for part in content if not isinstance(part, TextPart))]
