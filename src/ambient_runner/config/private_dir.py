"""The folder in which a server keeps what is its own: the store, the workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private"]

_HOME = ".ambient"


def make_private(folder: Path) -> None:
    """Make it if it is missing, for its owner alone.

    It is mostly in the folder of a project. A new `.ambient` keeps itself out of the project's git, or conversations would be committed.
    Raises: OSError.
    """
    for home in (place for place in (folder, *folder.parents) if place.name == _HOME and not place.exists()):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / ".gitignore").write_text("*\n")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
