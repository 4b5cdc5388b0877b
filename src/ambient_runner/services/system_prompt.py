"""What an agent is told about where it works: one text, put together from sections. Pure: the workspace in, words out.

It holds no credentials: the text is the model's to repeat.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.services.workspaces.manifest import Rubric, WorkflowConfig
    from ambient_runner.services.workspaces.workspaces import Repo, Workspace

__all__ = ["system_prompt"]

_MOST_LISTED = 50


def system_prompt(space: Workspace | None, uploads: Sequence[str] = (), extra: str = "") -> str:
    """The sections that have something to say, in order; empty when none has.

    An agent without files has no workspace. `uploads` are names of files; `extra` is what the operator adds for every agent.
    """
    sections = {**(_sections(space, uploads) if space else {}), "Instructions": extra}
    return "\n\n".join(f"# {title}\n\n{body.strip()}" for title, body in sections.items() if body.strip())


def _sections(space: Workspace, uploads: Sequence[str]) -> dict[str, str]:
    flow = space.workflow.config if space.workflow else None
    return {
        "Workspace": _workspace(space),
        "Repositories": _repos(space.repos),
        "Uploaded files": _uploads(space, uploads),
        "Workflow": _workflow(flow) if flow else "",
        "How the work is judged": _rubric(flow.rubric) if flow and flow.rubric else "",
    }


def _workspace(space: Workspace) -> str:
    return f"You work in `{space.cwd_path}`.\nPut the files you make for the person into `{space.artifacts}`: they can fetch them there."


def _repos(repos: Sequence[Repo]) -> str:
    if not repos:
        return ""
    lines = [f"- {repo.name}: `{repo.path}`, on branch `{repo.branch}`" for repo in repos[:_MOST_LISTED]]
    return "\n".join([*lines, "", "Commit your work to that branch. Leave other branches as they are."])


def _uploads(space: Workspace, names: Sequence[str]) -> str:
    if not names:
        return ""
    left = len(names) - _MOST_LISTED
    more = [f"- and {left} more"] if left > 0 else []
    listed = "\n".join([*(f"- {name}" for name in names[:_MOST_LISTED]), *more])
    return f"The person has given you files, in `{space.uploads}`:\n{listed}"


def _workflow(flow: WorkflowConfig) -> str:
    about = f"The workflow is {flow.name}: {flow.description}" if flow.name and flow.description else flow.name
    return "\n\n".join(filter(None, (about, flow.system_prompt)))


def _rubric(rubric: Rubric) -> str:
    shape = f"Give your judgement in this shape:\n```json\n{json.dumps(rubric.schema, indent=2)}\n```"
    return "\n\n".join(filter(None, (rubric.activation_prompt, rubric.text, shape if rubric.schema else "")))
