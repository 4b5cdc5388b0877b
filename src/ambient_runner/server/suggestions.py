"""Suggestions: what the user could say next. They come from an agent's setting `suggestions`, else from its bridge. The agent never runs.

A function of the setting, or a bridge, that fails or takes too long suggests nothing, and the log has the reason.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
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
        return _read_suggestions(agent, source, await source(messages, conversation.state))
    if limit.cancelled_caught:
        logger.warning("The agent %s suggests nothing: its suggestions took longer than %g s", agent, TIMEOUT)
    return []


def _read_suggestions(agent: str, source: Suggest, returned: Any) -> list[Suggestion]:
    """Return what a source returned as suggestions; nothing, and log what it must return, if that is something else."""
    try:
        return [_read_suggestion(item) for item in islice(_read_items(returned), _MAX_SUGGESTIONS)]
    except _NotSuggestions as error:
        name = getattr(source, "__qualname__", repr(source))  # A partial has none.
        logger.error(  # noqa: TRY400  Its traceback would show nothing of the function.
            "The agent %s suggests nothing: %s returned %s. It must return a list of texts, or of mappings with the texts `message` and "
            "`title`",
            *(agent, name, error),
        )
        return []


class _NotSuggestions(Exception):
    """Describes what was returned instead of suggestions."""


def _read_items(returned: object) -> Iterable[Any]:
    """Return the items of a list, or of another iterable. A text and a mapping are single suggestions. Raises: _NotSuggestions."""
    if returned is None:
        return ()
    type_name = type(returned).__name__
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise _NotSuggestions(f"a value of the type {type_name}")
    return cast("Iterable[Any]", returned)


def _read_suggestion(item: Any) -> Suggestion:
    """Return one suggestion. Raises: _NotSuggestions."""
    if isinstance(item, str):
        return Suggestion(title=item[:_MAX_LENGTH], message=item[:_MAX_LENGTH])
    if not isinstance(item, Mapping):
        raise _NotSuggestions(f"an item of the type {type(item).__name__}")
    members = cast("Mapping[str, Any]", item)
    message, title = members.get("message"), members.get("title")
    if not isinstance(message, str):
        raise _NotSuggestions("a mapping without a text as `message`")
    if not isinstance(title, str | None):
        raise _NotSuggestions("a mapping with a `title` that is not a text")
    return Suggestion(title=(title or message)[:_MAX_LENGTH], message=message[:_MAX_LENGTH])
