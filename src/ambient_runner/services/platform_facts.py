"""What happens to a workspace, as facts of its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ambient_runner.projections.frames import REPOS_OWNER, WORKFLOW_OWNER, custom_of

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Custom
    from ambient_runner.services.workspaces.clone import CloneProgress
    from ambient_runner.services.workspaces.manifest import WorkflowConfig

__all__ = ["News", "repo_added", "repo_progress", "repo_removed", "setup_error", "workflow_changed"]


class News(NamedTuple):
    """What `Runner.note` keeps with a thread. Clients see it as `event`."""

    owner: str
    kind: str
    value: dict[str, Any]

    @property
    def event(self) -> Custom:
        return custom_of(self.kind, self.value)


def repo_added(name: str, url: str, branch: str) -> News:
    return News(REPOS_OWNER, "repo_added", {"name": name, "url": url, "branch": branch})


def repo_removed(name: str) -> News:
    return News(REPOS_OWNER, "repo_removed", {"name": name})


def repo_progress(step: CloneProgress) -> News:
    return News(REPOS_OWNER, "repo_progress", {"name": step.name, "phase": step.phase, "percent": step.percent})


def workflow_changed(url: str, branch: str, path: str, config: WorkflowConfig | None = None) -> News:
    """`url` is empty when there is no workflow any more."""
    about = {"name": config.name, "description": config.description} if config else {"name": "", "description": ""}
    return News(WORKFLOW_OWNER, "workflow_changed", {"gitUrl": url, "branch": branch, "path": path, **about})


def setup_error(stage: str, message: str) -> News:
    return News(REPOS_OWNER, "setup_error", {"stage": stage, "message": message})
