"""The private directories of a server: for the store and the workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private_dir"]

_DATA_DIR_NAME = ".ambient"


def make_private_dir(directory: Path) -> None:
    """Create the directory, readable by its owner only, if it is missing.

    It is usually inside a project. A new `.ambient` gets a `.gitignore`, so that conversations are not committed.
    Raises: OSError.
    """
    for data_dir in (
        path for path in (directory, *directory.parents) if path.name == _DATA_DIR_NAME and not path.exists()
    ):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / ".gitignore").write_text("*\n")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
