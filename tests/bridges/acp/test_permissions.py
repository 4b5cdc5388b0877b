"""Permission requests that rules and modes answer, those that only a person may answer, and agents that leave their mode."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.config.permission_rules import PermissionRule
from tests.bridges.acp.words import custom_values, select_words, spoken
from tests.bridges.acp.world import World, fake_command, serve
from tests.bridges.claude.world import no, yes

PROFILES = {"claude-acp": "claude", "codex": "codex", "gemini": "gemini"}
"""The profiles whose agents have modes of a session, and the style of the fake agent for each."""
WIDER = {"claude-acp": "acceptEdits", "codex": "agent-full-access", "gemini": "yolo"}


def _bridge(tmp_path: Path, profile: str, **settings: Any) -> ACPBridge:
    """Return a bridge to the fake agent that behaves like the agent of the profile."""
    options = {
        "style": PROFILES[profile],
        "journal": str(tmp_path / "journal.jsonl"),
        "sessions": str(tmp_path / "sessions"),
    }
    return ACPBridge(profile, command=fake_command(**options), sandbox="off", home="user", **settings)


def _set_modes(world: World) -> list[str]:
    return [params["modeId"] for params in world.received("session/set_mode")]


@pytest.mark.parametrize("decide", ["allow", "deny"])
async def test_a_rule_answers_and_the_thread_has_an_event(tmp_path: Path, decide: Any) -> None:
    rule = PermissionRule(tool="Bash", command=("touch", "a.txt"), decide=decide)
    async with serve(tmp_path, context={"permissions": (rule,)}) as world:
        thread = world.thread()
        words = await thread.say("ask touch a.txt")
        call = select_words(words, "CS")[0].split()[1]
        assert (await thread.say("ask touch b.txt"))[-1] == "RF asks tool_call"  # The rule is for another command.
    choice = "allow" if decide == "allow" else "reject"
    assert words[-1] == "RF success"
    assert custom_values(words, "acp:permission") == [{"decision": choice, "by": "rule", "toolCallId": call}]
    assert (tmp_path / "work" / "t" / "a.txt").exists() == (decide == "allow")


@pytest.mark.parametrize("mode", ["bypass", "yolo"])
async def test_a_mode_that_allows_everything_answers(tmp_path: Path, mode: str) -> None:
    async with serve(tmp_path, mode=mode) as world:
        words = await world.thread().say("ask touch a.txt")
    (value,) = custom_values(words, "acp:permission")
    assert (value["decision"], value["by"]) == ("allow", "mode")
    assert (tmp_path / "work" / "t" / "a.txt").exists()


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".mcp.json", "sub/.envrc", "linked/config"])
async def test_accepted_edits_are_none_of_files_that_make_programs_run_commands(tmp_path: Path, path: str) -> None:
    (tmp_path / "work" / "t" / ".git").mkdir(parents=True)
    (tmp_path / "work" / "t" / "linked").symlink_to(".git")
    async with serve(tmp_path, mode="accept-edits") as world:
        thread = world.thread()
        assert spoken(await thread.say("ask-edit src/app.py")) == "edited"
        words = await thread.say(f"ask-edit {path}")
    assert words[-1] == "RF asks tool_call"


async def test_a_rule_allows_the_edit_of_a_file_that_makes_programs_run_commands(tmp_path: Path) -> None:
    rule = PermissionRule(kind="edit", path=".vscode", decide="allow")
    async with serve(tmp_path, mode="accept-edits", context={"permissions": (rule,)}) as world:
        thread = world.thread()
        assert spoken(await thread.say("ask-edit .vscode/tasks.json")) == "edited"
        assert (await thread.say("ask-edit .envrc"))[-1] == "RF asks tool_call"


async def test_a_rule_that_asks_is_stricter_than_the_mode(tmp_path: Path) -> None:
    rule = PermissionRule(kind="execute", decide="ask")
    async with serve(tmp_path, mode="yolo", context={"permissions": (rule,)}) as world:
        words = await world.thread().say("ask touch a.txt")
    assert words[-1] == "RF asks tool_call"


async def test_what_can_only_be_allowed_for_good_is_asked(tmp_path: Path) -> None:
    async with serve(tmp_path, mode="yolo") as world:
        thread = world.thread()
        assert (await thread.say("ask-many touch a.txt"))[
            -1
        ] == "RF success"  # It offers one option for a single approval.
        assert (await thread.say("ask-always touch a.txt"))[-1] == "RF asks tool_call"


@pytest.mark.parametrize("script", ["switch acceptEdits", "elicit"])
async def test_no_rule_and_no_mode_answers_a_question_for_a_person(tmp_path: Path, script: str) -> None:
    rules = (PermissionRule(decide="allow", kind="other"), PermissionRule(decide="deny", tool="Exit*"))
    async with serve(tmp_path, mode="yolo", context={"permissions": rules}) as world:
        words = await world.thread().say(script)
    assert words[-1].startswith("RF asks ")
    assert custom_values(words, "acp:permission") == []


async def test_the_rules_of_a_run_apply_to_a_process_that_an_earlier_run_started(tmp_path: Path) -> None:
    async with serve(tmp_path, mode="bypass") as world:
        thread = world.thread()
        await thread.say("ask echo one")
        pid = world.adapter().pid
        words = await thread.say("ask echo one", forwarded_props={"acp": {"mode": "default"}})
        assert world.adapter().pid == pid
    assert words[-1] == "RF asks tool_call"


@pytest.mark.parametrize("profile", PROFILES)
async def test_an_agent_that_widens_its_own_mode_is_set_back(
    tmp_path: Path, profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path, bridge=_bridge(tmp_path, profile)) as world:
        thread = world.thread()
        first = "read-only" if profile == "codex" else "default"
        words = await thread.say(f"mode {WIDER[profile]} then sleep 0.3 then session")
        session = world.adapter().session
        assert session is not None
        assert session.state.mode_id == first
        assert _set_modes(world)[-1:] == [first]
    assert custom_values(words, "acp:mode_set_back") == [{"from": WIDER[profile], "to": first}]
    assert f'"mode": "{first}"' in spoken(words)
    assert any("widened its mode" in record.message for record in caplog.records if record.levelno == logging.WARNING)


async def test_an_agent_may_leave_its_mode_if_a_person_allows_it(tmp_path: Path) -> None:
    async with serve(tmp_path, bridge=_bridge(tmp_path, "claude-acp", mode="plan")) as world:
        thread = world.thread()
        await thread.say("switch acceptEdits then sleep 0.2 then session then mode auto then sleep 0.2 then session")
        words = await thread.resume(yes(thread.interrupts[0], {"optionId": "acceptEdits"}))
        assert _set_modes(world) == ["plan", "plan"]  # At the start, and for the second change, which nobody allowed.
        await thread.say("say on")
        assert _set_modes(world) == ["plan", "plan"]
    assert custom_values(words, "acp:mode_set_back") == [{"from": "auto", "to": "plan"}]
    assert '"mode": "acceptEdits"' in spoken(words)


async def test_the_next_run_begins_in_the_mode_of_the_settings_again(tmp_path: Path) -> None:
    async with serve(tmp_path, bridge=_bridge(tmp_path, "claude-acp", mode="plan")) as world:
        thread = world.thread()
        await thread.say("switch acceptEdits then sleep 0.2")
        await thread.resume(yes(thread.interrupts[0], {"optionId": "acceptEdits"}))
        assert '"mode": "plan"' in spoken(await thread.say("session"))


async def test_a_declined_switch_allows_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, bridge=_bridge(tmp_path, "claude-acp", mode="plan")) as world:
        thread = world.thread()
        await thread.say("switch acceptEdits then mode acceptEdits then sleep 0.2")
        words = await thread.resume(no(thread.interrupts[0]))
    assert custom_values(words, "acp:mode_set_back") == [{"from": "acceptEdits", "to": "plan"}]


async def test_an_agent_that_does_not_stay_in_its_mode_is_stopped(tmp_path: Path) -> None:
    async with serve(tmp_path, bridge=_bridge(tmp_path, "claude-acp")) as world:
        script = " then ".join(["mode auto then sleep 0.05"] * 12)
        events = await world.stored(script)
        assert world.adapter().pid is None
    assert events[-1].__class__.__name__ == "RunError"
    assert getattr(events[-1], "code", "") == "acp_error"
