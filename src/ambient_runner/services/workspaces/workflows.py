"""The workflow of a workspace: chosen, fetched, and configured by its `.ambient/ambient.json` and `.ambient/rubric.md`."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio.to_thread
import msgspec

from ambient_runner.errors import Forbidden, InvalidInput, RepoConflict, RepoTooLarge, ServiceError
from ambient_runner.files.safe_files import check_relative_path, is_directory, read_file
from ambient_runner.files.safe_trees import MAX_DEPTH, is_tree_within
from ambient_runner.protocol.strict_json import loads
from ambient_runner.services.background_jobs import JobKey, finished_job
from ambient_runner.services.workspaces.clone import CloneRequest, ignore_progress
from ambient_runner.services.workspaces.clone_sources import strip_git_suffix
from ambient_runner.services.workspaces.manifest import Rubric, WorkflowConfig, WorkflowEntry
from ambient_runner.services.workspaces.safe_names import check_branch, repo_name_from_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.services.background_jobs import BackgroundJob
    from ambient_runner.services.workspaces.clone import OnProgress
    from ambient_runner.services.workspaces.layout import WorkspaceLayout
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["WorkflowChange", "Workflows", "read_workflow_config"]

logger = logging.getLogger(__name__)

_KIND = "workflow"
_MAX_BYTES, _MAX_FILES = 100 << 20, 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowChange:
    """The workflow of the next run."""

    outcome: Literal["updated", "already active"]
    url: str
    branch: str
    path: str
    config: WorkflowConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class _WorkflowRequest:
    url: str
    branch: str
    path: str

    def is_entry(self, entry: WorkflowEntry) -> bool:
        return self == _WorkflowRequest(url=strip_git_suffix(entry.url), branch=entry.branch, path=entry.path)


class Workflows:
    """The workflows of all workspaces. A change is a background job, so the client may disconnect."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._jobs = workspaces.jobs

    async def change(
        self,
        thread: ThreadKey,
        url: str,
        *,
        branch: str | None = None,
        path: str | None = None,
        environment: Mapping[str, str],
        on_progress: OnProgress = ignore_progress,
        on_done: Callable[[BackgroundJob[WorkflowChange]], Awaitable[None]] | None = None,
    ) -> BackgroundJob[WorkflowChange]:
        """Make this the workflow of the thread, from its next run on. `url` may be a local directory where the server allows those.

        `path` is its directory inside the source. The other arguments are as for a repository. On failure the old workflow stays.
        Raises: InvalidInput, Forbidden, RepoConflict while another change is running, ServiceError, Draining.
        """
        source = await self._workspaces.rules.check_url(url)
        branch = check_branch(branch) if branch else ""
        path = str(check_relative_path(path.strip("/"))) if path and path.strip("/") else ""
        request = _WorkflowRequest(url=strip_git_suffix(source.url), branch=branch, path=path)
        layout = await self._workspaces.open_layout(thread)
        active = await layout.run_locked(lambda: _find_active(layout, request))
        key = JobKey(thread, _KIND)
        if active:
            return finished_job(key, _build_change(active, "already active"))
        job = self._jobs.find(key)
        if job and job.request != request:
            raise RepoConflict(
                "Another workflow is being fetched for this thread. Wait until that is done, then choose again."
            )
        clone_request = CloneRequest.for_thread(thread, _workflow_name(source.url), source, branch or None, environment)
        return self._jobs.start_or_join(
            key, request, lambda: self._fetch_workflow(layout, clone_request, request, on_progress), on_done
        )

    async def clear(self, thread: ThreadKey) -> bool:
        """Remove the workflow, from the next run on. Return False if there was none. Raises: ServiceError."""
        return bool(await self._workspaces.change_locked(thread, lambda layout: _set_active(layout, None)))

    async def _fetch_workflow(
        self, layout: WorkspaceLayout, clone_request: CloneRequest, request: _WorkflowRequest, on_progress: OnProgress
    ) -> WorkflowChange:
        async with layout.scratch_directory() as scratch:
            tree = scratch / "tree"
            local = clone_request.source.directory
            if local and not await anyio.to_thread.run_sync(_is_repository, local):
                await anyio.to_thread.run_sync(_copy_directory, local, tree, self._workspaces.root)
            else:
                await self._workspaces.cloner.clone(clone_request, tree, on_progress)
            entry = await layout.run_locked(lambda: _store_workflow(layout, clone_request, request, tree))
        return _build_change(entry, "updated")


def _workflow_name(url: str) -> str:
    with suppress(InvalidInput):
        return repo_name_from_url(url)
    return "workflow"


def _build_change(entry: WorkflowEntry, outcome: Literal["updated", "already active"]) -> WorkflowChange:
    return WorkflowChange(outcome=outcome, url=entry.url, branch=entry.branch, path=entry.path, config=entry.config)


def _find_active(layout: WorkspaceLayout, request: _WorkflowRequest) -> WorkflowEntry | None:
    """Return the active workflow if it is the requested one and its directory exists."""
    entry = layout.read_manifest().workflow
    return (
        entry
        if entry and request.is_entry(entry) and is_directory(layout.workflow_path(entry.directory) / entry.path)
        else None
    )


