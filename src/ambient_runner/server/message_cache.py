"""The messages that clients posted last, as JSON and decoded. Many clients post all of theirs with every run, the new ones at the end: only
those are decoded then.

A list is found by its bytes, so the result is what decoding would return: threads of two owners with one id only replace each other's list.
Messages are frozen and shared by the runs of a thread. Another process that erases the thread leaves its list here until it is evicted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ambient_runner.protocol.strict_messages import NO_MESSAGES

if TYPE_CHECKING:
    from ambient_runner.protocol.strict_messages import PostedMessages

__all__ = ["MessageCache"]

_MIN_BYTES = 16 << 10
"""Bytes of a list from which on it is cached. A smaller one is decoded at once."""
_MESSAGE_BYTES = 500
"""Bytes that a decoded message takes besides its texts, about."""


class MessageCache:
    """The newest list of each thread, up to a number of bytes. Those that were posted longest ago go first. Any thread may use it."""

    def __init__(self, max_bytes: int = 16 << 20) -> None:
        self._max_bytes = max_bytes
        self._lists: OrderedDict[str, PostedMessages] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        """Large bodies are parsed in a thread of their own."""

    def find_prefix(self, thread_id: str, text: bytes) -> PostedMessages:
        """Return the cached messages if the list begins with all of them, else `NO_MESSAGES`."""
        with self._lock:
            known = self._lists.get(thread_id, NO_MESSAGES)
        # The same bytes are the same messages, if the next one ends the list or separates them from the next message.
        ends_there = text[len(known.text) : len(known.text) + 1] in (b",", b"]")
        return known if ends_there and text.startswith(known.text) else NO_MESSAGES

    def put(self, thread_id: str, messages: PostedMessages) -> None:
        """Cache the messages of a list, in place of those that the thread had."""
        if len(messages.text) < _MIN_BYTES or _estimate_bytes(messages) > self._max_bytes:
            return
        with self._lock:
            self._evict(thread_id)
            self._lists[thread_id] = messages
            self._bytes += _estimate_bytes(messages)
            while self._bytes > self._max_bytes:
                self._evict(next(iter(self._lists)))

    def evict_thread(self, thread_id: str) -> None:
        with self._lock:
            self._evict(thread_id)

    def _evict(self, thread_id: str) -> None:
        dropped = self._lists.pop(thread_id, None)
        self._bytes -= _estimate_bytes(dropped) if dropped else 0


def _estimate_bytes(messages: PostedMessages) -> int:
    return 2 * len(messages.text) + _MESSAGE_BYTES * len(messages.messages)
