"""What the system prompt says of a workspace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ambient_runner.services.system_prompt import build_system_prompt
from ambient_runner.services.workspaces.manifest import Rubric, WorkflowConfig
from ambient_runner.services.workspaces.workspaces import Repo, Workflow, Workspace

ROOT = Path("/w")
BARE = Workspace(
    path=ROOT, cwd_path=ROOT / "artifacts", add_dirs=(), artifacts=ROOT / "artifacts", uploads=ROOT / "file-uploads"
)


def test_empty_sections_are_left_out() -> None:
    assert build_system_prompt(None) == ""


def test_a_workflow_without_a_description_has_no_section() -> None:
    flow = Workflow(url="u", branch="", path="", directory=ROOT / "workflows/flow", config=WorkflowConfig())
    assert build_system_prompt(replace(BARE, workflow=flow)) == build_system_prompt(BARE)


def test_an_agent_without_files_gets_only_the_operators_prompt() -> None:
    assert build_system_prompt(None, extra=" Be brief. ") == "# Instructions\n\nBe brief."


def test_every_section_of_a_full_workspace() -> None:
    config = WorkflowConfig(
        name="Triage",
        description="Sorts issues.",
        system_prompt="You sort.",
        startup_prompt="Not part of it.",
        rubric=Rubric(activation_prompt="Judge.", text="Be fair.", schema={"type": "object"}),
    )
    space = Workspace(
        path=ROOT,
        cwd_path=ROOT / "workflows/flow",
        add_dirs=(),
        repos=tuple(
            Repo(name=name, url="u", path=ROOT / "repos" / name, branch="ambient/t") for name in ("api", "web")
        ),
        workflow=Workflow(url="u", branch="", path="", directory=ROOT / "workflows/flow", config=config),
        artifacts=ROOT / "artifacts",
        uploads=ROOT / "file-uploads",
    )
    assert build_system_prompt(space, ("a.txt", "b.txt"), "Be brief.") == (
        """# Workspace

You work in `/w/workflows/flow`.
Write files for the user to `/w/artifacts`: the user can download them from there.

# Repositories

- api: `/w/repos/api`, on branch `ambient/t`
- web: `/w/repos/web`, on branch `ambient/t`

Commit your work to that branch. Leave other branches as they are.

# Uploaded files

The user has uploaded files to `/w/file-uploads`:
- a.txt
- b.txt

# Workflow

The workflow is Triage: Sorts issues.

You sort.

# How the work is judged

Judge.

Be fair.

Give your judgment in this shape:
```json
{
  "type": "object"
}
```

# Instructions

Be brief."""
    )


def test_a_long_list_of_uploads_is_truncated_with_a_note() -> None:
    lines = build_system_prompt(BARE, [f"f{number:03}" for number in range(60)]).splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        *(f"- f{number:03}" for number in range(50)),
        "- and 10 more",
    ]
