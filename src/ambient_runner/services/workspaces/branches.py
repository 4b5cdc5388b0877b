"""What branches a repository has, read from its own files. The agent has had its hands on them, so nothing they say is run or followed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ambient_runner.errors import ServiceError
from ambient_runner.services.workspaces.safe_files import is_folder, read_file

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.services.workspaces.git import Git

__all__ = ["Refs", "read_refs"]

_SECONDS = 10.0
_MOST = 1000
_LONGEST_HEAD = 1000
_NOT_PLAIN = "Its folder is no longer a plain git repository. Remove it and add it again."


@dataclass(frozen=True, kw_only=True, slots=True)
class Refs:
    """`current` is empty when no branch is checked out."""

    current: str
    branches: tuple[str, ...]


async def read_refs(git: Git, repo: Path) -> Refs:
    """The branches here and those known of the remote, without asking it. Raises: ServiceError when it is no longer a repository."""
    head = await anyio.to_thread.run_sync(_head, repo)
    with anyio.move_on_after(_SECONDS):
        listed = await git.run(
            "--git-dir=.git", "for-each-ref", f"--count={_MOST}", "--format=%(refname)", "--",
            "refs/heads", "refs/remotes/origin", folder=repo,
        )  # fmt: skip
        return Refs(current=_branch(head), branches=tuple(filter(None, map(_branch, listed.splitlines()))))
    raise ServiceError("Reading its branches took too long. Try again in a moment.")


def _head(repo: Path) -> str:
    """The ref that is checked out; empty for a bare commit."""
    try:
        if not is_folder(repo):
            raise ServiceError("Its folder is gone. Add it again, or remove it.")
        head = read_file(repo / ".git", PurePosixPath("HEAD"), _LONGEST_HEAD) if _is_plain(repo) else None
    except (ValueError, OSError) as error:
        raise ServiceError(_NOT_PLAIN) from error
    if head is None:
        raise ServiceError(_NOT_PLAIN)
    kind, _, ref = head.decode("utf-8", "replace").strip().partition(": ")
    return ref if kind == "ref" else ""


def _is_plain(repo: Path) -> bool:
    """A `.git` that is a file, a link or shares another's store would show what is not this thread's."""
    inner = repo / ".git"
    shared = (inner / "commondir", inner / "objects" / "info" / "alternates")
    return is_folder(inner) and is_folder(inner / "refs") and not any(map(os.path.lexists, shared))


def _branch(ref: str) -> str:
    for place in ("refs/heads/", "refs/remotes/origin/"):
        if ref.startswith(place) and ref != "refs/remotes/origin/HEAD":
            return ref.removeprefix(place)
    return ""
