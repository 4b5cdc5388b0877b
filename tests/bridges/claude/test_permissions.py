"""Permission rules for Claude: they answer its requests, and check what it would do without asking."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from ambient_runner.bridges.claude.permissions import DENIED_BY_RULE, requested_call
from ambient_runner.bridges.toolkit.permission_rules import decide
from ambient_runner.config import PermissionRule
from tests.bridges.claude.test_text import frame, spoken
from tests.bridges.claude.test_tools import select_words
from tests.bridges.claude.world import claude, yes

TOUCH = ("touch", "made.txt")


def rules(*given: PermissionRule) -> dict[str, Any]:
    return {"permissions": given}


def is_denied(words: list[str], call_id: str) -> bool:
    """Return True if the result of the call is an error with our sentence. The CLI may write something before it."""
    results = [word for word in select_words(words, "CR") if word.startswith(f"CR {call_id} ")]
    return len(results) == 1 and f'{DENIED_BY_RULE}" error' in results[0]


async def test_a_rule_allows_a_call_without_asking_and_the_log_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rule = PermissionRule(tool="Bash", command=TOUCH, agent="agent", decide="allow")
    async with claude(tmp_path, permission_mode="default", context=rules(rule)) as world:
        words = await world.thread().say("otter touches")
    assert (spoken(words), words[-1]) == ("Done.", "RF success")
    assert (tmp_path / "work" / "t" / "made.txt").exists()
    logged = [one.getMessage() for one in caplog.records if one.name == "ambient_runner.bridges.claude.permissions"]
    assert len(logged) == 1
    assert all(part in logged[0] for part in ("Thread t:", "Bash", str(rule)))


@pytest.mark.parametrize(
    "rule",
    [
        PermissionRule(tool="Bash", command=("touch",), decide="allow"),
        PermissionRule(tool="Bash", command=TOUCH, agent="another", decide="allow"),
        PermissionRule(tool="Bash", path=".", decide="allow"),
        PermissionRule(tool="Bash", command=TOUCH, decide="ask"),
    ],
)
async def test_a_call_that_no_rule_allows_is_asked_about(tmp_path: Path, rule: PermissionRule) -> None:
    async with claude(tmp_path, permission_mode="default", context=rules(rule)) as world:
        thread = world.thread()
        words = await thread.say("otter touches")
        assert words[-1] == "RF asks tool_call"
        assert not (tmp_path / "work" / "t" / "made.txt").exists()
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
    assert answered[-1] == "RF success"
    assert (tmp_path / "work" / "t" / "made.txt").exists()


async def test_a28_a_command_with_a_redirection_is_asked_about_whatever_rules_allow(tmp_path: Path) -> None:
    allowed = [PermissionRule(command=("curl", "--version", *more), decide="allow") for more in ((), ("*",))]
    async with claude(tmp_path, context=rules(*allowed)) as world:
        words = await world.thread().say("lynx runs")
    assert words[-1] == "RF asks tool_call"


async def test_a_rule_denies_a_call_and_claude_reads_why(tmp_path: Path) -> None:
    denied = PermissionRule(kind="fetch", decide="deny")
    async with claude(tmp_path, context=rules(denied, PermissionRule(tool="WebFetch", decide="allow"))) as world:
        words = await world.thread().say("lynx fetches")
    assert frame(words) == ["CS", "CE", "CR", "TS", "TE", "MS", "RF"]
    assert is_denied(words, "call_fetch")
    assert words[-1] == "RF success"


async def test_a_rule_that_asks_is_applied_even_if_claude_bypasses_all_permissions(tmp_path: Path) -> None:
    given = {"permission_mode": "bypassPermissions", "env": {"IS_SANDBOX": "1"}}
    async with claude(tmp_path, **given, context=rules(PermissionRule(command=("touch",), decide="ask"))) as world:
        words = await world.thread().say("otter touches")
    assert words[-1] == "RF asks tool_call"


@pytest.mark.parametrize(
    ("words", "rule", "result"),
    [
        ("otter touches", PermissionRule(command=("touch",), decide="deny"), "call_touch"),
        ("otter looks", PermissionRule(tool="bash", decide="deny"), "call_look"),
        ("otter reads", PermissionRule(path="note.txt", decide="deny"), "call_read"),
    ],
)
async def test_a_rule_denies_also_what_claude_does_without_asking(
    tmp_path: Path, words: str, rule: PermissionRule, result: str
) -> None:
    async with claude(tmp_path, context=rules(rule)) as world:
        seen = await world.thread().say(words)
    assert is_denied(seen, result)
    assert not (tmp_path / "work" / "t" / "made.txt").exists()


async def test_a_rule_asks_also_about_what_claude_does_without_asking(tmp_path: Path) -> None:
    async with claude(tmp_path, context=rules(PermissionRule(path="note.txt", decide="ask"))) as world:
        (tmp_path / "work" / "t").mkdir(parents=True)
        (tmp_path / "work" / "t" / "note.txt").write_text("tulip")
        thread = world.thread()
        assert (await thread.say("otter reads"))[-1] == "RF asks tool_call"
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
    assert "tulip" in select_words(answered, "CR")[0]


@pytest.mark.parametrize(("words", "name"), [("otter plants", "opencode.json"), ("otter copies", ".envrc")])
async def test_accepted_edits_are_none_of_files_that_make_programs_run_commands(
    tmp_path: Path, words: str, name: str
) -> None:
    work = tmp_path / "work" / "t"
    work.mkdir(parents=True)
    (work / "note.txt").write_text("tulip")
    async with claude(tmp_path, permission_mode="acceptEdits") as world:
        thread = world.thread()
        assert (await thread.say("otter sows"))[-1] == "RF success"
        assert (await thread.say(words))[-1] == "RF asks tool_call"
        assert not (work / name).exists()
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
    assert answered[-1] == "RF success"
    assert (work / "plain.json").exists()
    assert (work / name).exists()


@pytest.mark.parametrize(
    "given",
    [
        {"context": rules(PermissionRule(kind="edit", path="opencode.json", decide="allow"))},
        {"allowed_tools": ["Write"]},
        {"permission_mode": "bypassPermissions", "env": {"IS_SANDBOX": "1"}},
    ],
    ids=["rule", "allowed tool", "bypass"],
)
async def test_the_edit_of_such_a_file_may_be_allowed(tmp_path: Path, given: dict[str, Any]) -> None:
    async with claude(tmp_path, **given) as world:
        words = await world.thread().say("otter plants")
    assert words[-1] == "RF success"
    assert (tmp_path / "work" / "t" / "opencode.json").exists()


async def test_a_rule_also_checks_the_calls_of_a_subagent(tmp_path: Path) -> None:
    async with claude(tmp_path, context=rules(PermissionRule(kind="execute", decide="deny"))) as world:
        words = await world.thread().say("otter delegates")
    assert is_denied(words, "call_inner")


@pytest.mark.parametrize("behavior", ["allow", "ask", "deny"])
async def test_a_question_of_claude_is_never_answered_by_a_rule(tmp_path: Path, behavior: Any) -> None:
    given = rules(PermissionRule(tool="*", decide=behavior), PermissionRule(tool="AskUserQuestion", decide=behavior))
    async with claude(tmp_path, context=given) as world:
        thread = world.thread()
        assert (await thread.say("lynx wonders"))[-1] == "RF asks input_required"
        answered = await thread.resume(yes(thread.interrupts[0], {"answers": {"Which colour?": "Blue"}}))
    assert spoken(answered) == "Thanks."


async def test_hooks_of_the_options_stay_beside_the_rules(tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(call: Any, call_id: str | None, context: Any) -> Any:
        seen.append(call["tool_name"])
        return {}

    options = ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(hooks=[note])]})
    rule = PermissionRule(command=("touch",), decide="deny")
    async with claude(tmp_path, options=options, context=rules(rule)) as world:
        words = await world.thread().say("otter touches")
    assert seen == ["Bash"]
    assert is_denied(words, "call_touch")


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("Bash", {"command": "ls", "description": "x", "timeout": 5}, PermissionRule(command=("ls",), decide="allow")),
        ("Write", {"file_path": "/ws/a", "content": "x"}, PermissionRule(path=".", kind="edit", decide="allow")),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}, PermissionRule(path=".", decide="allow")),
        ("NotebookEdit", {"notebook_path": "/ws/a", "new_source": "x"}, PermissionRule(path="a", decide="allow")),
        ("Read", {"file_path": "/ws/a", "limit": 5}, PermissionRule(path=".", kind="read", decide="allow")),
        ("WebFetch", {"url": "http://x"}, PermissionRule(kind="fetch", decide="allow")),
        ("mcp__web__pick", {}, PermissionRule(tool="mcp__web__*", decide="allow")),
        ("mcp__ambient__paint", {}, PermissionRule(tool="paint", decide="deny")),
    ],
)
def test_the_tools_of_the_cli_are_known(tool: str, arguments: dict[str, Any], rule: PermissionRule) -> None:
    found = decide([rule], requested_call(tool, arguments, agent="a", cwd="/ws"))
    assert found is not None


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, PermissionRule(tool="Bash", decide="allow")),
        ("Bash", {"command": "ls", "surprise": 1}, PermissionRule(command=("ls",), decide="allow")),
        ("Write", {"file_path": "/ws/../etc/passwd", "content": "x"}, PermissionRule(path=".", decide="allow")),
        ("Write", {"file_path": "~/x", "content": "x"}, PermissionRule(path=".", decide="allow")),
        ("Write", {"content": "x"}, PermissionRule(path=".", decide="allow")),
        ("mcp__fs__write", {"file_path": "/ws/a"}, PermissionRule(path=".", decide="allow")),
        ("Grep", {"pattern": "x", "path": "/ws"}, PermissionRule(path=".", decide="allow")),
        ("ExitPlanMode", {"plan": "x"}, PermissionRule(tool="ExitPlanMode", decide="allow")),
    ],
)
def test_what_is_not_known_for_certain_is_not_allowed(
    tool: str, arguments: dict[str, Any], rule: PermissionRule
) -> None:
    assert decide([rule], requested_call(tool, arguments, agent="a", cwd="/ws")) is None
