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
from ambient_runner.protocol.strict_json import loads
from ambient_runner.services.background_jobs import JobKey, done
from ambient_runner.services.workspaces.clone import Order, silent
from ambient_runner.services.workspaces.clone_sources import without_git
from ambient_runner.services.workspaces.manifest import Rubric, WorkflowConfig, WorkflowEntry
from ambient_runner.services.workspaces.safe_files import inside, is_folder, read_file
from ambient_runner.services.workspaces.safe_names import check_branch, name_of
from ambient_runner.services.workspaces.safe_trees import DEEPEST, is_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.services.background_jobs import Job
    from ambient_runner.services.workspaces.clone import OnProgress
    from ambient_runner.services.workspaces.layout import Folder
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["Changed", "Workflows", "read_config"]

logger = logging.getLogger(__name__)

_KIND = "workflow"
_MOST_BYTES, _MOST_FILES = 100 << 20, 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """The workflow the next run works in."""

    outcome: Literal["updated", "already active"]
    url: str
    branch: str
    path: str
    config: WorkflowConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    url: str
    branch: str
    path: str

    def is_entry(self, entry: WorkflowEntry) -> bool:
        return self == _Asked(url=without_git(entry.url), branch=entry.branch, path=entry.path)


class Workflows:
    """The workflows of all workspaces. A change is a job of theirs: whoever asked for it may leave."""

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
        progress: OnProgress = silent,
        then: Callable[[Job[Changed]], Awaitable[None]] | None = None,
    ) -> Job[Changed]:
        """Make this the workflow of the thread, from its next run on. `url` may be a local folder where the server allows those.

        `path` is the folder inside that is the workflow. The other arguments are as for a repository. When it fails, the old one stays.
        Raises: InvalidInput, Forbidden, RepoConflict while another change is under way, ServiceError, Draining.
        """
        source = await self._workspaces.rules.checked(url)
        branch = check_branch(branch) if branch else ""
        path = str(inside(path.strip("/"))) if path and path.strip("/") else ""
        asked = _Asked(url=without_git(source.url), branch=branch, path=path)
        folder = await self._workspaces.opened(thread)
        active = await folder.locked(lambda: _active(folder, asked))
        key = JobKey(thread, _KIND)
        if active:
            return done(key, _changed(active, "already active"))
        job = self._jobs.find(key)
        if job and job.about != asked:
            raise RepoConflict(
                "Another workflow is being fetched for this thread. Wait until it is there, then choose again."
            )
        order = Order.of(thread, _name(source.url), source, branch or None, environment)
        return self._jobs.begin(key, asked, lambda: self._fetch(folder, order, asked, progress), then)

    async def clear(self, thread: ThreadKey) -> bool:
        """Have no workflow from the next run on; False when there was none. Raises: ServiceError."""
        return bool(await self._workspaces.change(thread, lambda folder: _switch(folder, None)))

    async def _fetch(self, folder: Folder, order: Order, asked: _Asked, progress: OnProgress) -> Changed:
        async with folder.scratch() as scratch:
            tree = scratch / "tree"
            local = order.source.folder
            if local and not await anyio.to_thread.run_sync(_is_repository, local):
                await anyio.to_thread.run_sync(_copy, local, tree, self._workspaces.root)
            else:
                await self._workspaces.cloner.clone(order, tree, progress)
            entry = await folder.locked(lambda: _keep(folder, order, asked, tree))
        return _changed(entry, "updated")


def _name(url: str) -> str:
    with suppress(InvalidInput):
        return name_of(url)
    return "workflow"


def _changed(entry: WorkflowEntry, outcome: Literal["updated", "already active"]) -> Changed:
    return Changed(outcome=outcome, url=entry.url, branch=entry.branch, path=entry.path, config=entry.config)


def _active(folder: Folder, asked: _Asked) -> WorkflowEntry | None:
    """The active workflow, if it is this one and still whole."""
    entry = folder.read().workflow
    return entry if entry and asked.is_entry(entry) and is_folder(folder.workflow(entry.folder) / entry.path) else None


def _keep(folder: Folder, order: Order, asked: _Asked, tree: Path) -> WorkflowEntry:
    config = read_config(_root(tree, asked.path))
    entry = WorkflowEntry(
        folder=folder.free("workflows", order.name),
        url=order.source.url,
        branch=asked.branch,
        path=asked.path,
        config=config,
    )
    # The folder first: no run may find a workflow that is not there. A folder that nothing names goes before the next run.
    folder.move_in(tree, folder.workflow(entry.folder))
    _switch(folder, entry)
    return entry


