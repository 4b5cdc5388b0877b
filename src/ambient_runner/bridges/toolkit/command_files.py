"""Files that make an agent, git or an editor run commands, or that start with a shell. Pure, except for the default `resolve`.

A mode that accepts edits is no permission to run commands, so an edit of such a file needs a person, or a rule that allows it. That is no
security boundary: a build file or a test can run anything too, as soon as somebody starts it. The sandbox is.
"""

from __future__ import annotations

import os
import unicodedata
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.command_rules import MAX_COMMAND_LENGTH, words_in
from ambient_runner.bridges.toolkit.permission_rules import resolve_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.permission_rules import RequestedCall, Resolve

__all__ = ["PROTECTED_DIRECTORIES", "PROTECTED_FILES", "PROTECTED_SETTINGS", "edits_protected_path", "is_protected"]

PROTECTED_DIRECTORIES = frozenset(
    """
    .agents .claude .codex .cursor .devcontainer .gemini .git .githooks .husky .idea .mise .opencode .qwen .vscode .zed
    """.split()  # noqa: SIM905
)
"""Names of directories, or of files in their place, at any depth. Everything below them is protected."""
PROTECTED_SETTINGS = frozenset({"fish", "mise"})
"""Names of directories in `.config`, at any depth."""
PROTECTED_FILES = frozenset(
    """
    .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .claude.json .cshrc .envrc .gitconfig .gitmodules .kshrc .lefthook-local.*
    .lefthook.* .login .logout .mcp.json .mise.* .pre-commit-config.yaml .profile .ripgreprc .tcshrc .zlogin .zlogout .zprofile .zshenv
    .zshrc ambient.toml lefthook-local.* lefthook.* mise.*.toml mise.toml opencode.json opencode.jsonc
    """.split()  # noqa: SIM905
)
"""Names of files, at any depth. `*` is any text."""

_FILE_COMMANDS = frozenset("chmod cp install ln mkdir mv rm rmdir rsync sed tee touch".split())  # noqa: SIM905
"""Commands that change files. Some agents do not ask about them where they do not ask about edits."""
_IGNORED = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, *range(0xFE00, 0xFE10), 0xFFA0])
)
"""Characters without a shape that are not of the category Cf, as zero-width ones are."""
_MAX_WORDS = 500
"""Words of a command that are looked up. A longer one could name any path."""


def edits_protected_path(call: RequestedCall, resolve: Resolve = resolve_path) -> bool:
    """Return True if a call edits a protected path, for certain or possibly: as a tool, or with a command that changes files."""
    named: set[str] = set()
    if call.kind == "edit":
        named = {*call.paths, *call.possible_paths}
    elif call.kind == "execute":
        words = _words_of(call)
        if words is None:
            return True
        if not _FILE_COMMANDS.isdisjoint(word.rpartition("/")[2] for word in words):
            named = {os.path.join(call.directory, word) for word in words}  # noqa: PTH118
    return any(is_protected(path, call.cwd, resolve) for path in named)


def _words_of(call: RequestedCall) -> set[str] | None:
    """Return the words of a command; None if they are too many."""
    commands = {call.command, *call.possible_commands}
    if any(len(command) > MAX_COMMAND_LENGTH for command in commands):
        return None
    words = {word for command in commands for word in words_in(command)}
    return words if len(words) <= _MAX_WORDS else None


def is_protected(path: str, cwd: str, resolve: Resolve = resolve_path) -> bool:
    """Return True if a path is protected, as it is written or after links are followed; also if that cannot be known.

    The working directory itself may be below such a directory: only what is below it counts.
    """
    absolute = os.path.join(cwd, path)  # noqa: PTH118  `Path` removes `.` and `//`; the text must stay.
    roots = [_parts(root) for root in (cwd, resolve(cwd)) if root is not None]
    spellings = (os.path.normpath(absolute), resolve(absolute), resolve(os.path.normpath(absolute)))
    return any(spelling is None or _has_protected_name(_parts(spelling), roots) for spelling in spellings)


def _has_protected_name(parts: Sequence[str], roots: Sequence[Sequence[str]]) -> bool:
    above = max((len(root) for root in roots if parts[: len(root)] == root), default=0)
    names = parts[above:]
    settings = {name for parent, name in pairwise(parts[max(above - 1, 0) :]) if parent == ".config"}
    if not PROTECTED_DIRECTORIES.isdisjoint(names) or not PROTECTED_SETTINGS.isdisjoint(settings):
        return True
    return bool(names) and any(fnmatchcase(names[-1], pattern) for pattern in PROTECTED_FILES)


def _parts(path: str) -> list[str]:
    """Return the names of a path, in lower case and without invisible characters: the file system may not tell them apart."""
    visible = path if path.isascii() else "".join(char for char in path if not _is_ignored(char))
    return [name.rstrip(". ") or name for name in visible.casefold().split("/") if name not in ("", ".")]


def _is_ignored(char: str) -> bool:
    return unicodedata.category(char) == "Cf" or char in _IGNORED
