"""What an agent is told about where it works: one text, put together from a table of sections. Pure: the scene in, words out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.services.state import WorkflowConfig

__all__ = ["Checkout", "Scene", "system_prompt"]

_MOST_LISTED = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A repository in the workspace, on the branch of this thread."""

    name: str
    path: str
    branch: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Where one thread's work happens. It holds no credentials: the text is the model's to repeat."""

    extra: str = ""
    """What the operator adds for every agent."""
    cwd: str = ""
    """Empty for an agent that has no files."""
    artifacts: str = ""
    uploads_folder: str = ""
    uploads: tuple[str, ...] = ()
    repos: tuple[Checkout, ...] = ()
    workflow: WorkflowConfig | None = None


def system_prompt(scene: Scene) -> str:
    """The sections that have something to say, in order; empty when none has."""
    written = [(title, body) for title, write in _SECTIONS if (body := write(scene).strip())]
    return "\n\n".join(f"# {title}\n\n{body}" for title, body in written)


def _workspace(scene: Scene) -> str:
    if not scene.cwd:
        return ""
    return f"You work in `{scene.cwd}`.\nPut the files you make for the person into `{scene.artifacts}`: they can fetch them there."


def _repos(scene: Scene) -> str:
    if not scene.repos:
        return ""
    lines = [f"- {repo.name}: `{repo.path}`, on branch `{repo.branch}`" for repo in scene.repos[:_MOST_LISTED]]
    return "\n".join([*lines, "", "Commit your work to that branch. Leave other branches as they are."])


def _uploads(scene: Scene) -> str:
    names = _listed(scene.uploads)
    return f"The person has given you files, in `{scene.uploads_folder}`:\n{names}" if names else ""


def _listed(names: tuple[str, ...]) -> str:
    left = len(names) - _MOST_LISTED
    more = [f"- and {left} more"] if left > 0 else []
    return "\n".join([*(f"- {name}" for name in names[:_MOST_LISTED]), *more])


def _workflow(scene: Scene) -> str:
    if scene.workflow is None:
        return ""
    flow = scene.workflow
    about = f"The workflow is {flow.name}: {flow.description}" if flow.name and flow.description else flow.name
    return "\n\n".join(filter(None, (about, flow.system_prompt)))


def _rubric(scene: Scene) -> str:
    rubric = scene.workflow.rubric if scene.workflow else None
    if rubric is None:
        return ""
    schema = (
        f"Give your judgement in this shape:\n```json\n{json.dumps(rubric.schema, indent=2)}\n```"
        if rubric.schema
        else ""
    )
    return "\n\n".join(filter(None, (rubric.activation_prompt, rubric.text, schema)))


def _extra(scene: Scene) -> str:
    return scene.extra


_SECTIONS: tuple[tuple[str, Callable[[Scene], str]], ...] = (
    ("Workspace", _workspace),
    ("Repositories", _repos),
    ("Uploaded files", _uploads),
    ("Workflow", _workflow),
    ("How the work is judged", _rubric),
    ("Instructions", _extra),
)
