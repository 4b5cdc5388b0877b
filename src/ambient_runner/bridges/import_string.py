"""From `package.module:attribute` to the object that stands there; where there is none, what was meant.

`registry.py` makes an agent of the object. Modules are the user's own, so whatever they do wrong is said with their own line.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.bridges.user_errors import said
from ambient_runner.config.loader import nearest
from ambient_runner.errors import BridgeUnavailable, ConfigError
from ambient_runner.runs.isolate import foreign

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["installed", "meant", "object_at", "users_own"]

logger = logging.getLogger(__name__)

_LIKE = 0.6
"""How alike two names are when one is a slip of the other."""
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[\w.-]+):\d+(?P<path>/\S*)?")
_INSTALLS = {
    "claude_agent_sdk": "ambient-runner[claude]",
    "google": "ambient-runner[adk]",
    "google.adk": "ambient-runner[adk]",
    "httpx": "ambient-runner[remote]",
    "langchain_core": "ambient-runner[langgraph]",
    "langgraph": "ambient-runner[langgraph]",
    "mcp": "ambient-runner[mcp]",
    "pydantic_ai": "pydantic-ai-slim[ag-ui]",
    "strands": "ambient-runner[strands]",
}
"""What brings the packages that agents are written with. A part that is missing in an installed package is not here: that is no cure."""


def meant(target: str) -> str:
    """How this would be written rightly, if it is a file or an address without its scheme; else as it is."""
    address = _ADDRESS.fullmatch(target)
    if address:
        return f"http://{target}{'' if address['path'] else '/'}"
    file, _, attribute = target.partition(":")
    if "/" not in file and not file.endswith(".py"):
        return target
    return f"{_dotted(Path(file))}:{attribute or 'attribute'}"


def _dotted(file: Path) -> str:
    """The module a file is, seen from the current directory; by its name alone where that does not lead to it."""
    here = Path.cwd()
    inside = file.relative_to(here) if file.is_relative_to(here) else file
    parts = inside.with_suffix("").parts
    return ".".join(parts[-1:] if inside.is_absolute() or ".." in parts else parts)


def object_at(target: str) -> object:
    """The object at `package.module:attribute`. Raises: ConfigError, saying what is wrong with it."""
    module, _, path = target.partition(":")
    if not module or not path:
        raise ConfigError(f"{target!r} is not a place in a module. Write package.module:attribute.")
    found: object = _module(module)
    before = ""
    for part in path.split("."):
        if not hasattr(found, part):
            known = [f"{before}{name}" for name in dir(found) if not name.startswith("_")]
            raise ConfigError(f"The module {module} has no {path}.{nearest(before + part, known, _LIKE)}")
        found, before = getattr(found, part), f"{before}{part}."
    return found


def _module(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    with installed(), users_own(f"The module {name} cannot be imported"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if f"{name}.".startswith(f"{error.name}."):
                raise _no_module(error.name or "") from error
            raise


def _no_module(missing: str) -> ConfigError:
    parent = missing.rpartition(".")[0]
    folders = (
        [str(folder) for folder in getattr(sys.modules.get(parent), "__path__", ())] if parent else [str(Path.cwd())]
    )
    known = [f"{parent}.{name}" if parent else name for folder in folders for name in _modules_in(Path(folder))]
    place = " or ".join(folders) or parent
    hint = nearest(missing, known, _LIKE) or ("" if parent else " Start `ambient` in the folder that holds it.")
    return ConfigError(f"There is no module {missing} in {place}{'' if parent else ', nor is it installed'}.{hint}")


def _modules_in(folder: Path) -> list[str]:
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(one.stem for one in found if one.stem.isidentifier() and (one.suffix == ".py" or one.is_dir()))


@contextmanager
def users_own(doing: str) -> Generator[None]:
    """Code of the user's: what it raises is a ConfigError that says so with their line. The log has the traceback for who wants it."""

    def refusal(error: Exception) -> ConfigError:
        logger.debug("%s", doing, exc_info=error)
        lacks = _INSTALLS.get(error.name or "") if isinstance(error, ModuleNotFoundError) else None
        cure = f". Type: pip install '{lacks}'" if lacks else ""
        return ConfigError(f"{doing}: {said(error)}{cure}")

    with foreign(refusal):
        yield


@contextmanager
def installed() -> Generator[None]:
    """What is not installed is a matter of the configuration here."""
    try:
        yield
    except BridgeUnavailable as error:
        raise ConfigError(error.message) from error
