"""Permission requests of each agent, as they were recorded, and what rules and modes may know from them."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.bridges.acp.modes import Mode
from ambient_runner.bridges.acp.permission_calls import is_allowed_by_mode, requested_call
from ambient_runner.bridges.toolkit.permission_rules import RequestedCall, decide
from ambient_runner.config import PermissionRule

CWD = "/ws"
STATUS = PermissionRule(command=("git", "status"), decide="allow")
DOCS = PermissionRule(path="docs", decide="allow")
EXECUTE = PermissionRule(kind="execute", decide="allow")


def claude(name: str, kind: str, raw: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "toolCallId": "toolu_1",
        "name": name,
        "status": "pending",
        "rawInput": raw,
        "title": "t",
        "kind": kind,
        **more,
    }


def codex(command: str | list[str], **raw: Any) -> dict[str, Any]:
    arguments = {"command": command, "cwd": CWD, **raw}
    return {
        "toolCallId": "call_1",
        "title": str(command),
        "rawInput": arguments,
        "kind": "execute",
        "status": "pending",
    }


def gemini(title: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "toolCallId": f"{more.pop('tool', 'run_shell_command')}__x_1_0",
        "title": title,
        "kind": kind,
        "content": [],
        "locations": [],
        **more,
    }


def opencode(title: str, kind: str, raw: dict[str, Any], *paths: str) -> dict[str, Any]:
    places = [{"path": path} for path in paths]
    return {
        "toolCallId": "call_1",
        "title": title,
        "kind": kind,
        "status": "pending",
        "locations": places,
        "rawInput": raw,
    }


CODEX_EDIT = {"toolCallId": "call_1", "title": "Edit files", "locations": [{"path": "/ws/docs/a"}], "kind": "edit"}
CODEX_MCP = {"toolCallId": "call_1", "kind": "execute", "status": "pending"}
CODEX_MCP_BEFORE = {"title": "mcp.web.pick", "rawInput": {"server": "web", "tool": "pick", "arguments": {"max": 1}}}


def call_of(tool_call: dict[str, Any], earlier: dict[str, Any] | None = None) -> RequestedCall:
    return requested_call(tool_call, agent="a", cwd=CWD, earlier=earlier)


def decision(rule: PermissionRule, tool_call: dict[str, Any], earlier: dict[str, Any] | None = None) -> str | None:
    found = decide([rule], call_of(tool_call, earlier))
    return found.behavior if found else None


@pytest.mark.parametrize(
    "tool_call",
    [
        claude("Bash", "execute", {"command": "git status", "description": "look"}),
        codex("git status"),
        codex(["git", "status"]),
        codex(["bash", "-lc", "git status"]),
        codex(["/bin/sh", "-c", "git status"]),
        opencode("git status", "execute", {"command": "git status"}),
    ],
)
def test_a_command_in_the_arguments_is_certain(tool_call: dict[str, Any]) -> None:
    assert decision(STATUS, tool_call) == "allow"


@pytest.mark.parametrize(
    "tool_call",
    [
        gemini("git status", "execute"),
        codex("git status", additionalPermissions={"network": {"enabled": True}}),
        codex("git status", url="http://example.com"),
        codex("git status", env={"GIT_PAGER": "rm"}),
        codex("git status", workdir="/elsewhere"),
        codex(["git", "status; rm x"]),
        codex(["git", "status", ""]),
        codex(["bash", "-lc", "git status; rm x"]),
        codex(["/tmp/bash", "-lc", "git status"]),
        codex(["bash", "-ilc", "git status"]),
        codex(["bash", "-lc", "git status", "x"]),
        {**codex("git status"), "rawInput": {"command": "git status", "cwd": "/elsewhere"}},
        {**codex("git status"), "rawInput": {"command": "git status", "cwd": 5}},
        claude("Bash", "execute", {"command": "git status", "dangerouslyDisableSandbox": True}),
        claude("Bash", "execute", {"command": {"a": 1}}),
        claude("Bash", "execute", {}),
        opencode("git status", "other", {"command": "git status"}),
    ],
)
def test_a_command_that_is_not_known_for_certain_is_never_allowed_by_its_words(tool_call: dict[str, Any]) -> None:
    assert decision(STATUS, tool_call) is None


def test_what_was_said_earlier_is_not_certain_but_may_deny() -> None:
    earlier = {"rawInput": {"command": "git status"}, "title": "git status", "kind": "execute", "name": "exec_command"}
    assert decision(STATUS, CODEX_MCP, earlier) is None
    assert decision(PermissionRule(command=("git",), decide="deny"), CODEX_MCP, earlier) == "deny"
    assert decision(PermissionRule(tool="exec_command", decide="allow"), CODEX_MCP, earlier) == "allow"


@pytest.mark.parametrize(
    ("tool_call", "expected"),
    [
        (
            claude("Write", "edit", {"file_path": "/ws/docs/a", "content": "x"}, locations=[{"path": "/ws/docs/a"}]),
            "allow",
        ),
        (claude("NotebookEdit", "edit", {"notebook_path": "docs/a", "new_source": "x"}), "allow"),
        (opencode("docs/a", "edit", {"filepath": "/ws/docs/a", "diff": "x"}, "/ws/docs/a"), "allow"),
        (opencode("docs/a", "edit", {"filepath": "/ws/docs/a", "diff": "x"}, "/etc/passwd"), None),
        (claude("Write", "edit", {"file_path": "/ws/docs/a", "target": "/etc/passwd"}), None),
        (claude("Write", "edit", {"file_path": "/ws/docs/a", "filePath": "/etc/passwd"}), None),
        (claude("Write", "edit", {"file_path": ["/ws/docs/a"]}), None),
        (
            claude("Edit", "edit", {"file_path": "/ws/docs/a"}, content=[{"type": "diff", "path": "/etc/passwd"}]),
            None,
        ),
        (claude("Bash", "execute", {"command": "touch docs/a"}, locations=[{"path": "/ws/docs/a"}]), None),
        (gemini("Writing to a", "edit", tool="write_file", locations=[{"path": "/ws/docs/a"}]), None),
        (CODEX_EDIT, None),
    ],
)
def test_a_path_is_certain_if_all_arguments_are_known(tool_call: dict[str, Any], expected: str | None) -> None:
    assert decision(DOCS, tool_call) == expected


@pytest.mark.parametrize(
    "tool_call",
    [
        CODEX_EDIT,
        gemini("Writing", "edit", locations=[{"path": "/ws/docs/a"}]),
        gemini("x", "edit", content=[{"path": "docs/a"}]),
    ],
)
def test_a_path_that_an_agent_mentions_is_enough_to_deny(tool_call: dict[str, Any]) -> None:
    assert decision(PermissionRule(path="docs", decide="deny"), tool_call) == "deny"
    assert decision(PermissionRule(path="src", decide="deny"), tool_call) is None


def test_the_title_of_a_command_is_enough_to_deny() -> None:
    assert decision(PermissionRule(command=("rm",), decide="deny"), gemini("ls && rm x", "execute")) == "deny"
    assert decision(PermissionRule(command=("rm",), decide="ask"), gemini("ls", "execute")) is None


def test_the_kind_is_known_of_every_agent() -> None:
    for tool_call in (
        claude("Bash", "execute", {"command": "ls"}),
        codex("ls"),
        gemini("ls", "execute"),
        opencode("ls", "execute", {}),
    ):
        assert decision(EXECUTE, tool_call) == "allow"


@pytest.mark.parametrize(
    ("tool_call", "earlier"),
    [
        (CODEX_MCP, None),
        (CODEX_MCP, CODEX_MCP_BEFORE),
        ({**CODEX_MCP, "name": "mcp__web__pick"}, None),
        (codex("ls", additionalPermissions={}, url="http://x"), None),
    ],
)
def test_a_call_that_is_more_than_a_command_is_not_allowed_as_one(
    tool_call: dict[str, Any], earlier: dict[str, Any] | None
) -> None:
    assert decision(EXECUTE, tool_call, earlier) is None
    assert decision(PermissionRule(kind="other", decide="allow"), tool_call, earlier) is None
    assert decision(PermissionRule(kind="execute", decide="deny"), tool_call, earlier) == "deny"


def test_arguments_that_look_like_an_mcp_call_widen_nothing() -> None:
    disguised = claude("", "execute", {"command": "rm x", "server": "web", "tool": "pick"})
    for kind in ("other", "read", "execute"):
        assert decision(PermissionRule(kind=kind, decide="allow"), disguised) is None
    assert decision(PermissionRule(tool="mcp__web__pick", decide="allow"), disguised) is None


def test_a_title_is_never_the_name_of_a_tool_that_is_allowed() -> None:
    rule = PermissionRule(tool="mcp__web__*", decide="allow")
    assert decision(rule, gemini("mcp__web__pick", "execute")) is None
    assert decision(rule, {**CODEX_MCP, "name": "mcp__web__pick"}) == "allow"
    assert decision(rule, {**CODEX_MCP, "_meta": {"claudeCode": {"toolName": "mcp__web__pick"}}}) == "allow"


@pytest.mark.parametrize(
    "rule", [PermissionRule(tool="run_shell_command", decide="deny"), PermissionRule(tool="run_*", decide="deny")]
)
def test_a_tool_of_gemini_is_denied_by_the_name_in_its_ids(rule: PermissionRule) -> None:
    assert decision(rule, gemini("ls", "execute")) == "deny"


def test_a_tool_of_codex_on_an_mcp_server_is_denied_by_its_name() -> None:
    assert decision(PermissionRule(tool="mcp__web__pick", decide="deny"), CODEX_MCP, CODEX_MCP_BEFORE) == "deny"


QUESTIONS = [
    claude("ExitPlanMode", "switch_mode", {"plan": "x"}),
    claude("ExitPlanMode", "other", {"plan": "x"}),
    claude("AskUserQuestion", "other", {"questions": []}),
    gemini("Plan", "other", tool="exit_plan_mode"),
    gemini("Ask", "other", tool="ask_user"),
    opencode("question", "other", {}),
    opencode("plan_exit", "other", {}),
    {"toolCallId": "1", "name": "request_permissions", "kind": "other", "rawInput": {"permissions": {}}},
]


@pytest.mark.parametrize("tool_call", QUESTIONS)
@pytest.mark.parametrize("mode", ["default", "plan", "accept-edits", "bypass", "yolo"])
def test_a_question_of_an_agent_is_answered_by_no_rule_and_no_mode(tool_call: dict[str, Any], mode: Mode) -> None:
    for behavior in ("allow", "deny"):
        assert decide([PermissionRule(tool="*", decide=behavior)], call_of(tool_call)) is None  # type: ignore[arg-type]
    assert not is_allowed_by_mode(mode, call_of(tool_call))


INSIDE = claude("Read", "read", {"file_path": "/ws/a"})
OUTSIDE = claude("Read", "read", {"file_path": "/home/other/.ssh/id_rsa"})
EDIT = claude("Edit", "edit", {"file_path": "a", "old_string": "x", "new_string": "y"})
EDIT_OUTSIDE = claude("Edit", "edit", {"file_path": "../a", "old_string": "x", "new_string": "y"})
COMMAND = claude("Bash", "execute", {"command": "ls"})


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        ("plan", [INSIDE]),
        ("default", [INSIDE]),
        ("accept-edits", [INSIDE, EDIT]),
        ("bypass", [INSIDE, OUTSIDE, EDIT, EDIT_OUTSIDE, COMMAND]),
        ("yolo", [INSIDE, OUTSIDE, EDIT, EDIT_OUTSIDE, COMMAND]),
    ],
)
def test_a_mode_allows_its_kinds_of_calls_and_up_to_edits_only_in_the_working_directory(
    mode: Mode, allowed: list[dict[str, Any]]
) -> None:
    calls = [INSIDE, OUTSIDE, EDIT, EDIT_OUTSIDE, COMMAND]
    assert [call for call in calls if is_allowed_by_mode(mode, call_of(call))] == allowed


@pytest.mark.parametrize(("mode", "allowed"), [("accept-edits", False), ("bypass", False), ("yolo", True)])
def test_only_yolo_allows_a_wider_sandbox(mode: Mode, allowed: bool) -> None:
    assert (
        is_allowed_by_mode(mode, call_of(codex("ls", additionalPermissions={"network": {"enabled": True}}))) == allowed
    )


@pytest.mark.parametrize("tool_call", [CODEX_EDIT, gemini("Writing", "edit", locations=[{"path": "/ws/a"}])])
def test_an_edit_of_files_that_are_not_certain_needs_a_person(tool_call: dict[str, Any]) -> None:
    assert not is_allowed_by_mode("accept-edits", call_of(tool_call))


@pytest.mark.parametrize(
    "tool_call",
    [
        {},
        {"kind": 5, "title": [], "rawInput": "x", "locations": "x", "content": 5, "name": {}, "_meta": []},
        {"locations": [None, {"path": 5}], "content": [[]], "rawInput": {"command": [1], "file_path": None}},
        {"kind": "execute", "rawInput": {"command": []}},
    ],
)
def test_a_malformed_request_is_neither_an_error_nor_allowed(tool_call: dict[str, Any]) -> None:
    call = call_of(tool_call, {"rawInput": [], "title": 5})
    assert decide([STATUS, DOCS], call) is None
    assert not is_allowed_by_mode("accept-edits", call)
