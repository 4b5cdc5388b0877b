"""Texts of a turn that were sent, so that a whole text after its own pieces adds only what was missing. Pure."""

from __future__ import annotations

__all__ = ["SentTexts"]


class SentTexts:
    """Texts as far as they were sent, by its kind (text or reasoning) and key. A text without a key is the one that is being written."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str], list[str]] = {}
        self._names: dict[tuple[str, str], str] = {}
        """Names of texts that have replaced what was sent before under their key."""
        self._blocks = {"text": 0, "reasoning": 0}
        """Number of the text without a key that is being written, by kind."""

    def start_block(self) -> None:
        """Let the next text without a key be another one."""
        for kind in self._blocks:
            if (kind, self._anonymous_key(kind)) in self._sent:
                self._blocks[kind] += 1

    def add(self, kind: str, key: str, text: str, *, is_complete: bool) -> tuple[str, str]:
        """Return the name of the text and what is to be sent of it now; nothing if a complete text says nothing new."""
        own_key = (kind, key or self._anonymous_key(kind))
        if is_complete:
            text = self._find_rest(own_key, text)
            if not key:
                self._blocks[kind] += 1
        if text:
            self._sent.setdefault(own_key, []).append(text)
        return self._names.get(own_key, own_key[1]), text

    def _find_rest(self, key: tuple[str, str], whole: str) -> str:
        """Return the unsent rest of a whole text. One that does not continue what was sent is sent as another text."""
        sent = "".join(self._sent.get(key, ()))
        if whole.startswith(sent):
            return whole[len(sent) :]
        if sent.startswith(whole) or sent.strip() == whole.strip():
            return ""
        self._sent[key] = []
        self._names[key] = f"{self._names.get(key, key[1])}~"
        return whole

    def _anonymous_key(self, kind: str) -> str:
        return f"block-{self._blocks[kind]}"
