from __future__ import annotations

from ambient_runner.services.prompt import Checkout, Scene, system_prompt
from ambient_runner.services.state import Rubric, WorkflowConfig


def test_a_scene_with_nothing_in_it_has_nothing_to_say() -> None:
    assert system_prompt(Scene()) == ""
    assert system_prompt(Scene(workflow=WorkflowConfig())) == ""


def test_an_agent_without_files_hears_only_what_the_operator_adds() -> None:
    assert system_prompt(Scene(extra=" Be brief. ")) == "# Instructions\n\nBe brief."


def test_every_section_of_a_full_scene() -> None:
    scene = Scene(
        extra="Be brief.",
        cwd="/w/workflows/flow",
        artifacts="/w/artifacts",
        uploads_folder="/w/file-uploads",
        uploads=("a.txt", "b.txt"),
        repos=(
            Checkout(name="api", path="/w/repos/api", branch="ambient/t"),
            Checkout(name="web", path="/w/repos/web", branch="ambient/t"),
        ),
        workflow=WorkflowConfig(
            name="Triage",
            description="Sorts issues.",
            system_prompt="You sort.",
            startup_prompt="Not part of it.",
            rubric=Rubric(activation_prompt="Judge.", text="Be fair.", schema={"type": "object"}),
        ),
    )
    assert system_prompt(scene) == (
        """# Workspace

You work in `/w/workflows/flow`.
Put the files you make for the person into `/w/artifacts`: they can fetch them there.

# Repositories

- api: `/w/repos/api`, on branch `ambient/t`
- web: `/w/repos/web`, on branch `ambient/t`

Commit your work to that branch. Leave other branches as they are.

# Uploaded files

The person has given you files, in `/w/file-uploads`:
- a.txt
- b.txt

# Workflow

The workflow is Triage: Sorts issues.

You sort.

# How the work is judged

Judge.

Be fair.

Give your judgement in this shape:
```json
{
  "type": "object"
}
```

# Instructions

Be brief."""
    )


def test_a_long_list_of_uploads_is_cut_and_says_so() -> None:
    scene = Scene(uploads_folder="/w/up", uploads=tuple(f"f{number:03}" for number in range(60)))
    lines = system_prompt(scene).splitlines()
    assert (len(lines), lines[-2:]) == (54, ["- f049", "- and 10 more"])


def test_the_same_scene_gives_the_same_words() -> None:
    scene = Scene(cwd="/w", artifacts="/w/a", extra="x")
    assert system_prompt(scene) == system_prompt(scene)
