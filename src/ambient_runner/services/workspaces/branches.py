"""Branches of a repository, read from its own files. The agent may have edited them, so nothing in them is run or followed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ambient_runner.errors import ServiceError
from ambient_runner.files.safe_files import is_directory, read_file

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.services.workspaces.git import Git

__all__ = ["BranchRefs", "is_plain_repository", "read_refs"]

_GIT_TIMEOUT = 10.0
"""Seconds git has to list the branches."""
_MAX_REFS = 1000
_MAX_HEAD_BYTES = 1000
_NOT_PLAIN = "Its directory is no longer a plain git repository. Remove it and add it again."


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchRefs:
    """Branches of one repository. `current` is empty when no branch is checked out."""

    current: str
    branches: tuple[str, ...]


async def read_refs(git: Git, repo: Path) -> BranchRefs:
    """Return the local branches and the known remote ones, without network access. Raises: ServiceError when it is not a repository."""
    head = await anyio.to_thread.run_sync(_read_head, repo)
    with anyio.move_on_after(_GIT_TIMEOUT):
        listed = await git.run(
            "--git-dir=.git", "for-each-ref", f"--count={_MAX_REFS}", "--format=%(refname)", "--",
            "refs/heads", "refs/remotes/origin", cwd=repo,
        )  # fmt: skip
        return BranchRefs(
            current=_branch_name(head), branches=tuple(filter(None, map(_branch_name, listed.splitlines())))
        )
    raise ServiceError("Reading its branches took too long. Try again in a moment.")


def _read_head(repo: Path) -> str:
    """Return the ref that is checked out; empty for a detached HEAD."""
    try:
        if not is_directory(repo):
            raise ServiceError("Its directory is gone. Add it again, or remove it.")
        head = read_file(repo / ".git", PurePosixPath("HEAD"), _MAX_HEAD_BYTES) if is_plain_repository(repo) else None
    except (ValueError, OSError) as error:
        raise ServiceError(_NOT_PLAIN) from error
    if head is None:
        raise ServiceError(_NOT_PLAIN)
    kind, _, ref = head.decode("utf-8", "replace").strip().partition(": ")
    return ref if kind == "ref" else ""


def is_plain_repository(repo: Path) -> bool:
    """Return True if `.git` is a directory of its own. A file, a link or a shared object store would expose data of other threads."""
    git_dir = repo / ".git"
    shared = (git_dir / "commondir", git_dir / "objects" / "info" / "alternates")
    return is_directory(git_dir) and is_directory(git_dir / "refs") and not any(map(os.path.lexists, shared))


def _branch_name(ref: str) -> str:
    for prefix in ("refs/heads/", "refs/remotes/origin/"):
        if ref.startswith(prefix) and ref != "refs/remotes/origin/HEAD":
            return ref.removeprefix(prefix)
    return ""
