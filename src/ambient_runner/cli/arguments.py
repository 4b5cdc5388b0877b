"""Checks of what comes from the command line, standard input or the keyboard, before anything is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_owner", "check_text", "check_thread_id", "is_utf8", "resolve_directory"]


def is_utf8(text: str) -> bool:
    """Return True if the text can be encoded. Python decodes bytes that are not UTF-8 to lone surrogates, which no store accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(text: str, source: str) -> str:
    """Return the text. Raises: ConfigError, naming its source, if it is not UTF-8."""
    if not is_utf8(text):
        raise ConfigError(f"{source} is not valid UTF-8 text.")
    return text


def check_owner(owner: str | None) -> str | None:
    """Return the owner. Raises: ConfigError if it is not UTF-8."""
    return None if owner is None else check_text(owner, "--owner")


def check_thread_id(thread: str | None) -> str | None:
    """Return the id of a thread. Raises: ConfigError if HTTP would refuse it."""
    if thread is None:
        return None
    from ambient_runner.protocol import lenient

    try:
        lenient.check_thread_id(check_text(thread, "The thread id"), "The thread id")
    except InvalidInput as error:
        raise ConfigError(error.message) from error
    return thread


def resolve_directory(path: Path | None) -> str | None:
    """Return the absolute path of a directory. Raises: ConfigError if it does not exist."""
    if path is None:
        return None
    if not path.is_dir():
        raise ConfigError(f"--cwd must be the path of an existing directory. {path} is none.")
    return str(path.resolve())
