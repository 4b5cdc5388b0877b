"""The deltas of one open message or call, of which the last ones are held back until no text that follows can make them part of a secret.

What is held depends on the shape of the text alone, never on a secret: otherwise a client whose agent repeats its words could find out a
secret character by character. A token (a sequence of token characters) at the end is held until it ends, up to a window: once it has 8192
characters, all but the last 4096 are released together, so that not every delta searches the whole window. A delta of one word is released
whole; of a longer one, the part before its last token is released at once, and the token becomes part of the next delta.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from ambient_runner.config import MIN_SECRET_LENGTH, TOKEN_CHARS
from ambient_runner.projections.redaction.spans import REDACTED, Span, merge_spans
from ambient_runner.protocol.events import Delta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ambient_runner.config import SecretPattern
    from ambient_runner.projections.redaction.secrets import Secrets

__all__ = ["HELD_CHARS", "MAX_HELD_CHARS", "HeldDeltas", "divide_deltas", "held_start"]

HELD_CHARS = 4096
"""Characters of one token that stay held when a longer one is released."""
MAX_HELD_CHARS = 2 * HELD_CHARS
"""Characters of one token from which it is released: less often than every delta, because the window is searched each time."""
_CONTEXT_CHARS = 256
"""Characters before the held text that patterns look at: the name of a header, the first line of a key."""

_TOKEN_CHARS = frozenset(TOKEN_CHARS)

_D = TypeVar("_D", bound=Delta)


class _Covered(NamedTuple):
    """A part of the text that belongs to a secret."""

    start: int
    stop: int
    is_continued: bool
    """True if its replacement was sent before."""


def held_start(text: str) -> int:
    """Return the position from which a text is held: the start of the token at its end, or the window of a long one."""
    start = len(text.rstrip(TOKEN_CHARS))
    return start if len(text) - start < MAX_HELD_CHARS else len(text) - HELD_CHARS


def divide_deltas(deltas: Sequence[_D]) -> list[_D]:
    """Return all deltas of a message as they are divided if each is fed alone. The message must be shorter than a window."""
    if _TOKEN_CHARS.isdisjoint([delta.delta[-1:] for delta in deltas]):
        return list(deltas)  # None of them is continued by the next one.
    divided: list[_D] = []
    held = ""
    for delta in deltas:
        text = held + delta.delta
        cut = len(text.rstrip(TOKEN_CHARS)) if text[-1] in _TOKEN_CHARS else 0
        if cut and text[:cut].strip():
            divided.append(replace(delta, delta=text[:cut]))
            held = text[cut:]
        else:
            divided.append(replace(delta, delta=text) if held else delta)
            held = ""
    if held:
        divided.append(replace(deltas[-1], delta=held))
    return divided


class HeldDeltas(Generic[_D]):
    """The deltas of one message or call that were not released, and what is known of the text before them."""

    __slots__ = (
        "_context",
        "_covered",
        "_deltas",
        "_is_cut",
        "_open_pattern",
        "_text",
        "_token_start",
        "is_plain",
        "replacement_count",
    )

    def __init__(self) -> None:
        self._deltas: list[_D] = []
        self._is_cut = False
        """True if all that is held is the rest of a delta of which the beginning was released."""
        self._text = ""
        """The text of the held deltas."""
        self._token_start = 0
        """The position in it of the token that is held."""
        self._context = ""
        """The last text before them."""
        self._covered = 0
        """Characters at the start of the held text that belong to a secret whose replacement was sent."""
        self._open_pattern: SecretPattern | None = None
        """The pattern of the secret that the released text ends in, if more text may belong to it."""
        self.is_plain = True
        """False if a delta has had more than its id and text."""
        self.replacement_count = 0

    @classmethod
    def after_clean_text(cls, text: str) -> HeldDeltas[_D]:
        """Return the deltas of a message that has ended in this text, which contains no secret."""
        held = cls()
        held._context = _last_context(text)
        return held

    @property
    def held_count(self) -> int:
        return len(self._deltas)

    def feed(self, deltas: Sequence[_D], secrets: Secrets) -> list[_D]:
        """Add deltas. Return those that may be sent now, with secrets replaced."""
        if not self._deltas and len(deltas) == 1 and self._try_release_whole(deltas[0].delta, secrets):
            return list(deltas)
        added = "".join([delta.delta for delta in deltas])
        self._text += added
        if self._is_cut:
            self._is_cut, first = False, deltas[0]
            if self._deltas[0].metadata == first.metadata:
                deltas = [replace(first, delta=self._deltas.pop().delta + first.delta), *deltas[1:]]
        self._deltas += deltas
        if len(self._text) - self._token_start < MAX_HELD_CHARS and not added.rstrip(TOKEN_CHARS):
            return []  # The token goes on: many small deltas would search all of it each time.
        cut, length = held_start(self._text), len(self._text)
        released = self._release(self._take_until(cut), secrets)
        self._token_start = cut - (length - len(self._text))
        return released

    def _try_release_whole(self, text: str, secrets: Secrets) -> bool:
        """Release a delta that ends in no token and has no secret, while nothing is held. Return False, and change nothing, for any other.

        `feed` would return the same: nothing of the text is held, and no secret before it continues. A slow stream sends such deltas.
        """
        if not text or text[-1] in _TOKEN_CHARS or self._covered or self._open_pattern is not None:
            return False
        searched = self._context + text
        if secrets.find_spans(searched):
            return False
        self._context = searched[-_CONTEXT_CHARS:]
        return True

    def redact_whole(self, deltas: Sequence[_D], secrets: Secrets) -> list[_D]:
        """Return all deltas of a message, with secrets replaced and divided as they are."""
        self._text = "".join([delta.delta for delta in deltas])
        self._deltas = list(deltas)
        return self.flush(secrets)

    def flush(self, secrets: Secrets) -> list[_D]:
        """Return all held deltas: the message has ended. Text that follows nevertheless is searched together with the released token."""
        ending = _last_context(self._context + self._text)
        deltas, self._deltas, self._is_cut, self._token_start = self._deltas, [], False, 0
        released = self._release(deltas, secrets)
        self._context = ending
        return released

    def continue_text(self, text: str, secrets: Secrets) -> None:
        """Search what follows as a continuation of this text, which is what clients have of the message. Nothing may be held."""
        self._context, self._covered = _last_context(text), 0
        spans = secrets.find_spans(self._context)
        self._open_pattern = next((span.open_pattern for span in spans if span.open_pattern is not None), None)

    def drop_unfinished(self) -> None:
        """Drop the word that the text ends in, if it is long enough for a secret: the message was cut off, and it may be half of one."""
        cut = held_start(self._text)
        if len(self._text) - cut < MIN_SECRET_LENGTH:
            return
        kept: list[_D] = []
        start = 0
        for delta in self._deltas:
            if start < cut:
                kept.append(replace(delta, delta=delta.delta[: cut - start]))
            start += len(delta.delta)
        self._deltas, self._text = kept, self._text[:cut]

    def _take_until(self, cut: int) -> list[_D]:
        """Remove and return the deltas before `cut`, and of the delta that contains it the part before, unless that is only space."""
        kept, start = len(self._deltas), len(self._text)
        while kept and start > cut:  # From the end: nearly all are released.
            kept -= 1
            start -= len(self._deltas[kept].delta)
        taken, self._deltas = self._deltas[:kept], self._deltas[kept:]
        if start < cut and (words := self._deltas[0].delta[: cut - start]).strip():
            last = self._deltas[0]
            self._deltas[0] = replace(last, delta=last.delta[len(words) :], raw_event=None)
            self._is_cut = len(self._deltas) == 1
            taken.append(replace(last, delta=words))
        return taken

    def _release(self, deltas: list[_D], secrets: Secrets) -> list[_D]:
        """Return the first deltas of the held text with secrets replaced. A delta that is part of one keeps no text."""
        if not deltas:
            return deltas
        text = self._text
        stop = len(text) - sum([len(delta.delta) for delta in self._deltas])
        covered = self._find_covered(text, stop, secrets)
        self._context = (self._context + text[max(0, stop - _CONTEXT_CHARS) : stop])[-_CONTEXT_CHARS:]
        self._text = text[stop:]
        if not covered:
            return deltas
        self.replacement_count += sum(not part.is_continued for part in covered)
        texts = _replace_covered([len(delta.delta) for delta in deltas], text, covered)
        return [
            delta if clean == delta.delta else replace(delta, delta=clean)
            for delta, clean in zip(deltas, texts, strict=True)
        ]

    def _find_covered(self, text: str, stop: int, secrets: Secrets) -> list[_Covered]:
        """Return the parts of the released text that belong to secrets. Remember how far the last one reaches into the held text."""
        spans = secrets.find_spans(self._context + text)
        if not spans and not self._covered and self._open_pattern is None:
            return []  # As nearly always.
        continued, pattern = self._continue_secret(text)
        covered = [_Covered(0, continued, is_continued=True)] if continued else []
        for span in merge_spans(self._after_context(spans)):
            if covered and span.start < covered[-1].stop:
                covered[-1] = covered[-1]._replace(stop=max(covered[-1].stop, span.stop))
            elif span.start < stop:
                covered.append(_Covered(span.start, span.stop, is_continued=False))
            else:
                break
            pattern = span.open_pattern or pattern
        reach = covered[-1].stop if covered else 0
        self._covered = max(0, reach - stop)
        self._open_pattern = pattern
        return covered

    def _continue_secret(self, text: str) -> tuple[int, SecretPattern | None]:
        """Return how much of the text continues the secret that was sent before, and its pattern if it may go on."""
        pattern = self._open_pattern
        if pattern is None:
            return self._covered, None
        before = len(self._context)
        stop, is_open = pattern.match_rest(self._context + text, before)
        return max(self._covered, stop - before), pattern if is_open else None

    def _after_context(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Yield the spans of the context and the text as those of the text."""
        before = len(self._context)
        for start, stop, open_pattern in spans:
            if stop > before:
                yield Span(max(0, start - before), stop - before, open_pattern)


def _last_context(text: str) -> str:
    """Return the token at the end of a text, up to a window, and the context before it."""
    return text[max(0, held_start(text) - _CONTEXT_CHARS) :]


def _replace_covered(lengths: Sequence[int], text: str, covered: Sequence[_Covered]) -> Iterator[str]:
    """Yield the texts of deltas of these lengths, with what is covered replaced where it starts."""
    first, begin = 0, 0
    for length in lengths:
        end, at = begin + length, begin
        out: list[str] = []
        while first < len(covered) and covered[first].start < end:
            part = covered[first]
            out.append(text[at : max(at, part.start)])
            if part.start >= begin and not part.is_continued:
                out.append(REDACTED)
            at = max(at, min(part.stop, end))
            if part.stop > end:
                break
            first += 1
        yield "".join((*out, text[at:end]))
        begin = end
