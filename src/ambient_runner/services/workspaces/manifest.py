"""The record of a workspace: which repositories and which workflow it has. One JSON file, replaced whole, never guessed at."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.errors import InvalidInput, ServiceError
from ambient_runner.services.workspaces.safe_files import inside, read_file, write_file
from ambient_runner.services.workspaces.safe_names import check_name

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Record", "RepoEntry", "Rubric", "WorkflowConfig", "WorkflowEntry", "read_record", "write_record"]

logger = logging.getLogger(__name__)

_NAME = "workspace.json"
_VERSION = 1
_LONGEST = 8 << 20


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What all parts of the record have in common."""


class RepoEntry(_Part, frozen=True, kw_only=True):
    """A repository as it was cloned."""

    name: str
    folder: str
    """Its name below `repos/`: its own, or a numbered one while something else is in the way."""
    url: str
    branch: str = ""
    """The branch it began at; empty when the repository was empty."""
    default_branch: str = ""
    branches: tuple[str, ...] = ()
    """The remote's branches at the time of the clone: a shallow clone holds only one of them."""


class Rubric(_Part, frozen=True, kw_only=True):
    """How the work is to be judged."""

    activation_prompt: str = ""
    schema: dict[str, Any] = {}
    text: str = ""
    """What `.ambient/rubric.md` says."""


class WorkflowConfig(_Part, frozen=True, kw_only=True):
    """What `.ambient/ambient.json` of a workflow says."""

    name: str = ""
    description: str = ""
    system_prompt: str = ""
    startup_prompt: str = ""
    rubric: Rubric | None = None


class WorkflowEntry(_Part, frozen=True, kw_only=True):
    """The active workflow. Its configuration is as it was when it was chosen: an agent's edits do not change it."""

    folder: str
    """Its name below `workflows/`."""
    url: str
    branch: str = ""
    """The branch that was asked for; empty for the default one."""
    path: str = ""
    """The folder inside that is the workflow; empty for all of it."""
    config: WorkflowConfig = WorkflowConfig()


class Record(_Part, frozen=True, kw_only=True):
    """Everything a workspace is told about itself."""

    version: int = _VERSION
    repos: tuple[RepoEntry, ...] = ()
    """In the order they were added: the first is the main one."""
    workflow: WorkflowEntry | None = None
    stale: tuple[str, ...] = ()
    """Names below `repos/` of repositories that were removed. A running agent may stand in one, so they go before the next run."""

    def repo(self, name: str) -> RepoEntry | None:
        return next((repo for repo in self.repos if repo.name == name), None)


def read_record(folder: Path) -> Record:
    """The record kept in this folder; an empty one when there is none yet.

    Raises: ServiceError when it cannot be trusted.
    """
    try:
        data = read_file(folder, inside(_NAME), _LONGEST)
        record = msgspec.json.decode(data, type=Record) if data is not None else Record()
        _check(record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidInput, ValueError) as error:
        raise _damaged(folder) from error
    return record


def write_record(folder: Path, record: Record) -> None:
    write_file(folder / _NAME, msgspec.json.encode(record) + b"\n")


def _check(record: Record) -> None:
    """What the record names becomes paths, so each name has to be one."""
    if record.version != _VERSION:
        raise ValueError("written by another version")
    for repo in record.repos:
        check_name(repo.name)
        check_name(repo.folder)
    if record.workflow:
        check_name(record.workflow.folder)
        if record.workflow.path:
            inside(record.workflow.path)
    for name in record.stale:
        check_name(name)


def _damaged(folder: Path) -> ServiceError:
    logger.error("The record of the workspace at %s is damaged", folder)
    return ServiceError(
        "The record of this workspace cannot be read. The server's operator can mend or remove its `.ambient/workspace.json`; "
        "the files are untouched."
    )
