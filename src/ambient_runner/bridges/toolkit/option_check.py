"""Checks of a bridge's options when it is created, so that a mistake does not wait for the first run."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _typeshed import DataclassInstance

__all__ = ["build_config", "check_choices", "check_command", "is_installed"]

Config = TypeVar("Config", bound="DataclassInstance")

_SIMILARITY = 0.6


def build_config(bridge: str, config_type: type[Config], options: Mapping[str, Any]) -> Config:
    """Return the dataclass with these options. Raises: ConfigError for an unknown option, naming the nearest known one."""
    known = [field.name for field in fields(config_type)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known, _SIMILARITY) or f" The options are {', '.join(sorted(known))}."
            raise ConfigError(f"{bridge} has no option {name!r}.{hint}")
    return config_type(**options)


def check_choices(bridge: str, name: str, values: Iterable[object], allowed: tuple[str, ...]) -> None:
    """Raise ConfigError if one of the values of an option is not allowed."""
    for value in values:
        if value not in allowed:
            choices = ", ".join(repr(choice) for choice in sorted(allowed))
            raise ConfigError(f"{name} of {bridge} cannot be {value!r}. Use one of {choices}.")


def check_command(bridge: str, name: str, command: object) -> None:
    """Raise ConfigError if a command is one text: its characters would be taken for words."""
    if isinstance(command, str):
        raise ConfigError(f'{name} of {bridge} must be a list of words. Write {name} = ["my-agent", "--flag"].')


def is_installed(program: str, search_path: str | None = None) -> bool:
    """Return True if the program can be found. `search_path` has the form of the variable PATH; None is that of this process."""
    return shutil.which(program, path=search_path) is not None or Path(program).is_file()
