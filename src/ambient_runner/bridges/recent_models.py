"""Models of the messages of recently run threads, bounded by bytes. The agents of a server share them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ambient_runner.protocol.message_models import MessageModels, estimate_model_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Message
    from ambient_runner.runs.run import Actor

__all__ = ["RecentModels"]

_MAX_BYTES = 32 << 20


class RecentModels:
    """Models by thread and actor. Those that were used longest ago go first."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._models: OrderedDict[tuple[ThreadKey, Actor], MessageModels] = OrderedDict()

    def can_keep(self, messages: Sequence[Message]) -> bool:
        """Return False if the models of these messages do not fit: preparing them for the next run would be wasted."""
        return estimate_model_bytes(messages) <= self._max_bytes

    def take(self, slot: tuple[ThreadKey, Actor]) -> MessageModels:
        """Remove and return the models of a thread, for one run; none yet if they are not known."""
        return self._models.pop(slot, None) or MessageModels()

    def put(self, slot: tuple[ThreadKey, Actor], models: MessageModels) -> None:
        self._models[slot] = models
        while sum(each.size for each in self._models.values()) > self._max_bytes:
            self._models.popitem(last=False)

    def evict(self, slot: tuple[ThreadKey, Actor]) -> None:
        self._models.pop(slot, None)
