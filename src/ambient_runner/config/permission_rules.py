"""Permission rules: the tables `[[permissions]]` of `ambient.toml`, which answer permission requests of agents for a person.

This module has the data and its parser; `bridges/toolkit/permission_rules.py` applies the rules.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from ambient_runner.config.parsers import choice_of, did_you_mean
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from ambient_runner.config.parsers import Parser

__all__ = ["ANY_WORDS", "PLAIN_WORD", "Behavior", "PermissionRule", "ToolKind", "parse_permission_rules"]

Behavior = Literal["allow", "ask", "deny"]
ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"]
"""Kinds of tool calls, as ACP names them. A `switch_mode` is a question to a person, which no rule answers."""

PLAIN_WORD = r"[A-Za-z0-9_./:@+,-][A-Za-z0-9_./:@+,=-]*"
"""A word of a command that every shell reads literally. Only commands of such words can be allowed by a rule."""
ANY_WORDS = "*"
"""The last word of a rule's command, for any further words."""

_SIMILARITY = 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class PermissionRule:
    """A decision for the calls that fit all conditions. An empty condition fits every call."""

    decide: Behavior
    tool: str = ""
    """Name of the tool; a name that ends in `*` fits all names that begin so."""
    kind: str = ""
    """Kind of the call (`ToolKind`)."""
    path: str = ""
    """The call concerns only this file or files in this directory. Relative to the agent's working directory."""
    agent: str = ""
    """Name of the agent, as in `[agents]`."""
    command: tuple[str, ...] = ()
    """The words of a command. A last word `*` stands for any further words."""

    def __str__(self) -> str:
        """Return the rule on one line, as it can be written in the file."""
        values = {name: getattr(self, name) for name in ("tool", "kind", "path", "agent", "command", "decide")}
        return ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items() if value)


def parse_permission_rules(value: object, source: str) -> tuple[PermissionRule, ...]:
    """Return the rules of the tables `[[permissions]]`. `source` is the file, for error messages. Raises: ConfigError."""
    tables = cast("list[object]", value) if isinstance(value, list) else None
    if tables is None or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(
            f"permissions in {source} must be a list of tables. Write [[permissions]], with two brackets, above each rule."
        )
    return tuple(
        _parse_rule(cast("dict[str, object]", table), f"[[permissions]] number {number} in {source}")
        for number, table in enumerate(tables, 1)
    )


def _parse_rule(table: dict[str, object], source: str) -> PermissionRule:
    for key in table:
        if key not in _PARSERS:
            raise ConfigError(f"{source} has an unknown key {key}.{did_you_mean(key, list(_PARSERS))}")
    if "decide" not in table:
        raise ConfigError(f'{source} has no decision. Add decide = "allow", "ask" or "deny".')
    values = {key: _parse_member(key, member, source) for key, member in table.items()}
    rule = PermissionRule(**cast("dict[str, Any]", values))
    if rule.decide == "allow":
        _check_allow_rule(rule, source)
    return rule


def _parse_member(key: str, value: object, source: str) -> object:
    try:
        return _PARSERS[key](value)
    except ValueError as error:
        hint = did_you_mean(value, list(_CHOICES.get(key, ())), _SIMILARITY) if isinstance(value, str) else ""
        raise ConfigError(f"{key} of {source} must be {error}.{hint}") from error


def _check_allow_rule(rule: PermissionRule, source: str) -> None:
    """Refuse rules that would allow everything, or nothing. Raises: ConfigError."""
    if not (rule.tool.strip("*") or rule.kind or rule.path or rule.command):
        raise ConfigError(f"{source} would allow every call. Add a tool, kind, path or command, or use a wider mode.")
    for word in rule.command:
        if word != ANY_WORDS and not re.fullmatch(PLAIN_WORD, word):
            raise ConfigError(
                f"{source} would never allow anything: the word {word!r} has a character that a shell may interpret. "
                "Commands with such characters are always asked about."
            )


def _parse_text(value: object) -> str:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value.strip()
    raise ValueError("some text")


def _parse_tool(value: object) -> str:
    if isinstance(value, str) and value.strip() and "*" not in value.strip()[:-1]:
        return value.strip()
    raise ValueError('the name of a tool, such as "Bash"; a * may only be its end, as in "mcp__github__*"')


def _parse_path(value: object) -> str:
    text = _parse_text(value)
    if text.startswith("~"):
        raise ValueError("a path without ~; write the home directory out")
    return text


def _parse_command(value: object) -> tuple[str, ...]:
    words = cast("list[object]", value) if isinstance(value, list) else []
    allowed = 'a list of words, such as ["git", "status"], with no spaces in them; a * may only be the last one'
    if not words or not all(isinstance(word, str) and word and not re.search(r"\s", word) for word in words):
        raise ValueError(allowed)
    found = tuple(cast("list[str]", words))
    if ANY_WORDS in found[:-1] or found == (ANY_WORDS,) or "=" in found[0]:
        raise ValueError(allowed)
    return found


_CHOICES: dict[str, tuple[str, ...]] = {"kind": get_args(ToolKind), "decide": get_args(Behavior)}
_PARSERS: dict[str, Parser] = {
    "tool": _parse_tool,
    "path": _parse_path,
    "agent": _parse_text,
    "command": _parse_command,
    **{key: choice_of(choices) for key, choices in _CHOICES.items()},
}
