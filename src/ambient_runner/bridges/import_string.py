"""Import the object that `package.module:attribute` names, and suggest the right spelling where there is none.

`registry.py` turns the object into an agent. The modules are the user's, so an error in them is reported with the user's own line.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.bridges.user_errors import describe_error
from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import BridgeUnavailable, ConfigError
from ambient_runner.runs.isolate import reraise_as

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["import_object", "missing_package_as_config_error", "suggest_target", "user_code_errors"]

logger = logging.getLogger(__name__)

_SIMILARITY = 0.6
"""Lowest similarity of two names at which one is suggested for the other."""
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[\w.-]+):\d+(?P<path>/\S*)?")
_INSTALL_NAMES = {
    "claude_agent_sdk": "ambient-runner[claude]",
    "google.adk": "ambient-runner[adk]",
    "google.genai": "ambient-runner[adk]",
    "httpx": "ambient-runner[remote]",
    "langchain_core": "ambient-runner[langgraph]",
    "langgraph": "ambient-runner[langgraph]",
    "langgraph_sdk": "ambient-runner[langgraph]",
    "mcp": "ambient-runner[mcp]",
    "pydantic_ai": "pydantic-ai-slim[ag-ui]",
    "strands": "ambient-runner[strands]",
}
"""Requirement that installs each package agents are written with. Submodules are absent: installing a package again does not add them."""


def suggest_target(target: str) -> str:
    """Return the correct spelling of a file path or of an address without a scheme; any other target unchanged."""
    address = _ADDRESS.fullmatch(target)
    if address:
        return f"http://{target}{'' if address['path'] else '/'}"
    file, _, attribute = target.partition(":")
    if "/" not in file and not file.endswith(".py"):
        return target
    return f"{_module_name(Path(file))}:{attribute or 'attribute'}"


def _module_name(file: Path) -> str:
    """Return the dotted module name of a file below the current directory; the file's stem for any other file."""
    here = Path.cwd()
    inside = file.relative_to(here) if file.is_relative_to(here) else file
    parts = inside.with_suffix("").parts
    return ".".join(parts[-1:] if inside.is_absolute() or ".." in parts else parts)


def import_object(target: str, *, is_installed: bool = False) -> object:
    """Return the object at `package.module:attribute`. Raises: ConfigError, naming the wrong part.

    Modules of the current directory are found too, unless `is_installed`: an agent may be able to write there.
    """
    module, _, path = target.partition(":")
    if not module or not path:
        raise ConfigError(f"{target!r} does not name an object in a module. Write package.module:attribute.")
    found: object = _import_module(module, is_installed=is_installed)
    prefix = ""
    for part in path.split("."):
        if not hasattr(found, part):
            known = [f"{prefix}{name}" for name in dir(found) if not name.startswith("_")]
            raise ConfigError(f"The module {module} has no {path}.{did_you_mean(prefix + part, known, _SIMILARITY)}")
        found, prefix = getattr(found, part), f"{prefix}{part}."
    return found


def _import_module(name: str, *, is_installed: bool) -> object:
    here = str(Path.cwd())
    if not is_installed and here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # Last: nothing there replaces an installed module.
    with missing_package_as_config_error(), user_code_errors(f"The module {name} cannot be imported"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if f"{name}.".startswith(f"{error.name}."):
                raise _missing_module_error(error.name or "") from error
            raise


def _missing_module_error(missing: str) -> ConfigError:
    parent = missing.rpartition(".")[0]
    directories = (
        [str(directory) for directory in getattr(sys.modules.get(parent), "__path__", ())]
        if parent
        else [str(Path.cwd())]
    )
    known = [
        f"{parent}.{name}" if parent else name for directory in directories for name in _modules_in(Path(directory))
    ]
    searched = " or ".join(directories) or parent
    hint = did_you_mean(missing, known, _SIMILARITY) or (
        "" if parent else " Start `ambient` in the directory that contains it."
    )
    return ConfigError(f"There is no module {missing} in {searched}{'' if parent else ', nor is it installed'}.{hint}")


def _modules_in(directory: Path) -> list[str]:
    paths = directory.iterdir() if directory.is_dir() else ()
    return sorted(path.stem for path in paths if path.stem.isidentifier() and (path.suffix == ".py" or path.is_dir()))


@contextmanager
def user_code_errors(doing: str) -> Generator[None]:
    """Turn what the user's code raises into a ConfigError with the user's line. The traceback goes to the debug log."""

    def to_config_error(error: Exception) -> ConfigError:
        logger.debug("%s", doing, exc_info=error)
        missing = _requirement_for(error) if isinstance(error, ModuleNotFoundError) else None
        hint = f". Run: pip install '{missing}'" if missing else ""
        return ConfigError(f"{doing}: {describe_error(error)}{hint}")

    with reraise_as(to_config_error):
        yield


def _requirement_for(error: ModuleNotFoundError) -> str | None:
    """Return what installs the missing module, if it is known. A missing namespace (`google`) may be any package's: the line decides."""
    missing = error.name or ""
    lines = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]
    return _INSTALL_NAMES.get(missing) or next(
        (
            requirement
            for package, requirement in _INSTALL_NAMES.items()
            if package.startswith(f"{missing}.") and any(package in line for line in lines)
        ),
        None,
    )


@contextmanager
def missing_package_as_config_error() -> Generator[None]:
    """Report a missing optional package as a ConfigError."""
    try:
        yield
    except BridgeUnavailable as error:
        raise ConfigError(error.message) from error
