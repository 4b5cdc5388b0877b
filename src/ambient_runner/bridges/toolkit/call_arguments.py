"""The arguments of a tool call: the command it runs and the files it concerns, for permission rules. Pure.

Every agent has its own names for them. They are certain only if all arguments are known: one that is not known may change what is done.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CallArguments", "read_arguments"]

_COMMAND_KEYS = ("command", "cmd", "script")
_DIRECTORY_KEYS = ("cwd", "workdir")
_KNOWN_WITH_COMMAND = frozenset({"command", "description", "timeout", "run_in_background", *_DIRECTORY_KEYS})
_PATH_KEYS = ("file_path", "filePath", "filepath", "notebook_path")
_KNOWN_WITH_PATH = frozenset(
    """
    cell_id cell_number cell_type content diff edit_mode edits limit new_source new_string newString offset old_string oldString pages
    replace_all replaceAll
    """.split()  # noqa: SIM905
).union(_PATH_KEYS)
_PATH_HINTS = ("path", "file", "dir", "folder", "target", "source", "dest")
"""Parts of the names of arguments that may name files."""
_ESCALATION_KEYS = frozenset(
    """
    additionalPermissions additional_permissions dangerouslyDisableSandbox permissions sandbox_permissions url with_escalated_permissions
    """.split()  # noqa: SIM905
)
"""Arguments of a command that ask for more than to run it in its sandbox."""
_SHELLS = frozenset(
    f"{directory}{shell}" for directory in ("", "/bin/", "/usr/bin/") for shell in ("bash", "sh", "zsh")
)
_MAX_PATH = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class CallArguments:
    """The command and the files that arguments name. `command` and `paths` are empty if they are not known for certain."""

    command: str = ""
    directory: str = ""
    paths: tuple[str, ...] = ()
    possible_commands: tuple[str, ...] = ()
    possible_paths: tuple[str, ...] = ()
    is_escalation: bool = False


def read_arguments(kind: str, arguments: Mapping[str, Any]) -> CallArguments:
    """Return the command and the files that the arguments of a call of this kind name."""
    directories = [value for value in map(arguments.get, _DIRECTORY_KEYS) if value is not None]
    return CallArguments(
        command=_known_command(arguments) if kind == "execute" else "",
        directory=directories[0] if directories and isinstance(directories[0], str) else "",
        paths=_known_paths(arguments) if kind in ("read", "edit") else (),
        possible_commands=_possible_commands(kind, arguments),
        possible_paths=_possible_paths(arguments),
        is_escalation=kind == "execute" and any(arguments.get(key) for key in _ESCALATION_KEYS),
    )


def _known_command(arguments: Mapping[str, Any]) -> str:
    directories = [arguments[key] for key in _DIRECTORY_KEYS if arguments.get(key) is not None]
    if not _KNOWN_WITH_COMMAND.issuperset(arguments) or len(directories) > 1:
        return ""
    if not all(isinstance(directory, str) for directory in directories):
        return ""
    return _command_text(arguments.get("command")) or ""


def _command_text(value: Any) -> str | None:
    """Return a command as one text. A list of words is quoted, unless it only gives a text to a shell."""
    if isinstance(value, str):
        return value
    words = cast("list[Any]", value) if isinstance(value, list) else []
    if not words or not all(isinstance(word, str) for word in words):
        return None
    if len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


def _known_paths(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    paths = [arguments[key] for key in _PATH_KEYS if key in arguments]
    if not _KNOWN_WITH_PATH.issuperset(arguments) or not all(isinstance(path, str) and path for path in paths):
        return ()
    return tuple(paths)


def _possible_commands(kind: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return texts that may be the command. In a call that executes something, every text may be, except its description."""
    keys = set(arguments) - {"description", *_DIRECTORY_KEYS} if kind == "execute" else set(_COMMAND_KEYS)
    texts = (_command_text(value) for key, value in arguments.items() if key in keys)
    return tuple(text for text in texts if text)


def _possible_paths(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    named = [value for key, value in arguments.items() if any(hint in key.lower() for hint in _PATH_HINTS)]
    values = [item for value in named for item in (cast("list[Any]", value) if isinstance(value, list) else [value])]
    return tuple(value for value in values if isinstance(value, str) and 0 < len(value) <= _MAX_PATH)
