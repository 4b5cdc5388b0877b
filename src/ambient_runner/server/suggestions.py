"""Suggestions: what the user could say next. They come from an agent's setting `suggestions`, else from its bridge. The agent never runs.

A function of the setting, or a bridge, that fails or takes too long suggests nothing, and the log has the reason.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio

from ambient_runner.bridges.base import SuggestsMessages
from ambient_runner.bridges.import_string import import_object, suggest_target
from ambient_runner.bridges.toolkit.callbacks import required_parameters
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.copilotkit import Suggestion
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from ambient_runner.bridges.base import PlatformBridge
    from ambient_runner.config import Settings
    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["Suggest", "collect_suggestions", "load_suggestions"]

logger = logging.getLogger(__name__)

Suggest = Callable[[Sequence[Any], Any], Awaitable[Any]]
"""Returns suggestions for the messages and the state of a conversation: texts, or mappings with `title` and `message`."""

TIMEOUT = 5.0  # seconds
_MAX_SUGGESTIONS = 20
_MAX_LENGTH = 1_000
"""Characters of a title or message."""


def load_suggestions(settings: Settings, bridges: Mapping[str, PlatformBridge]) -> dict[str, Suggest]:
    """Return the source of suggestions of each agent that has one. Raises: ConfigError, naming the agent and what to do."""
    found = {name: _load_source(settings, name, bridge) for name, bridge in bridges.items()}
    return {name: source for name, source in found.items() if source is not None}


def _load_source(settings: Settings, agent: str, bridge: PlatformBridge) -> Suggest | None:
    setting = settings.suggestions_for(agent)
    if setting is None:
        return bridge.suggest if isinstance(bridge, SuggestsMessages) else None
    return _load_function(agent, setting) if isinstance(setting, str) else _suggest_texts(tuple(setting))


def _suggest_texts(texts: tuple[str, ...]) -> Suggest:
    async def suggest(messages: Sequence[Any], state: Any) -> tuple[str, ...]:
        return texts

    return suggest


def _load_function(agent: str, target: str) -> Suggest:
    corrected = suggest_target(target)
    if corrected != target:
        raise ConfigError(f"The setting suggestions of the agent {agent} names {target}. Write {corrected}")
    try:
        found = import_object(target)
    except ConfigError as error:
        raise ConfigError(f"The suggestions of the agent {agent} cannot be loaded. {error.message}") from error
    if not inspect.iscoroutinefunction(found) or len(required_parameters(found)) != 2:
        raise ConfigError(
            f"{target}, which the setting suggestions of the agent {agent} names, must be a function like this: "
            "async def suggest(messages, state): ..."
        )
    return cast("Suggest", found)


async def collect_suggestions(agent: str, source: Suggest | None, run_input: RunAgentInput) -> list[Suggestion]:
    """Return the suggestions for the conversation of a suggestion request; nothing without a source, or if it fails.

    The client's instruction for a model, a message with the id of the made-up thread, is not part of the conversation.
    """
    if source is None:
        return []
    with isolate(f"collecting suggestions of the agent {agent}"), anyio.move_on_after(TIMEOUT) as limit:
        conversation = input_to_agui(run_input)
        messages = [message for message in conversation.messages if message.id != run_input.thread_id]
        return [_read_suggestion(item) for item in _take_some(await source(messages, conversation.state))]
    if limit.cancelled_caught:
        logger.warning("The agent %s suggests nothing: its suggestions took longer than %g s", agent, TIMEOUT)
    return []


def _take_some(items: Iterable[Any] | None) -> list[Any]:
    return list(items or ())[:_MAX_SUGGESTIONS]


def _read_suggestion(item: Any) -> Suggestion:
    """Return one suggestion. Raises: TypeError if it is neither a text nor a mapping with a message."""
    members: Mapping[str, Any] = {"message": item} if isinstance(item, str) else item
    message = members["message"]
    title = members.get("title") or message
    if not isinstance(message, str) or not isinstance(title, str):
        raise TypeError("A suggestion is a text, or has a `title` and a `message` that are texts.")
    return Suggestion(title=title[:_MAX_LENGTH], message=message[:_MAX_LENGTH])
