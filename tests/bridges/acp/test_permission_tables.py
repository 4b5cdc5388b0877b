"""The permission modes, cell by cell and both ways. `pytest -k permission_table` prints the table, which the documentation repeats."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.bridges.acp.modes import (
    MODES,
    AgentMode,
    Mode,
    SandboxLimit,
    agent_mode,
    answers_without_asking,
    is_widened,
    is_wider,
    mode_of,
    parse_mode,
    sandbox_limit,
)
from ambient_runner.bridges.acp.profiles import PROFILES
from ambient_runner.errors import ConfigError
from tests.tables import markdown_table, read_table

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "permissions.md"
KINDS = ("read", "search", "edit", "delete", "move", "execute", "fetch", "think", "other", "")


@dataclass(frozen=True)
class Cell:
    """What one agent is told in one mode."""

    mode_id: str = ""
    collaboration: str = ""
    initial: str = ""
    permission: dict[str, str] = field(default_factory=dict)
    network_profile: bool = False
    we_answer: bool = False


ASK = {"edit": "ask", "bash": "ask", "webfetch": "ask", "*": "ask"}
ALLOW = dict.fromkeys(ASK, "allow")
ANSWERED = Cell(mode_id="default", we_answer=True)

TABLE: dict[str, dict[Mode, Cell]] = {
    "codex": {
        "default": Cell(mode_id="read-only", collaboration="default", initial="read-only"),
        "plan": Cell(mode_id="read-only", collaboration="plan", initial="read-only"),
        "accept-edits": Cell(mode_id="workspace-write", collaboration="default", initial="workspace-write"),
        "bypass": Cell(
            mode_id="permission-profile:ambient",
            collaboration="default",
            initial="permission-profile:ambient",
            network_profile=True,
        ),
        "yolo": Cell(mode_id="agent-full-access", collaboration="default", initial="agent-full-access"),
    },
    "claude-acp": {
        "default": Cell(mode_id="default"),
        "plan": Cell(mode_id="plan"),
        "accept-edits": Cell(mode_id="acceptEdits"),
        "bypass": ANSWERED,
        "yolo": ANSWERED,
    },
    "gemini": {
        "default": Cell(mode_id="default"),
        "plan": Cell(mode_id="plan"),
        "accept-edits": Cell(mode_id="autoEdit"),
        "bypass": ANSWERED,
        "yolo": Cell(mode_id="yolo"),
    },
    "opencode": {
        "default": Cell(mode_id="build", permission=ASK),
        "plan": Cell(mode_id="plan", permission={**ASK, "edit": "deny"}),
        "accept-edits": Cell(mode_id="build", permission={**ASK, "edit": "allow"}),
        "bypass": Cell(mode_id="build", permission=ALLOW),
        "yolo": Cell(mode_id="build", permission=ALLOW),
    },
    "": dict.fromkeys(MODES, Cell(we_answer=True)),
}
CELLS = [
    pytest.param(profile, mode, cell, id=f"{profile or 'another'}-{mode}")
    for profile in TABLE
    for mode, cell in TABLE[profile].items()
]


def told(mode: AgentMode) -> Cell:
    """Return what an agent is told, from what is set, passed and written."""
    written = tomllib.loads(mode.merge_files({}).get(".codex/config.toml", ""))
    permission: dict[str, Any] = json.loads(mode.variables.get("OPENCODE_PERMISSION", "{}"))
    return Cell(
        mode_id=mode.mode_id,
        collaboration=mode.options.get("collaboration_mode", ""),
        initial=mode.variables.get("INITIAL_AGENT_MODE", ""),
        permission={name: permission[name] for name in ASK if name in permission},
        network_profile=written
        == {
            "approval_policy": "never",
            "default_permissions": "ambient",
            "permissions": {"ambient": {"extends": ":workspace", "network": {"enabled": True}}},
        },
        we_answer=mode.is_answered,
    )


@pytest.mark.parametrize(("profile", "mode", "cell"), CELLS)
def test_permission_table_from_our_mode_to_the_agents(profile: str, mode: Mode, cell: Cell) -> None:
    assert told(agent_mode(profile, mode)) == cell


@pytest.mark.parametrize(("profile", "mode", "cell"), CELLS)
def test_permission_table_from_the_agents_mode_to_ours(profile: str, mode: Mode, cell: Cell) -> None:
    options = {"collaboration_mode": cell.collaboration} if cell.collaboration else {}
    found = mode_of(profile, cell.mode_id, options)
    same = [
        other
        for other in MODES
        if (TABLE[profile][other].mode_id, TABLE[profile][other].collaboration) == (cell.mode_id, cell.collaboration)
    ]
    if not profile:
        assert found is None
        return
    assert found == same[0], "the narrowest of those that the agent cannot tell apart"
    assert mode_of(profile, cell.mode_id, options, current=mode) == mode
    assert not is_widened(profile, mode, cell.mode_id, options)


WITHOUT_ASKING: dict[Mode, set[str]] = {
    "default": {"read", "search"},
    "plan": {"read", "search"},
    "accept-edits": {"read", "search", "edit"},
    "bypass": set(KINDS),
    "yolo": set(KINDS),
}
LIMITS: dict[Mode, SandboxLimit] = {
    "default": SandboxLimit(workspace="write", has_network=False),
    "plan": SandboxLimit(workspace="read", has_network=False),
    "accept-edits": SandboxLimit(workspace="write", has_network=False),
    "bypass": SandboxLimit(workspace="write", has_network=True),
    "yolo": SandboxLimit(workspace="all", has_network=True),
}


@pytest.mark.parametrize("mode", MODES)
def test_permission_table_of_what_needs_no_question(mode: Mode) -> None:
    assert {kind for kind in KINDS if answers_without_asking(mode, kind)} == WITHOUT_ASKING[mode]
    assert not answers_without_asking(mode, "switch_mode")


@pytest.mark.parametrize("mode", MODES)
def test_permission_table_of_what_the_sandbox_allows(mode: Mode) -> None:
    assert sandbox_limit(mode) == LIMITS[mode]


def as_words(mode: Mode) -> list[str]:
    """Return a row of the table for people."""
    kinds = {"read": "read", "read edit": "read, edit", "all": "everything"}
    allowed = "all" if WITHOUT_ASKING[mode] == set(KINDS) else "read edit" if "edit" in WITHOUT_ASKING[mode] else "read"
    limit = sandbox_limit(mode)
    files = {"read": "nothing writable", "write": "workspace", "all": "no sandbox"}[limit.workspace]
    network = "" if limit.workspace == "all" else ", network" if limit.has_network else ", no network"
    cells = [as_cell(told(agent_mode(profile, mode))) for profile in ("codex", "claude-acp", "gemini", "opencode", "")]
    return [f"`{mode}`", kinds[allowed], f"{files}{network}", *cells]


def as_cell(cell: Cell) -> str:
    if cell.we_answer:
        return "asks, we answer"
    if cell.permission == ALLOW:
        return "all allow"
    words = [f"`{cell.mode_id}`"]
    if cell.collaboration == "plan":
        words.append("collaboration `plan`")
    if cell.permission:
        words.append(
            ", ".join(f"{name} {action}" for name, action in cell.permission.items() if name != "*") + ", others ask"
        )
    return ", ".join(words)


def test_permission_table_is_the_one_of_the_documentation(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    header = [
        "mode",
        "without asking",
        "the sandbox allows",
        "Codex",
        "Claude Code",
        "Gemini",
        "OpenCode",
        "another agent",
    ]
    modes: tuple[Mode, ...] = ("default", "plan", "accept-edits", "bypass", "yolo")
    table = markdown_table(header, [as_words(mode) for mode in modes])
    if "permission_table" in request.config.getoption("keyword"):
        with capsys.disabled():
            print(f"\n{table}")
    assert read_table(PAGE, "modes") == table


def test_every_profile_has_a_column() -> None:
    assert TABLE.keys() - {""} == PROFILES.keys()


def test_modes_are_ordered_and_a_wider_one_never_takes_something_away() -> None:
    for narrow, wide in pairwise(MODES):
        assert is_wider(wide, narrow)
        assert not is_wider(narrow, wide)
        assert not is_wider(wide, wide)
        assert WITHOUT_ASKING[narrow] <= WITHOUT_ASKING[wide]
        access = ("read", "write", "all")
        assert access.index(sandbox_limit(narrow).workspace) <= access.index(sandbox_limit(wide).workspace)
        assert sandbox_limit(narrow).has_network <= sandbox_limit(wide).has_network


@pytest.mark.parametrize(
    ("profile", "mode", "agent_mode_id"),
    [
        ("codex", "default", "workspace-write"),
        ("codex", "default", "agent-full-access"),
        ("codex", "yolo", "agent"),
        ("codex", "yolo", "permission-profile:other"),
        ("claude-acp", "plan", "default"),
        ("claude-acp", "default", "acceptEdits"),
        ("claude-acp", "bypass", "bypassPermissions"),
        ("claude-acp", "yolo", "auto"),
        ("gemini", "bypass", "yolo"),
        ("gemini", "default", "autoEdit"),
        ("opencode", "plan", "build"),
        ("opencode", "default", "general"),
    ],
)
def test_an_agent_in_a_wider_or_unknown_mode_must_be_set_back(profile: str, mode: Mode, agent_mode_id: str) -> None:
    assert is_widened(profile, mode, agent_mode_id)


def test_codex_is_set_back_if_it_leaves_the_plan() -> None:
    assert is_widened("codex", "plan", "read-only", {"collaboration_mode": "default"})
    assert not is_widened("codex", "default", "read-only", {"collaboration_mode": "plan"})


@pytest.mark.parametrize(
    ("profile", "mode", "agent_mode_id"),
    [("claude-acp", "bypass", "acceptEdits"), ("gemini", "accept-edits", "plan"), ("opencode", "yolo", "plan")],
)
def test_an_agent_may_take_a_narrower_mode(profile: str, mode: Mode, agent_mode_id: str) -> None:
    assert not is_widened(profile, mode, agent_mode_id)


def test_nothing_is_known_about_the_modes_of_another_agent() -> None:
    assert not is_widened("", "default", "anything")
    assert mode_of("", "default") is None


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", MODES)
def test_with_rules_to_apply_an_agent_asks_and_we_answer_what_its_mode_allows(profile: str, mode: Mode) -> None:
    asking = agent_mode(profile, mode, asks=True)
    if mode in ("plan", "default"):
        assert asking == agent_mode(profile, mode)
    else:
        assert (asking.mode_id, asking.variables, asking.is_answered) == (
            agent_mode(profile, "default").mode_id,
            agent_mode(profile, "default").variables,
            True,
        )


def test_opencode_reads_without_asking_but_not_environment_files() -> None:
    permission = json.loads(agent_mode("opencode", "default").variables["OPENCODE_PERMISSION"])
    assert next(iter(permission)) == "*", "a later entry wins"
    assert permission["read"] == {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"}
    assert [name for name, action in permission.items() if action == "allow"] == [
        "glob",
        "grep",
        "list",
        "lsp",
        "skill",
        "todoread",
        "todowrite",
    ]


def test_the_part_of_a_mode_leaves_the_rest_of_a_file_as_it_is() -> None:
    files = {".codex/config.toml": 'model = "m"\n\n[features]\nplugins = false\n', "other": "x"}
    merged = agent_mode("codex", "bypass").merge_files(files)
    assert merged["other"] == "x"
    assert tomllib.loads(merged[".codex/config.toml"]) == {
        "model": "m",
        "approval_policy": "never",
        "default_permissions": "ambient",
        "features": {"plugins": False},
        "permissions": {"ambient": {"extends": ":workspace", "network": {"enabled": True}}},
    }
    assert agent_mode("codex", "yolo").merge_files(files) == files


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("default", "default"),
        ("PLAN", "plan"),
        ("accept-edits", "accept-edits"),
        ("accept_edits", "accept-edits"),
        ("acceptEdits", "accept-edits"),
        ("AcceptEdits", "accept-edits"),
        ("bypassPermissions", "bypass"),
        ("bypass_permissions", "bypass"),
        ("Yolo", "yolo"),
        ("danger-full-access", "yolo"),
    ],
)
def test_a_mode_may_be_written_in_any_case_and_with_any_dash(text: str, mode: Mode) -> None:
    assert parse_mode(text) == mode


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        ("accept-edit", "accept-edits?"),
        ("defualt", "default?"),
        ("Plans", "plan?"),
        ("x", "accept-edits"),
        (5, "accept-edits"),
        (None, "yolo"),
    ],
)
def test_an_unknown_mode_is_refused_with_the_nearest_known_one(value: object, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mode(value)
    assert nearest in caught.value.message
