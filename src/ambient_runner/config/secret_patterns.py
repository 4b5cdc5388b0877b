"""Secrets that are found by their shape: what a pattern is, and which of its matches are secrets.

A match that is a placeholder, guessable, or a name in code is none. `credential_patterns.py` has the patterns of well-known credentials;
operators add their own (`compile_pattern`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from ambient_runner.config.guessability import consists_of_words, is_guessable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PatternMatch", "SecretPattern", "compile_pattern"]

_PLACEHOLDERS = ("your", "example", "placeholder", "process.env", "goeshere", "${", "{{", "****")
"""Texts in what stands for a credential in documentation and code."""
_PLACEHOLDER_SHAPE = re.compile(r"([^\\])\1{5}|goes.here")
_MAX_PLACEHOLDER_CHARS = 64
"""Characters of a placeholder. A longer token may contain such a text by chance, and a key file has rows of one letter."""
_LONG_PLACEHOLDER_SHAPE = re.compile(r"([^\\])\1{15}")
_CHECKED_CHARS = 256
"""Characters of a match that are searched for these."""
_MAX_CHECKED_MATCHES = 1024
"""Different matches of one text that are checked. In a text with more of them, each further one is a secret: it consists of credentials."""
_DENSE_CHARS = 8
"""Characters per literal below which a text is searched from end to end, and not at each literal: that costs less."""
_REST_OF_RUN = r"[A-Za-z0-9._~+/=%-]*+"
_INSIDE_RUN = re.compile(r"(?<=[A-Za-z0-9+/=%])[A-Za-z0-9+/=%]")
_MAX_LINE_CHARS = 256
"""Characters of a line before the text that continues it, at most."""


class PatternMatch(NamedTuple):
    """The part of a text that is secret."""

    start: int
    stop: int
    is_open: bool
    """True if the secret reaches the end of the text and may continue in text that follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretPattern:
    """The shape of one kind of credential. The group `secret` is the secret part; without it, the whole match is.

    The group `checked` is the part of the secret that decides whether it is a placeholder; without it, the whole secret does.
    """

    name: str
    literals: tuple[str, ...]
    """Every match has one of these where the shape begins. Without literals, every text is searched for the shape itself."""
    shape: re.Pattern[str] = field(compare=False)
    rest: re.Pattern[str] = field(default=re.compile(_REST_OF_RUN), compare=False)
    """Continues an open match in text that follows. What it matches after its groups is not decided, and not secret so far."""
    is_in_lines: bool = False
    """True for a secret of several lines. It continues from the start of the line that an open match ends in; inside base64 and hex, all
    lines that follow belong to it."""
    decided_within: int = 160
    """Characters after which it is certain that no match begins at a literal."""
    may_be_guessable: bool = False
    """True if any match is a secret, also a guessable one and one that looks like a placeholder."""
    is_random: bool = False
    """True if what follows the literal is random: words are a name in code that happens to begin with it."""
    has_fixed_start: bool = True
    """True if the literal begins the credential: then it is also found inside base64 and hex."""
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()

    def find_at(self, text: str, literal_starts: Sequence[int]) -> Iterator[PatternMatch]:
        """Yield the matches of a text whose literals were found at these positions, in order."""
        if len(literal_starts) > max(1, (len(text) - literal_starts[0]) // _DENSE_CHARS):
            return self.find_from(text, literal_starts[0])
        return self._select_secrets(self._match_each(text, literal_starts))

    def find_from(self, text: str, start: int = 0) -> Iterator[PatternMatch]:
        """Yield the matches of a text from `start` on, in order."""
        return self._select_secrets(self.shape.finditer(text, start))

    def match_rest(self, text: str, start: int) -> tuple[int, bool]:
        """Return where the secret ends that was open at `start`, and True if it may continue in text that follows."""
        found = self.rest.match(text, self._line_start(text, start) if self.is_in_lines else start)
        if found is None:
            return start, False
        stop = found.end(found.lastgroup) if found.lastgroup else start if self.rest.groups else found.end()
        return max(start, stop), found.end() == len(text)

    @staticmethod
    def _line_start(text: str, start: int) -> int:
        """Return where the line begins that `start` is in; `start` itself if that is inside a run, or far from the beginning."""
        if _INSIDE_RUN.match(text, start):
            return start
        return text.rfind("\n", max(0, start - _MAX_LINE_CHARS), start) + 1 or start

    def _match_each(self, text: str, literal_starts: Sequence[int]) -> Iterator[re.Match[str]]:
        stop = 0
        match = self.shape.match
        for at in literal_starts:
            if at >= stop and (found := match(text, at)):
                stop = found.end()
                yield found

    def _select_secrets(self, matches: Iterable[re.Match[str]]) -> Iterator[PatternMatch]:
        """Yield the matches of one text that are secret."""
        group = "secret" if "secret" in self.shape.groupindex else 0
        checked = "checked" if "checked" in self.shape.groupindex else group
        is_public: dict[str, bool] = {}
        for found in matches:
            start, stop = found.span(group)
            if start == stop:
                continue
            if not self.may_be_guessable and len(is_public) < _MAX_CHECKED_MATCHES:
                secret = found[checked]
                if secret not in is_public:
                    is_public[secret] = _is_public(secret) or self._is_name(secret)
                if is_public[secret]:
                    continue
            yield PatternMatch(start, stop, found.end() == len(found.string))

    def _is_name(self, secret: str) -> bool:
        if not self.is_random:
            return False
        return any(consists_of_words(secret[len(literal) :]) for literal in self.literals if secret.startswith(literal))


def _is_public(secret: str) -> bool:
    """Return True for a placeholder, as documentation has them, and for a guessable value."""
    lower = secret[:_CHECKED_CHARS].lower()
    if len(lower) > _MAX_PLACEHOLDER_CHARS:
        return _LONG_PLACEHOLDER_SHAPE.search(lower) is not None or is_guessable(secret)
    return (
        any(word in lower for word in _PLACEHOLDERS)
        or _PLACEHOLDER_SHAPE.search(lower) is not None
        or is_guessable(secret)
    )


def compile_pattern(expression: str) -> SecretPattern:
    """Return an operator's own pattern. RE2 searches for it: in linear time, whatever the expression. Raises: ValueError."""
    compile_expression = cast("Any", re2).compile
    try:
        shape = cast("re.Pattern[str]", compile_expression(expression, _quiet_options()))
    except cast("Any", re2).error as error:
        raise ValueError(f"{expression!r} is none") from error
    if shape.search("") is not None:
        raise ValueError(f"{expression!r} matches an empty text")
    return SecretPattern(name=expression, literals=(), shape=shape, may_be_guessable=True, has_fixed_start=False)


def _quiet_options() -> object:
    options = cast("Any", re2).Options()
    options.log_errors = False
    return options
