"""The record of a workspace is created once, from what earlier versions left in the agent's directory: in `.ambient`.

An agent could write there, so the manifest there is read as if the agent had written it. Repositories are kept if the directory has them; a
workflow is not, because its prompts would be the agent's own instructions to the next run. See
`docs/decisions/0016-a-workspaces-record.md`.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from ambient_runner.errors import RunnerError
from ambient_runner.files.safe_files import fsync_directory, is_directory, make_directory, move_entry, read_file
from ambient_runner.files.safe_trees import remove_tree
from ambient_runner.services.workspaces.branches import is_plain_repository
from ambient_runner.services.workspaces.clone_sources import Scheme, SourceRules
from ambient_runner.services.workspaces.manifest import (
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    RepoEntry,
    WorkspaceManifest,
    check_repo_entry,
    write_manifest,
)
from ambient_runner.services.workspaces.safe_names import check_branch, check_name

if TYPE_CHECKING:
    from ambient_runner.services.workspaces.layout import WorkspaceLayout

__all__ = ["create_record"]

logger = logging.getLogger(__name__)

_OLD_DIR = ".ambient"
_OLD_NAMES = (MANIFEST_FILE, "lock", "tmp", "trash")
"""Names that earlier versions had in the agent's directory. Agents' homes are there too, and stay."""
_MAX_REPOS = 50
_ANY_SOURCE = SourceRules(schemes=get_args(Scheme))
"""A repository was cloned under the rules of its time; only the form of its URL is checked."""


def create_record(layout: WorkspaceLayout) -> None:
    """Create the directory of the record, whose parent exists, with what can be kept of an earlier version's. Blocks.

    It appears complete or not at all, and only if there is none: of two processes one is first, and a manifest that an agent writes later
    is never read. Raises: OSError, ServiceError.
    """
    new = layout.record_dir.with_name(f".new-{os.urandom(8).hex()}")
    make_directory(new)
    try:
        layout.create_record_dirs(new)
        manifest = _read_old_manifest(layout)
        if manifest != WorkspaceManifest():
            write_manifest(new, manifest)
        _keep_workflow_files(layout)
        new.rename(layout.record_dir)
        fsync_directory(layout.record_dir.parent)
    except OSError:
        if not is_directory(layout.record_dir):
            raise
    finally:
        if is_directory(new):
            remove_tree(new)
    _discard_old_files(layout)


def _read_old_manifest(layout: WorkspaceLayout) -> WorkspaceManifest:
    """Return what can be kept of the manifest in the agent's directory. The log has what cannot."""
    old: Any = None
    try:
        data = read_file(layout.path, PurePosixPath(_OLD_DIR, MANIFEST_FILE), MAX_MANIFEST_BYTES)
        if data is None:
            return WorkspaceManifest()
        old = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass  # Damaged, or not a file of ours: nothing of it can be kept.
    listed = _list_member(old, "repos")
    repos = _keep_repos(layout, listed)
    if not isinstance(old, dict) or "workflow" in old or len(repos) < len(listed):
        logger.warning(
            "Workspace %s had its manifest in the agent's directory, where the agent could change it. %d of its %d repositories were "
            "kept.%s",
            layout.path,
            len(repos),
            len(listed),
            _describe_lost_workflow(layout, old),
        )
    used = {repo.directory for repo in repos}
    stale = [name for name in _list_member(old, "stale") if isinstance(name, str) and _is_name(name)]
    return WorkspaceManifest(repos=repos, stale=tuple(name for name in stale if name not in used))


def _describe_lost_workflow(layout: WorkspaceLayout, old: Any) -> str:
    """Return what the log says about the workflow; nothing if there was none. If the manifest cannot be read, its directory tells."""
    had_workflow = (
        cast("dict[str, Any]", old).get("workflow") if isinstance(old, dict) else _workflow_directories(layout)
    )
    if not had_workflow:
        return ""
    return f" Its workflow was not kept: choose it again. The workflow's files are in {layout.artifacts}."


def _list_member(value: Any, name: str) -> list[Any]:
    member: Any = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return cast("list[Any]", member) if isinstance(member, list) else []


def _keep_repos(layout: WorkspaceLayout, listed: list[Any]) -> tuple[RepoEntry, ...]:
    kept: dict[str, RepoEntry] = {}
    for value in listed[:_MAX_REPOS]:
        with suppress(msgspec.ValidationError, RunnerError, OSError):
            entry = _check_repo(layout, msgspec.convert(value, RepoEntry))
            kept.setdefault(entry.name.lower(), entry)
    return tuple(kept.values())


def _check_repo(layout: WorkspaceLayout, entry: RepoEntry) -> RepoEntry:
    """Return the entry without the list of remote branches, which only a clone can know. Raises: RunnerError, OSError."""
    check_repo_entry(entry)
    _ANY_SOURCE.parse_url(entry.url)
    for branch in filter(None, (entry.branch, entry.default_branch)):
        check_branch(branch)
    repo = layout.repo_path(entry.directory)
    if not is_directory(repo) or not is_plain_repository(repo):
        raise NotADirectoryError(repo)
    return msgspec.structs.replace(entry, branches=())


def _is_name(name: str) -> bool:
    with suppress(RunnerError):
        return bool(check_name(name))
    return False


def _keep_workflow_files(layout: WorkspaceLayout) -> None:
    """Move the directories of workflows to the artifacts: without an entry they would be deleted, and with them the agent's work."""
    for name in _workflow_directories(layout):
        make_directory(layout.artifacts)
        with suppress(FileNotFoundError):  # Another process was first.
            move_entry(layout.path / "workflows", name, layout.artifacts, layout.free_name("artifacts", name))


def _workflow_directories(layout: WorkspaceLayout) -> list[str]:
    directory = layout.path / "workflows"
    if not is_directory(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def _discard_old_files(layout: WorkspaceLayout) -> None:
    """Move the old files to the trash, which is emptied before the next run."""
    old = layout.path / _OLD_DIR
    for name in _OLD_NAMES if is_directory(old) else ():
        with suppress(OSError):
            move_entry(old, name, layout.record_dir / "trash", os.urandom(8).hex())