def _store_workflow(
    layout: WorkspaceLayout, clone_request: CloneRequest, request: _WorkflowRequest, tree: Path
) -> WorkflowEntry:
    config = read_workflow_config(_workflow_root(tree, request.path), workspace=layout.path)
    entry = WorkflowEntry(
        directory=layout.free_name("workflows", clone_request.name),
        url=clone_request.source.url,
        branch=request.branch,
        path=request.path,
        config=config,
    )
    # Move the directory first, so that no run finds an entry without one. A directory without an entry is deleted before the next run.
    layout.move_into_place(tree, layout.workflow_path(entry.directory))
    _set_active(layout, entry)
    return entry


def _workflow_root(tree: Path, path: str) -> Path:
    root = tree / path
    if is_directory(root) and root.resolve() == tree.resolve() / path:
        return root
    raise InvalidInput(
        "The workflow's repository has no directory with that path. Check its spelling; it is relative to the top of the repository."
    )


def _set_active(layout: WorkspaceLayout, entry: WorkflowEntry | None) -> bool:
    manifest = layout.read_manifest()
    layout.write_manifest(msgspec.structs.replace(manifest, workflow=entry))
    return manifest.workflow is not None


def _is_repository(directory: Path) -> bool:
    return os.path.lexists(directory / ".git") or ((directory / "HEAD").is_file() and (directory / "objects").is_dir())


def _copy_directory(directory: Path, target: Path, workspaces_root: Path) -> None:
    """Copy a directory that is not a repository, so that the agent's work does not change the original. Links stay links."""
    if not is_directory(directory):
        raise InvalidInput("The server has no such directory. Check its spelling, or send the URL of a repository.")
    if workspaces_root.resolve().is_relative_to(directory):
        raise Forbidden(
            "That directory contains the workspaces of this server. Choose another directory, or one inside it."
        )
    if not is_tree_within(directory, max_bytes=_MAX_BYTES, max_files=_MAX_FILES):
        raise RepoTooLarge(
            f"The directory is larger than {_MAX_BYTES >> 20} MiB, has more than {_MAX_FILES} files, "
            f"or directories more than {MAX_DEPTH} deep. Choose a smaller one."
        )
    try:
        shutil.copytree(directory, target, symlinks=True, ignore=_special_files)
    except (shutil.Error, OSError) as error:
        raise ServiceError(
            "The directory could not be copied. The server's operator has to check that it is readable."
        ) from error


def _special_files(directory: str, names: list[str]) -> list[str]:
    """Return the names of pipes, sockets and devices, which a copy would block on."""
    paths = [(name, Path(directory, name)) for name in names]
    return [name for name, path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())]


_CONFIG_PATH = PurePosixPath(".ambient/ambient.json")
_RUBRIC_PATH = PurePosixPath(".ambient/rubric.md")
_MAX_FILE_BYTES = 256 << 10
_MAX_NAMES_LOGGED = 10


def read_workflow_config(directory: Path, *, workspace: Path) -> WorkflowConfig:
    """Read the configuration of the workflow in this directory; an empty one if it has none. Blocks: call it in a thread.

    The log names `workspace`, the one the workflow is for.
    Raises: InvalidInput, whose message says where it is wrong.
    """
    data, text = _read_config_file(directory, _CONFIG_PATH), _read_config_file(directory, _RUBRIC_PATH)
    config = _parse_config(data, workspace) if data is not None else WorkflowConfig()
    if text is None:
        return config
    try:
        rubric = msgspec.structs.replace(config.rubric or Rubric(), text=text.decode())
    except UnicodeDecodeError as error:
        raise _config_error(_RUBRIC_PATH, f"it is not UTF-8: see byte {error.start}") from error
    return msgspec.structs.replace(config, rubric=rubric)


def _read_config_file(directory: Path, path: PurePosixPath) -> bytes | None:
    try:
        return read_file(directory, path, _MAX_FILE_BYTES)
    except ValueError as error:
        raise _config_error(path, f"it {error}") from error


def _parse_config(data: bytes, workspace: Path) -> WorkflowConfig:
    try:
        value: Any = loads(data)
        config = msgspec.convert(value, WorkflowConfig)
    except InvalidInput as error:
        raise _config_error(_CONFIG_PATH, error.message) from error
    except msgspec.ValidationError as error:
        raise _config_error(_CONFIG_PATH, str(error)) from error
    _warn_unknown_members(cast("dict[str, Any]", value), workspace)
    # The rubric's text comes from the other file only.
    rubric = msgspec.structs.replace(config.rubric, text="") if config.rubric else None
    return msgspec.structs.replace(config, rubric=rubric)


def _warn_unknown_members(value: dict[str, Any], workspace: Path) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(WorkflowConfig)}
    unknown = sorted(set(value) - known)
    if unknown:
        logger.warning(
            "The ambient.json of the workflow for workspace %s has unknown members, which are ignored: %s",
            workspace,
            ", ".join(map(repr, unknown[:_MAX_NAMES_LOGGED])),
        )


def _config_error(path: PurePosixPath, reason: str) -> InvalidInput:
    return InvalidInput(
        f"The workflow's {path} is invalid: {reason.rstrip('.')}. Correct it and choose the workflow again."
    )
