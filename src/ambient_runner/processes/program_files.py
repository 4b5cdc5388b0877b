"""The files that a program needs to start, for a sandbox in which the user's home is hidden.

Agents are often installed below the home: a link in a `bin` directory, a package in `node_modules`, an interpreter of a version manager.
The rest of the home must stay hidden, so this names directories that hold programs, never a directory of the user's own data.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["find_program_files", "find_python_files"]

_VERSION_MANAGERS = frozenset(
    {
        ".asdf",
        ".bun",
        ".fnm",
        ".linuxbrew",
        ".nodenv",
        ".nvm",
        ".opencode",
        ".pyenv",
        ".rbenv",
        ".volta",
        "fnm",
        "mise",
        "pnpm",
    }
)
"""Folders whose programs are small ones that start others next to them."""
_MAX_PROGRAMS = 8
_SHEBANG_BYTES = 256


def find_program_files(program: str, search_path: str | None = None) -> list[Path]:
    """Return the files and directories that a program needs, and its interpreter if it is a script; empty if there is no such program.

    `search_path` has the form of the variable PATH; None is that of this process.
    """
    found: dict[Path, None] = {}
    pending = [program]
    for _ in range(_MAX_PROGRAMS):
        located = shutil.which(pending.pop(), path=search_path) if pending else None
        if located is not None:
            path = Path(located).absolute()
            found |= dict.fromkeys((path, _installation(path), _installation(path.resolve())))
            pending += _interpreter(path)
    return list(found)


def find_python_files() -> list[Path]:
    """Return the files and directories that the interpreter of this process needs, without installed packages."""
    return [Path(sys.executable), Path(sys.prefix) / "pyvenv.cfg", Path(sys.base_prefix), Path(sys.base_exec_prefix)]


def _installation(program: Path) -> Path:
    """Return the directory that a program was installed to, or the program itself if that is not clear."""
    if "node_modules" in program.parts:
        return Path(*program.parts[: program.parts.index("node_modules") + 1])
    for directory in program.parents:
        if directory.name in _VERSION_MANAGERS or (directory / "pyvenv.cfg").is_file():
            return directory
    prefix = program.parent.parent
    is_prefix = program.parent.name == "bin" and (prefix / "lib").is_dir() and prefix.name != ".local"
    return prefix if is_prefix and not _has_home(prefix) else program


def _has_home(directory: Path) -> bool:
    """Return True if the user's home is the directory or below it."""
    with suppress(RuntimeError):  # There is none.
        return Path.home().is_relative_to(directory)
    return False


def _interpreter(program: Path) -> list[str]:
    """Return the program that a script is started with, by its first line."""
    with suppress(OSError), program.open("rb") as file:
        line = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
        if line.startswith(b"#!"):
            words = line[2:].decode(errors="replace").split()
            is_env = bool(words) and Path(words[0]).name == "env"
            return [word for word in words[is_env:] if not word.startswith("-") and "=" not in word][:1]
    return []