def _root(tree: Path, path: str) -> Path:
    root = tree / path
    if is_folder(root) and root.resolve() == tree.resolve() / path:
        return root
    raise InvalidInput(
        "The workflow's repository has no folder of that path. Check its spelling; it begins at the top of the repository."
    )


def _switch(folder: Folder, entry: WorkflowEntry | None) -> bool:
    record = folder.read()
    folder.write(msgspec.structs.replace(record, workflow=entry))
    return record.workflow is not None


def _is_repository(folder: Path) -> bool:
    return os.path.lexists(folder / ".git") or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())


def _copy(folder: Path, into: Path, root: Path) -> None:
    """A plain folder as a workflow: a copy, so that the agent's work does not change the original. Links stay links."""
    if not is_folder(folder):
        raise InvalidInput(
            "There is no such folder on the server. Check its spelling, or send the URL of a repository."
        )
    if root.resolve().is_relative_to(folder):
        raise Forbidden("That folder holds the workspaces of this server. Name another, or a folder inside it.")
    if not is_within(folder, most_bytes=_MOST_BYTES, most_files=_MOST_FILES):
        raise RepoTooLarge(
            f"The folder is larger than {_MOST_BYTES >> 20} MiB, has more than {_MOST_FILES} files, "
            f"or folders more than {DEEPEST} deep. Choose a smaller one."
        )
    try:
        shutil.copytree(folder, into, symlinks=True, ignore=_not_plain)
    except (shutil.Error, OSError) as error:
        raise ServiceError(
            "The folder could not be copied. The server's operator has to check that it is readable."
        ) from error


def _not_plain(folder: str, names: list[str]) -> list[str]:
    """What a copy would wait for or never end with: pipes, sockets and devices."""
    found = [(name, Path(folder, name)) for name in names]
    return [name for name, path in found if not (path.is_symlink() or path.is_file() or path.is_dir())]


_CONFIG = PurePosixPath(".ambient/ambient.json")
_RUBRIC = PurePosixPath(".ambient/rubric.md")
_LONGEST = 256 << 10
_NAMES_LOGGED = 10


def read_config(folder: Path) -> WorkflowConfig:
    """The configuration of the workflow in this folder; all empty when it has none. Blocks: call it in a thread.

    Raises: InvalidInput, saying where it is wrong.
    """
    data, text = _read(folder, _CONFIG), _read(folder, _RUBRIC)
    config = _parse(data) if data is not None else WorkflowConfig()
    if text is None:
        return config
    try:
        rubric = msgspec.structs.replace(config.rubric or Rubric(), text=text.decode())
    except UnicodeDecodeError as error:
        raise _wrong(_RUBRIC, f"it is not UTF-8: see byte {error.start}") from error
    return msgspec.structs.replace(config, rubric=rubric)


def _read(folder: Path, path: PurePosixPath) -> bytes | None:
    try:
        return read_file(folder, path, _LONGEST)
    except ValueError as error:
        raise _wrong(path, f"it {error}") from error


def _parse(data: bytes) -> WorkflowConfig:
    try:
        value: Any = loads(data)
        config = msgspec.convert(value, WorkflowConfig)
    except InvalidInput as error:
        raise _wrong(_CONFIG, error.message) from error
    except msgspec.ValidationError as error:
        raise _wrong(_CONFIG, str(error)) from error
    _warn_of_unknown(cast("dict[str, Any]", value))
    # The rubric's text is the other file's to say.
    rubric = msgspec.structs.replace(config.rubric, text="") if config.rubric else None
    return msgspec.structs.replace(config, rubric=rubric)


def _warn_of_unknown(value: dict[str, Any]) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(WorkflowConfig)}
    unknown = sorted(set(value) - known)
    if unknown:
        logger.warning(
            "A workflow has members that mean nothing here: %s", ", ".join(map(repr, unknown[:_NAMES_LOGGED]))
        )


def _wrong(path: PurePosixPath, reason: str) -> InvalidInput:
    return InvalidInput(
        f"The workflow's {path} cannot be used: {reason.rstrip('.')}. Correct it there and choose the workflow again."
    )
