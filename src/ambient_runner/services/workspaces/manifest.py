"""The manifest of a workspace: its repositories and its workflow. One JSON file, replaced as a whole; a damaged one is an error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.errors import InvalidInput, ServiceError
from ambient_runner.files.safe_files import check_relative_path, read_file, write_file
from ambient_runner.services.workspaces.safe_names import check_name

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "MANIFEST_FILE",
    "MAX_MANIFEST_BYTES",
    "RepoEntry",
    "Rubric",
    "WorkflowConfig",
    "WorkflowEntry",
    "WorkspaceManifest",
    "check_repo_entry",
    "read_manifest",
    "write_manifest",
]

logger = logging.getLogger(__name__)

MANIFEST_FILE = "workspace.json"
MAX_MANIFEST_BYTES = 8 << 20
_VERSION = 1


class _ManifestPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all parts of the manifest. The names in the file stay as they are: files of earlier versions have them."""


class RepoEntry(_ManifestPart, frozen=True, kw_only=True):
    """A repository as it was when it was cloned."""

    name: str
    directory: str = msgspec.field(name="folder")
    """Its directory below `repos/`: its name, with a number if that was taken."""
    url: str
    branch: str = ""
    """The branch it was cloned from; empty when the repository was empty."""
    default_branch: str = ""
    branches: tuple[str, ...] = ()
    """The remote's branches at the time of the clone: a shallow clone holds only one of them."""


class Rubric(_ManifestPart, frozen=True, kw_only=True):
    """Criteria for judging the work."""

    activation_prompt: str = ""
    schema: dict[str, Any] = {}
    text: str = ""
    """Content of `.ambient/rubric.md`."""


class WorkflowConfig(_ManifestPart, frozen=True, kw_only=True):
    """Content of a workflow's `.ambient/ambient.json`."""

    name: str = ""
    description: str = ""
    system_prompt: str = ""
    startup_prompt: str = ""
    rubric: Rubric | None = None


class WorkflowEntry(_ManifestPart, frozen=True, kw_only=True):
    """The active workflow, with its configuration from when it was chosen: an agent's edits do not change it."""

    directory: str = msgspec.field(name="folder")
    """Its directory below `workflows/`."""
    url: str
    branch: str = ""
    """The requested branch; empty for the default one."""
    path: str = ""
    """The directory of the workflow inside the source; empty for the whole source."""
    config: WorkflowConfig = WorkflowConfig()


class WorkspaceManifest(_ManifestPart, frozen=True, kw_only=True):
    """All that is stored about a workspace."""

    version: int = _VERSION
    repos: tuple[RepoEntry, ...] = ()
    """In the order in which they were added: the first is the main one."""
    workflow: WorkflowEntry | None = None
    stale: tuple[str, ...] = ()
    """Directories below `repos/` of removed repositories. A running agent may work in one, so they are deleted before the next run."""

    def find_repo(self, name: str) -> RepoEntry | None:
        return next((repo for repo in self.repos if repo.name == name), None)


def read_manifest(directory: Path) -> WorkspaceManifest:
    """Read the manifest in this directory; an empty one if there is no file.

    Raises: ServiceError when it is damaged or of another version.
    """
    try:
        data = read_file(directory, check_relative_path(MANIFEST_FILE), MAX_MANIFEST_BYTES)
        manifest = msgspec.json.decode(data, type=WorkspaceManifest) if data is not None else WorkspaceManifest()
        _check_manifest(manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidInput, ValueError) as error:
        raise _damaged_error(directory) from error
    return manifest


def write_manifest(directory: Path, manifest: WorkspaceManifest) -> None:
    write_file(directory / MANIFEST_FILE, msgspec.json.encode(manifest) + b"\n")


def _check_manifest(manifest: WorkspaceManifest) -> None:
    """Check every name in the manifest, because names become paths."""
    if manifest.version != _VERSION:
        raise ValueError("written by another version")
    for repo in manifest.repos:
        check_repo_entry(repo)
    if manifest.workflow:
        check_name(manifest.workflow.directory)
        if manifest.workflow.path:
            check_relative_path(manifest.workflow.path)
    for name in manifest.stale:
        check_name(name)


def check_repo_entry(entry: RepoEntry) -> None:
    """Return if the names of the entry are valid. Raises: InvalidInput."""
    check_name(entry.name)
    check_name(entry.directory)


def _damaged_error(directory: Path) -> ServiceError:
    logger.error("The workspace manifest %s is damaged; repair or delete the file", directory / MANIFEST_FILE)
    return ServiceError(
        "The manifest of this workspace cannot be read. The server's operator finds its path in the log, and can repair or delete "
        "it; the other files are unchanged."
    )
