"""What happens to a workspace, as facts of its thread. Clients see each as CUSTOM `ambient:<kind>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.ledger.base import Fact
from ambient_runner.projections.thread import REPOS_OWNER, WORKFLOW_OWNER

if TYPE_CHECKING:
    from ambient_runner.services.progress import CloneProgress
    from ambient_runner.services.state import WorkflowConfig

__all__ = ["repo_added", "repo_progress", "repo_removed", "setup_error", "workflow_changed"]


def repo_added(name: str, url: str, branch: str) -> Fact:
    return _fact(REPOS_OWNER, "repo_added", {"name": name, "url": url, "branch": branch})


def repo_removed(name: str) -> Fact:
    return _fact(REPOS_OWNER, "repo_removed", {"name": name})


def repo_progress(step: CloneProgress) -> Fact:
    return _fact(REPOS_OWNER, "repo_progress", {"name": step.name, "phase": step.phase, "percent": step.percent})


def workflow_changed(url: str, branch: str, path: str, config: WorkflowConfig | None = None) -> Fact:
    """`url` is empty when there is no workflow any more."""
    about = {"name": config.name, "description": config.description} if config else {"name": "", "description": ""}
    return _fact(WORKFLOW_OWNER, "workflow_changed", {"gitUrl": url, "branch": branch, "path": path, **about})


def setup_error(stage: str, message: str) -> Fact:
    return _fact(REPOS_OWNER, "setup_error", {"stage": stage, "message": message})


def _fact(owner: str, kind: str, body: dict[str, Any]) -> Fact:
    return Fact(owner=owner, kind=kind, body=msgspec.json.encode(body))
