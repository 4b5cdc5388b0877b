"""The system prompt that describes an agent's workspace, built from sections. Pure: workspace in, text out.

It holds no credentials, because the model may repeat it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.services.workspaces.manifest import Rubric, WorkflowConfig
    from ambient_runner.services.workspaces.workspaces import Repo, Workspace

__all__ = ["build_system_prompt"]

_MAX_LISTED = 50


def build_system_prompt(workspace: Workspace | None, uploads: Sequence[str] = (), extra: str = "") -> str:
    """Return the non-empty sections, in order; an empty string when there is none.

    An agent without files has no workspace. `uploads` are file names; `extra` is the text that the operator adds for every agent.
    """
    sections = {**(_build_sections(workspace, uploads) if workspace else {}), "Instructions": extra}
    return "\n\n".join(f"# {title}\n\n{body.strip()}" for title, body in sections.items() if body.strip())


def _build_sections(workspace: Workspace, uploads: Sequence[str]) -> dict[str, str]:
    workflow = workspace.workflow.config if workspace.workflow else None
    return {
        "Workspace": _describe_workspace(workspace),
        "Repositories": _describe_repos(workspace.repos),
        "Uploaded files": _describe_uploads(workspace, uploads),
        "Workflow": _describe_workflow(workflow) if workflow else "",
        "How the work is judged": _describe_rubric(workflow.rubric) if workflow and workflow.rubric else "",
    }


def _describe_workspace(workspace: Workspace) -> str:
    return (
        f"You work in `{workspace.cwd_path}`.\n"
        f"Write files for the user to `{workspace.artifacts}`: the user can download them from there."
    )


def _describe_repos(repos: Sequence[Repo]) -> str:
    if not repos:
        return ""
    lines = [f"- {repo.name}: `{repo.path}`, on branch `{repo.branch}`" for repo in repos[:_MAX_LISTED]]
    return "\n".join([*lines, "", "Commit your work to that branch. Leave other branches as they are."])


def _describe_uploads(workspace: Workspace, names: Sequence[str]) -> str:
    if not names:
        return ""
    remaining = len(names) - _MAX_LISTED
    more = [f"- and {remaining} more"] if remaining > 0 else []
    listed = "\n".join([*(f"- {name}" for name in names[:_MAX_LISTED]), *more])
    return f"The user has uploaded files to `{workspace.uploads}`:\n{listed}"


def _describe_workflow(workflow: WorkflowConfig) -> str:
    title = (
        f"The workflow is {workflow.name}: {workflow.description}"
        if workflow.name and workflow.description
        else workflow.name
    )
    return "\n\n".join(filter(None, (title, workflow.system_prompt)))


def _describe_rubric(rubric: Rubric) -> str:
    shape = f"Give your judgment in this shape:\n```json\n{json.dumps(rubric.schema, indent=2)}\n```"
    return "\n\n".join(filter(None, (rubric.activation_prompt, rubric.text, shape if rubric.schema else "")))
