"""The words of a rule against the text of a command. Pure.

The text is written by a model, for a shell that we do not know. So a rule that allows needs a text that every shell reads in the same way:
`is_command`. A rule that asks or denies fits whenever the command could be the one it names: `could_run`. That is no security boundary: a
script or an interpreter can run anything. The sandbox is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ambient_runner.config.permission_rules import ANY_WORDS, PLAIN_WORD

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_COMMAND_LENGTH", "could_run", "is_command", "words_in"]

MAX_COMMAND_LENGTH = 100_000
"""Characters. A longer command could be anything."""

_PLAIN_COMMAND = re.compile(rf"{PLAIN_WORD}(?: +{PLAIN_WORD})*")
_SEPARATORS = re.compile(r"[\s\x00-\x1f;&|<>(){}$`,=!#]+")
_QUOTES = re.compile(r"\\\r?\n|[\"'\\]")
_COMMAND_ENDS = re.compile(r"[;&|\n\r(){}]")
_ASSIGNMENT = re.compile(r"\w+\+?=")
_EXPANSION = re.compile(r".*\$|(?=.*\w).*[*?\[]")
_PREFIXES = frozenset(
    """
    ! builtin command coproc do doas elif else env eval exec if nice nohup setsid source sudo then time until while xargs
    """.split()  # noqa: SIM905
)
"""Words after which a shell expects a command."""


def is_command(words: Sequence[str], command: str) -> bool:
    """Return True if the command consists of exactly these words. A last word `*` stands for any further ones.

    A command with a quote, an expansion, a redirection, a second command or any character but those of PLAIN_WORD is never a match.
    """
    if not words or len(command) > MAX_COMMAND_LENGTH or not _PLAIN_COMMAND.fullmatch(command):
        return False
    actual = command.split()
    if "=" in actual[0]:  # A variable for the command, such as one that makes git start another program.
        return False
    if words[-1] == ANY_WORDS:
        return len(words) > 1 and actual[: len(words) - 1] == list(words[:-1])
    return actual == list(words)


def could_run(words: Sequence[str], command: str) -> bool:
    """Return True if the words occur in the command in this order, or if the command hides which program it runs."""
    wanted = [part.casefold() for word in words if word != ANY_WORDS for part in _split(word)]
    if not wanted or len(command) > MAX_COMMAND_LENGTH:
        return True
    return any(_contains(view, wanted) for view in _views(command)) or _hides_program(command)


def words_in(command: str) -> list[str]:
    """Return all words of a command, with and without its quotes, as they may name files."""
    return list(dict.fromkeys(word for view in _views(command) for word in _split(view)))


def _views(command: str) -> tuple[str, str]:
    """Return the text as a shell joins it at quotes, and as a shell inside of the quotes would read it."""
    return _QUOTES.sub("", command), _QUOTES.sub(" ", command)


def _split(text: str) -> list[str]:
    return [word for word in _SEPARATORS.split(text) if word]


def _contains(view: str, wanted: Sequence[str]) -> bool:
    """Return True if the text has the wanted program, under any path, and after it the other words in this order."""
    words = iter(word.casefold() for word in _split(view))
    program, *rest = wanted
    return any(_base_name(word) == _base_name(program) for word in words) and all(
        any(word == other for word in words) for other in rest
    )


def _base_name(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2]


def _hides_program(command: str) -> bool:
    """Return True if the name of a program is the result of an expansion, such as `$(echo rm)`, `$X` or `/bin/r?`."""
    if "`" in command:
        return True
    joined = _QUOTES.sub("", command).replace("$(", "$ (").replace("${", "$ {")
    return any(_EXPANSION.match(_program_of(part)) for part in _COMMAND_ENDS.split(joined))


def _program_of(simple_command: str) -> str:
    """Return the word at which a shell expects the program; empty if there is none."""
    after_prefix = False
    for word in simple_command.split():
        if _ASSIGNMENT.match(word) or word[0] in "<>" or (after_prefix and word.startswith("-")):
            continue
        if _base_name(word) not in _PREFIXES:
            return word
        after_prefix = True
    return ""
