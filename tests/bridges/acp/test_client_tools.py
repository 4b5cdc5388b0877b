"""Which of the client's tools an agent gets, under which names, and which of its calls are theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.bridges.acp.client_tools import (
    RELAY_PROGRAM,
    ToolRelay,
    build_toolbox,
    is_reserved_server,
    offered_name,
    offered_tools,
)
from ambient_runner.bridges.toolkit.pending_calls import PendingCalls
from ambient_runner.errors import BridgeError
from ambient_runner.protocol.events import Tool

PICK, TITLED = Tool(name="pick_number", description="ask for a number"), Tool(name="Pick a number!", description="")
LONG = "a_tool_with_a_very_long_name_that_no_provider_would_accept_as_it_is"


def named(*names: str) -> list[Tool]:
    return [Tool(name=name, description="") for name in names]


def relay_of(*tools: Tool, directory: Path = Path("/nowhere")) -> ToolRelay:
    return ToolRelay(tools, PendingCalls(lambda call: None), directory)


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("pick_number", "pick_number"),
        ("Pick a number!", "Pick_a_number_"),
        ("größe", "gr__e"),
        (LONG, "a_tool_with_a_very_long_name_that_no_pr_ac0ddefc"),
    ],
)
def test_a_tool_is_offered_under_a_name_that_every_agent_accepts(name: str, offered: str) -> None:
    assert (offered_name(name), offered_name(offered)) == (offered, offered)


def test_long_names_that_begin_alike_stay_different() -> None:
    assert offered_name(f"{LONG}_1") != offered_name(f"{LONG}_2")


@pytest.mark.parametrize(
    ("names", "native", "offered", "taken"),
    [
        (["paint", "look"], [], ["paint", "look"], ()),
        (["paint", "Bash"], ["Bash"], ["paint"], ("Bash",)),
        (["paint", "search", "execute"], [], ["paint"], ("search", "execute")),
        (["paint", "a b", "a_b"], [], ["paint"], ("a b", "a_b")),
        (["paint", "mcp__github__push", "mcp.github.push"], [], ["paint"], ("mcp__github__push", "mcp.github.push")),
        (["paint", ""], [], ["paint"], ("",)),
    ],
)
def test_a_tool_whose_name_is_taken_is_left_out_and_named(
    names: list[str], native: list[str], offered: list[str], taken: tuple[str, ...]
) -> None:
    toolbox = build_toolbox(named(*names), native)
    assert (list(toolbox.client_tools), toolbox.taken_names) == (offered, taken)
    assert [tool.name for tool in offered_tools(named(*names), native)] == offered


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("ambient", True),
        ("Ambient", True),
        ("ambient x", True),
        ("ambient_x", True),
        ("ambient-x", False),
        ("web", False),
    ],
)
def test_no_other_server_may_have_a_name_that_makes_its_tools_look_like_the_clients(name: str, reserved: bool) -> None:
    assert is_reserved_server(name) == reserved


def test_an_agent_starts_the_relay_without_packages_or_variables(tmp_path: Path) -> None:
    relay = relay_of(PICK, directory=tmp_path)
    assert relay.mcp_server() == {
        "name": "ambient",
        "command": sys.executable,
        "args": ["-I", "-S", str(RELAY_PROGRAM), str(tmp_path / "tools.sock")],
        "env": [],
    }


async def test_a_directory_whose_path_is_too_long_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BridgeError) as refused:
        await relay_of(PICK, directory=tmp_path / ("x" * 100)).start()
    assert "TMPDIR" in str(refused.value)


CLAUDE_META: dict[str, Any] = {"claudeCode": {"toolName": "mcp__ambient__pick_number"}}
CLAUDE_CALL: dict[str, Any] = {
    "sessionUpdate": "tool_call",
    "toolCallId": "toolu_1",
    "name": "mcp__ambient__pick_number",
    "title": "mcp__ambient__pick_number",
    "kind": "other",
    "status": "pending",
    "rawInput": {},
    "content": [],
    "_meta": CLAUDE_META,
}
CLAUDE_UPDATE: dict[str, Any] = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": "toolu_1",
    "rawInput": {"max": 10},
    "_meta": CLAUDE_META,
}
CLAUDE_REQUEST: dict[str, Any] = {
    "toolCallId": "toolu_1",
    "name": "mcp__ambient__pick_number",
    "title": "mcp__ambient__pick_number",
    "kind": "other",
    "status": "pending",
    "rawInput": {"max": 10},
    "_meta": {"claudeCode": {**CLAUDE_META["claudeCode"], "mcpServer": {"name": "ambient", "source": "dynamic"}}},
}
CODEX_CALL: dict[str, Any] = {
    "sessionUpdate": "tool_call",
    "toolCallId": "call_1",
    "title": "mcp.ambient.pick_number",
    "kind": "execute",
    "status": "in_progress",
    "rawInput": {"server": "ambient", "tool": "pick_number", "arguments": {"max": 10}},
    "_meta": {"is_mcp_tool_call": True},
}
CODEX_REQUEST: dict[str, Any] = {"toolCallId": "call_1", "kind": "execute", "status": "pending"}
CODEX_END: dict[str, Any] = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": "call_1",
    "status": "completed",
    "rawOutput": {},
}
GEMINI_ID = "mcp_ambient_pick_number__mcp_ambient_pick_number_1794852627912_0"
GEMINI_REQUEST: dict[str, Any] = {
    "toolCallId": GEMINI_ID,
    "title": "pick_number (ambient MCP Server)",
    "kind": "other",
    "status": "pending",
    "content": [{"type": "content", "content": {"type": "text", "text": '{"max":10}'}}],
    "locations": [],
}
GEMINI_CALL: dict[str, Any] = {**GEMINI_REQUEST, "sessionUpdate": "tool_call", "status": "in_progress"}
GEMINI_END: dict[str, Any] = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": GEMINI_ID,
    "status": "failed",
    "kind": "other",
}
OPENCODE_CALL: dict[str, Any] = {
    "sessionUpdate": "tool_call",
    "toolCallId": "call_1",
    "title": "ambient_pick_number",
    "kind": "other",
    "status": "pending",
    "locations": [],
    "rawInput": {},
}
OPENCODE_UPDATE: dict[str, Any] = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": "call_1",
    "title": "ambient_pick_number",
    "kind": "other",
    "status": "in_progress",
    "rawInput": {"max": 10},
}
OPENCODE_REQUEST: dict[str, Any] = {
    "toolCallId": "call_1",
    "title": "ambient_pick_number",
    "kind": "other",
    "rawInput": {},
}
OPENCODE_END: dict[str, Any] = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": "call_1",
    "status": "completed",
    "rawOutput": {},
}


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param([CLAUDE_CALL, CLAUDE_UPDATE, CLAUDE_REQUEST], id="claude"),
        pytest.param([CODEX_CALL, CODEX_REQUEST, CODEX_END], id="codex"),
        pytest.param([GEMINI_REQUEST, GEMINI_END], id="gemini asks"),
        pytest.param([GEMINI_CALL, GEMINI_END], id="gemini does not ask"),
        pytest.param([OPENCODE_CALL, OPENCODE_UPDATE, OPENCODE_REQUEST, OPENCODE_END], id="opencode"),
    ],
)
def test_the_calls_of_the_clients_tools_are_recognised_as_each_agent_reports_them(
    reports: list[dict[str, Any]],
) -> None:
    relay = relay_of(PICK)
    assert [relay.own_tool(report) for report in reports] == [PICK] * len(reports)


def test_a_call_is_recognised_by_the_name_under_which_the_tool_is_offered() -> None:
    call: dict[str, Any] = {**CLAUDE_CALL, "name": "mcp__ambient__Pick_a_number_", "_meta": {}}
    assert relay_of(TITLED).own_tool(call) == TITLED


NOTHING: dict[str, Any] = {}
MALFORMED: dict[str, Any] = {"toolCallId": [], "title": 5, "rawInput": [], "_meta": [], "name": None}
SHELL: dict[str, Any] = {"kind": "execute", "rawInput": {"command": "ambient_pick_number"}, "status": "pending"}


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param([{**CLAUDE_CALL, "name": "Bash"}], id="a title is chosen by the model"),
        pytest.param([{**CLAUDE_CALL, "name": "mcp__web__pick_number"}], id="name and meta differ"),
        pytest.param([{**CLAUDE_CALL, "name": "mcp__ambient__other", "_meta": NOTHING}], id="no such tool"),
        pytest.param(
            [{**CLAUDE_REQUEST, "_meta": {"claudeCode": {"mcpServer": {"name": "ambient__pick"}}}}], id="other server"
        ),
        pytest.param([{**CODEX_CALL, "_meta": NOTHING}], id="not marked as MCP"),
        pytest.param([{**CODEX_CALL, "rawInput": {"command": "mcp.ambient.pick_number"}}], id="a command like a title"),
        pytest.param([{**CODEX_CALL, "rawInput": {"server": "web", "tool": "pick_number"}}], id="another server"),
        pytest.param([CODEX_REQUEST], id="a request about an unknown call"),
        pytest.param([{**GEMINI_REQUEST, "kind": "execute"}], id="a command and its description"),
        pytest.param([{**GEMINI_REQUEST, "toolCallId": "run_shell_command__1"}], id="the id of another function"),
        pytest.param([OPENCODE_UPDATE], id="a title without its first report"),
        pytest.param([{**OPENCODE_CALL, **SHELL}], id="a first report of another kind"),
        pytest.param([{**OPENCODE_CALL, **SHELL, "title": "bash"}, {**OPENCODE_UPDATE, **SHELL}], id="a later title"),
        pytest.param([{**OPENCODE_CALL, "title": "bash"}, OPENCODE_REQUEST], id="a request with such a title"),
        pytest.param([NOTHING], id="nothing"),
        pytest.param([MALFORMED], id="malformed"),
    ],
)
def test_what_a_model_or_another_server_can_choose_makes_no_call_the_clients(reports: list[dict[str, Any]]) -> None:
    relay = relay_of(PICK)
    assert [relay.own_tool(report) for report in reports] == [None] * len(reports)


@pytest.mark.parametrize(
    "request_",
    [
        {**CODEX_REQUEST, "title": "rm -rf .", "rawInput": {"command": "rm -rf ."}},
        {**CODEX_REQUEST, "rawInput": {"command": "rm -rf ."}},
        {**CODEX_REQUEST, "name": "exec_command"},
        {**CODEX_REQUEST, "kind": "edit"},
    ],
    ids=["title", "input", "name", "kind"],
)
def test_a_request_that_contradicts_its_call_is_not_about_the_clients_tool(request_: dict[str, Any]) -> None:
    relay = relay_of(PICK)
    relay.own_tool(CODEX_CALL)
    assert relay.own_tool(request_) is None


@pytest.mark.parametrize("report", [CLAUDE_CALL, CODEX_CALL, GEMINI_CALL, OPENCODE_CALL], ids=lambda one: one["title"])
def test_a_report_may_be_passed_again(report: dict[str, Any]) -> None:
    relay = relay_of(PICK)
    assert [relay.own_tool(report) for _ in range(3)] == [PICK] * 3


def test_a_request_before_the_first_report_does_not_hide_the_tool() -> None:
    relay = relay_of(PICK)
    assert [relay.own_tool(report) for report in (OPENCODE_REQUEST, OPENCODE_CALL, OPENCODE_REQUEST)] == [
        None,
        PICK,
        PICK,
    ]


def test_a_call_of_another_tool_never_becomes_one_of_the_clients() -> None:
    """OpenCode asks about a directory with the title of the command, which the model has chosen."""
    relay = relay_of(PICK)
    assert relay.own_tool({**OPENCODE_CALL, "title": "bash", "kind": "execute"}) is None
    assert relay.own_tool(OPENCODE_REQUEST) is None
    assert relay.own_tool(OPENCODE_CALL) is None


def test_another_call_with_the_same_id_is_another_call() -> None:
    relay = relay_of(PICK)
    relay.own_tool(CODEX_CALL)
    relay.own_tool({**CODEX_CALL, "title": "ls", "rawInput": {"command": "ls"}, "_meta": NOTHING})
    assert relay.own_tool(CODEX_REQUEST) is None


def test_only_the_newest_calls_are_remembered() -> None:
    relay = relay_of(PICK)
    for number in range(1001):
        relay.own_tool({**CODEX_CALL, "toolCallId": f"call_{number}"})
    found = [relay.own_tool({**CODEX_REQUEST, "toolCallId": f"call_{number}"}) for number in (1, 1000, 0)]
    assert found == [PICK, PICK, None]
