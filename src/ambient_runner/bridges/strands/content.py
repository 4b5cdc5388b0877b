"""Attachments of user messages for the model: those named by URL are fetched if the configuration allows it."""

from __future__ import annotations

import base64
import dataclasses
import logging
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec

from ambient_runner.bridges.strands.url_fetch import FetchBudget, UrlFetchPolicyError, fetch_url
from ambient_runner.bridges.toolkit.content import attachment_placeholder
from ambient_runner.bridges.toolkit.turns import UserTurn
from ambient_runner.protocol.events import AudioPart, DataSource, TextPart, UrlSource
from ambient_runner.runs.run import current_run_or_none, describe_run

if TYPE_CHECKING:
    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.toolkit.turns import Turn
    from ambient_runner.protocol.events import Content, ContentPart

__all__ = ["load_attachments"]

logger = logging.getLogger(__name__)


async def load_attachments(turns: list[Turn], config: StrandsAgentConfig) -> list[Turn]:
    """Return the turns with the attachments that the model gets. The newest come first, because what a run fetches is limited."""
    if config.url_fetch_policy is None and config.audio_input_supported:
        return turns
    loader = _AttachmentLoader(config)
    loaded = [await loader.load_turn(turn) for turn in reversed(turns)]
    return loaded[::-1]


class _AttachmentLoader:
    """Loads the attachments of one run, within its budget."""

    def __init__(self, config: StrandsAgentConfig) -> None:
        self._accepts_audio = config.audio_input_supported
        self._budget = FetchBudget(config.url_fetch_policy) if config.url_fetch_policy else None
        self._threads = anyio.CapacityLimiter(1)  # its own: slow servers take no thread from other runs

    async def load_turn(self, turn: Turn) -> Turn:
        if not isinstance(turn, UserTurn) or isinstance(turn.content, str):
            return turn
        content: Content = [await self._load_part(part) for part in turn.content]
        return dataclasses.replace(turn, content=content)

    async def _load_part(self, part: ContentPart) -> ContentPart:
        if isinstance(part, TextPart):
            return part
        if isinstance(part, AudioPart) and not self._accepts_audio:
            return TextPart(text=attachment_placeholder(part))
        if self._budget is None or not isinstance(part.source, UrlSource):
            return part
        try:
            data, media_type = await self._fetch(part.source.value, self._budget)
        except (UrlFetchPolicyError, OSError) as error:
            logger.warning(
                "An attachment in %s was not fetched (%s: %s); the model gets a note. url_fetch_policy has the limits.",
                describe_run(current_run_or_none()),
                type(error).__name__,
                error,
            )
            return part
        source = DataSource(value=base64.b64encode(data).decode(), mime_type=part.source.mime_type or media_type or "")
        return msgspec.structs.replace(part, source=source)

    async def _fetch(self, url: str, budget: FetchBudget) -> tuple[bytes, str | None]:
        """Fetch in a thread, which is abandoned when the time is over: resolving a name has no time limit of its own."""
        with anyio.move_on_after(budget.seconds_left()):
            return await anyio.to_thread.run_sync(fetch_url, url, budget, abandon_on_cancel=True, limiter=self._threads)
        raise UrlFetchPolicyError("The attachments of this run took too long.")
