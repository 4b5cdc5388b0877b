"""Permission rules, applied to a call that an agent asks permission for. Pure, except for the default `resolve`.

What an agent says about a call is either certain, or only possible: a title that quotes the command, a location. A rule that allows counts
what is certain. A rule that asks or denies counts what is possible too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.command_rules import MAX_COMMAND_LENGTH, could_run, is_command, words_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ambient_runner.config.permission_rules import Behavior, PermissionRule

__all__ = ["Decision", "RequestedCall", "Resolve", "decide", "has_restrictions", "is_below", "resolve_path"]

Resolve = Callable[[str], str | None]
"""Returns the real path of an absolute path, without `..` and links; None if it has none."""

_STRICTNESS: dict[Behavior, int] = {"allow": 0, "ask": 1, "deny": 2}
_FILE_KINDS = frozenset({"read", "edit", "delete", "move", "search"})
_DIRECTORY_KINDS = frozenset({"delete", "move", "search"})
"""Kinds of calls that concern everything below the directory they name."""
_LITERAL_PATH = re.compile(r"(?!.*://)[\w./](?:[^\x00-\x1f]*[^\x00-\x20])?")
"""A path that every program takes as it is."""
_NO_PATH = re.compile(r"[-+@:%^*?\[\]]|(?!file:)\w+://", re.IGNORECASE)
"""The beginning of a word that names no file: an option, a pattern, a URL."""
_MAX_WORDS = 500
"""Words of a command that are looked up as paths. A longer command could name any path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedCall:
    """A call that an agent asks permission for, as far as it is known.

    A field without `possible` is certain, and empty if it is not known for certain. `possible` fields need not repeat it.
    """

    agent: str
    """Name of the agent; empty if unknown."""
    cwd: str
    """The agent's working directory, absolute."""
    tool: str = ""
    kind: str = ""
    command: str = ""
    """The whole command."""
    directory: str = ""
    """The directory in which the command runs, if that is not `cwd`."""
    paths: tuple[str, ...] = ()
    """All files that the call concerns."""
    possible_tools: tuple[str, ...] = ()
    possible_kinds: tuple[str, ...] = ()
    possible_commands: tuple[str, ...] = ()
    possible_paths: tuple[str, ...] = ()
    is_question: bool = False
    """True for a question to a person, such as the end of planning. Nothing but a person answers it."""
    is_escalation: bool = False
    """True if it asks for more than the call itself, such as a wider sandbox. No rule allows it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a call, with the rule that made it."""

    behavior: Behavior
    rule: PermissionRule


def resolve_path(path: str) -> str | None:
    """Return the real path, as the file system has it now."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return None


def decide(rules: Iterable[PermissionRule], call: RequestedCall, resolve: Resolve = resolve_path) -> Decision | None:
    """Return the decision of the strictest rule that fits: one that denies, then one that asks, then one that allows.

    None if no rule fits.
    """
    if call.is_question:
        return None
    fitting = [rule for rule in rules if _fits(rule, call, resolve)]
    strictest = max(fitting, key=lambda rule: _STRICTNESS[rule.decide], default=None)
    return None if strictest is None else Decision(strictest.decide, strictest)


def has_restrictions(rules: Iterable[PermissionRule], agent: str) -> bool:
    """Return True if a rule asks or denies something of this agent. Then the agent should ask about as much as it can."""
    return any(rule.decide != "allow" and rule.agent in ("", agent) for rule in rules)


def is_below(path: str, directory: str, cwd: str, resolve: Resolve = resolve_path) -> bool | None:
    """Return True if a path is a directory or below it, after links are followed. None if that cannot be known.

    An agent may remove `..` before or after it follows links, and may expand `~` or trim spaces. Where that makes a difference, the answer
    is unknown.
    """
    if not _LITERAL_PATH.fullmatch(path):
        return None
    absolute = os.path.join(cwd, path)  # noqa: PTH118  `Path` removes `.` and `//`; the text must stay.
    root = _to_real(os.path.join(cwd, directory), resolve)  # noqa: PTH118
    found = {_to_real(spelling, resolve) for spelling in (absolute, os.path.normpath(absolute))}
    if root is None or None in found:
        return None
    answers = {f"{real}/".startswith(f"{root.rstrip('/')}/") for real in found}
    return answers.pop() if len(answers) == 1 else None


def _to_real(path: str, resolve: Resolve) -> str | None:
    return resolve(path) if os.path.isabs(path) else None  # noqa: PTH117


def _fits(rule: PermissionRule, call: RequestedCall, resolve: Resolve) -> bool:
    return _fits_for_certain(rule, call, resolve) if rule.decide == "allow" else _fits_possibly(rule, call, resolve)


def _fits_for_certain(rule: PermissionRule, call: RequestedCall, resolve: Resolve) -> bool:
    if call.is_escalation:
        return False
    if rule.agent and rule.agent != call.agent:
        return False
    if rule.tool and not (call.tool and _is_named(call.tool, rule.tool)):
        return False
    if rule.kind and rule.kind != call.kind:
        return False
    if rule.command and not (is_command(rule.command, call.command) and _runs_in_cwd(call, resolve)):
        return False
    return not rule.path or _concerns_only(call, rule.path, resolve)


def _concerns_only(call: RequestedCall, directory: str, resolve: Resolve) -> bool:
    return bool(call.paths) and all(is_below(path, directory, call.cwd, resolve) for path in call.paths)


def _runs_in_cwd(call: RequestedCall, resolve: Resolve) -> bool:
    return not call.directory or is_below(call.directory, call.cwd, call.cwd, resolve) is True


def _fits_possibly(rule: PermissionRule, call: RequestedCall, resolve: Resolve) -> bool:
    kinds = {call.kind, *call.possible_kinds} - {""}
    if rule.agent and call.agent and rule.agent != call.agent:
        return False
    if rule.tool and not any(_is_named(name.casefold(), rule.tool.casefold()) for name in _tools_of(call)):
        return False
    if rule.kind and rule.kind not in kinds:
        return False
    if rule.command and not _could_run(rule, call, kinds):
        return False
    return not rule.path or _could_touch(rule, call, kinds, resolve)


def _tools_of(call: RequestedCall) -> set[str]:
    return {call.tool, *call.possible_tools} - {""}


def _is_named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _could_run(rule: PermissionRule, call: RequestedCall, kinds: Collection[str]) -> bool:
    """Return True if one of the commands could be the one of the rule. An unknown command could be any."""
    commands = {call.command, *call.possible_commands} - {""}
    return any(could_run(rule.command, command) for command in commands) if commands else "execute" in kinds


def _could_touch(rule: PermissionRule, call: RequestedCall, kinds: Collection[str], resolve: Resolve) -> bool:
    """Return True if the call names a path below that of the rule, or could concern one. Unknown files could be any."""
    paths = {*call.paths, *call.possible_paths}
    commands = {call.command, *call.possible_commands}
    if any(len(command) > MAX_COMMAND_LENGTH for command in commands):
        return True
    words = {word for command in commands for word in words_in(command)}
    if len(words) > _MAX_WORDS or not (paths or words):
        return bool(words) or not _FILE_KINDS.isdisjoint(kinds)
    named = {os.path.join(call.directory, word) for word in words if not _NO_PATH.match(word)}  # noqa: PTH118
    if any(is_below(path, rule.path, call.cwd, resolve) is not False for path in paths | named):
        return True
    return not _DIRECTORY_KINDS.isdisjoint(kinds) and any(
        is_below(rule.path, path, call.cwd, resolve) for path in paths
    )
