"""Changes of a workspace, as facts of its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ambient_runner.projections.projectors import (
    CLONES_OWNER,
    FILES_OWNER,
    REPOS_OWNER,
    SETUP_OWNER,
    WORKFLOW_OWNER,
    event_of_fact,
)

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Custom
    from ambient_runner.services.workspaces.clone import CloneProgress
    from ambient_runner.services.workspaces.manifest import WorkflowConfig

__all__ = [
    "PlatformFact",
    "file_deleted",
    "file_uploaded",
    "repo_added",
    "repo_progress",
    "repo_removed",
    "setup_error",
    "workflow_changed",
]


class PlatformFact(NamedTuple):
    """A fact that `Runner.append_platform_fact` stores with a thread. Clients receive it as `event`."""

    owner: str
    kind: str
    value: dict[str, Any]

    @property
    def event(self) -> Custom:
        return event_of_fact(self.kind, self.value)


def repo_added(name: str, url: str, branch: str) -> PlatformFact:
    return PlatformFact(REPOS_OWNER, "repo_added", {"name": name, "url": url, "branch": branch})


def repo_removed(name: str) -> PlatformFact:
    return PlatformFact(REPOS_OWNER, "repo_removed", {"name": name})


def repo_progress(step: CloneProgress) -> PlatformFact:
    value = {"name": step.name, "phase": step.phase, "percent": step.percent}
    return PlatformFact(CLONES_OWNER, "repo_progress", value)


def workflow_changed(url: str, branch: str, path: str, config: WorkflowConfig | None = None) -> PlatformFact:
    """Return the fact that the workflow changed. `url` is empty when the workflow was removed."""
    title = {"name": config.name, "description": config.description} if config else {"name": "", "description": ""}
    return PlatformFact(WORKFLOW_OWNER, "workflow_changed", {"gitUrl": url, "branch": branch, "path": path, **title})


def setup_error(stage: str, message: str) -> PlatformFact:
    return PlatformFact(SETUP_OWNER, "setup_error", {"stage": stage, "message": message})


def file_uploaded(name: str, size: int) -> PlatformFact:
    return PlatformFact(FILES_OWNER, "file_uploaded", {"name": name, "size": size})


def file_deleted(name: str) -> PlatformFact:
    return PlatformFact(FILES_OWNER, "file_deleted", {"name": name})
