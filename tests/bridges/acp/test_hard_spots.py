"""The places where the protocol and AG-UI, or two agents, differ most: one small test for each, by its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.errors import InvalidInput, ThreadBusy
from ambient_runner.protocol.events import RunError, RunFinished, StateDelta, StateSnapshot, UserMessage
from tests.bridges.acp.words import custom_values, select_words, spoken
from tests.bridges.acp.world import World, fake_command, serve
from tests.bridges.claude.world import PAINT, tool_message, yes
from tests.machine_speed import promised_within, unless_hung
from tests.world import KEY, events_of, request

APPROVED = {"approved": True}
STYLES = ["claude", "codex", "gemini", "opencode"]


def _bridge(tmp_path: Path, profile: str, style: str, **settings: Any) -> ACPBridge:
    """Return a bridge with a known profile, and the fake agent in place of its command."""
    options = {"style": style, "journal": str(tmp_path / "journal.jsonl"), "sessions": str(tmp_path / "sessions")}
    return ACPBridge(profile, command=fake_command(**options), **{"sandbox": "off", "home": "user", **settings})


def _responses(world: World) -> list[Any]:
    """Return the results of the responses that the agent has received."""
    lines = (world.directory / "journal.jsonl").read_text().splitlines()
    messages = [json.loads(line)["msg"] for line in lines]
    return [message["result"] for message in messages if "result" in message]


async def test_hard_spot_01_a_turn_is_parked_while_the_run_that_began_it_has_ended(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        asked = await thread.say("ask-beside echo one")
        answered = await thread.resume(yes(thread.interrupts[0], APPROVED))
        assert len(world.received("session/prompt")) == 1
        await thread.say("ask echo two")
        await world.runner.stop(KEY)
        assert _responses(world)[-1] == {"outcome": {"outcome": "cancelled"}}
    assert asked[-1] == "RF asks tool_call"
    assert spoken(answered) == "executed echo one"


@pytest.mark.parametrize("style", STYLES)
async def test_hard_spot_02_another_tool_may_end_while_a_permission_is_open(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        asked = await thread.say("ask-beside echo one")
        answered = await thread.resume(yes(thread.interrupts[0], APPROVED))
    results = [word.split()[1] for word in select_words(asked + answered, "CR")]
    assert len(results) == len(set(results)) == 2


@pytest.mark.parametrize("style", ["claude", "codex", "opencode"])
async def test_hard_spot_03_clients_see_the_input_that_is_asked_about(tmp_path: Path, style: str) -> None:
    """It is a snapshot that replaces earlier ones: opencode reports another one before it asks, claude a part of it."""
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        words = await thread.say("ask echo one")
        call = thread.interrupts[0].tool_call_id
    assert select_words(words, "CA") == [f'CA {call} {{"command":"echo one"}}']


async def test_hard_spot_03_a_person_sees_arguments_that_have_changed_since_clients_got_them(tmp_path: Path) -> None:
    async with serve(tmp_path, {"style": "codex"}) as world:
        thread = world.thread()
        await thread.say("change echo one / echo two")
        assert "arguments" not in (thread.interrupts[0].metadata or {})
        (tmp_path / "work" / "t" / "asked").touch()
        with unless_hung():
            while not (tmp_path / "work" / "t" / "changed").exists():
                await anyio.sleep(0.01)
            await anyio.sleep(0.1)
        await thread.resume(yes(thread.interrupts[0], APPROVED))
        assert (thread.interrupts[0].metadata or {})["arguments"] == {"command": "echo two"}


async def test_hard_spot_04_a_permission_request_may_be_the_first_mention_of_its_call(tmp_path: Path) -> None:
    async with serve(tmp_path, {"style": "gemini"}) as world:
        thread = world.thread()
        words = await thread.say("ask echo one")
        answered = await thread.resume(yes(thread.interrupts[0], APPROVED))
        orphan = await thread.say("junk")
    call = select_words(words, "CS")[0].split()[1]
    assert [word.split()[0] for word in select_words(words, "CS", "CA", "CE")] == ["CS", "CA", "CE"]
    assert select_words(answered, "CS", "CR") == [f'CR {call} "(empty)"']
    assert any(word.startswith("CS nobody-began ") for word in orphan)  # An update without a call.


@pytest.mark.parametrize(("style", "count"), [("gemini", 2), ("claude", 2)])
async def test_hard_spot_05_a_tool_between_two_texts_separates_messages(tmp_path: Path, style: str, count: int) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        words = await world.thread().say("say one then tool look then say two")
    assert len(select_words(words, "TS")) == count


async def test_hard_spot_06_output_reaches_the_result_however_the_agent_sends_it(tmp_path: Path) -> None:
    async with serve(tmp_path, {"style": "codex"}) as world:
        codex = select_words(await world.thread().say("terminal one two three"), "CR")
    async with serve(tmp_path, {"style": "gemini"}) as world:
        thread = world.thread("g")
        await thread.say("ask echo one")
        gemini = select_words(await thread.resume(yes(thread.interrupts[0], APPROVED)), "CR")
    assert codex[0].endswith('"one\\ntwo\\nthree\\n"')
    assert gemini[0].endswith('"(empty)"')


async def test_hard_spot_07_what_comes_outside_of_a_turn_is_delivered_in_the_next_run(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        first = await thread.say("late")
        session = world.adapter().session
        assert session is not None
        with unless_hung():
            while len(session._messages._messages) < 2:
                await anyio.sleep(0.01)
        second = await thread.say("say next")
        state = [event for event in thread.events if isinstance(event, StateSnapshot | StateDelta)]
    assert first[-1] == "RF success"
    assert spoken(second) == "too latenext"
    assert len(select_words(second, "TS")) == 2
    assert "A late title" in str(state)


async def test_hard_spot_08_an_error_told_as_text_is_an_error(tmp_path: Path) -> None:
    async with serve(tmp_path, bridge=_bridge(tmp_path, "codex", "codex", turn_timeout=0.5)) as world:
        failed = await world.stored("retry then error-text")
        assert any(getattr(event, "name", "") == "acp:retry" for event in failed)
        assert isinstance(failed[-1], RunError)
        assert failed[-1].code == "acp_error"
        silent = await world.stored("silent", message_id="u2")
        assert isinstance(silent[-1], RunError)
        assert silent[-1].code == "agent_timeout"
        assert isinstance((await world.stored("say on", message_id="u3"))[-1], RunFinished)


@pytest.mark.parametrize(
    ("style", "goes_on"), [("claude", True), ("gemini", True), ("codex", False), ("opencode", False)]
)
async def test_hard_spot_09_a_rejection_may_end_the_turn(tmp_path: Path, style: str, goes_on: bool) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        await thread.say("ask echo one then say more")
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": False}))
        assert spoken(await thread.say("say on")) == "on"
    assert spoken(answered).endswith("more") == goes_on
    assert answered[-1] == "RF success"


async def test_hard_spot_10_a_second_prompt_never_reaches_a_busy_agent(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="wait go then say one")))
            while not (tmp_path / "journal.jsonl").exists() or not world.received("session/prompt"):
                await anyio.sleep(0.01)
            with pytest.raises(ThreadBusy):
                await world.runner.start(request(UserMessage(id="u2", content="say two")))
            (tmp_path / "work" / "t" / "go").touch()
            await events_of(world.runner, started)
        assert len(world.received("session/prompt")) == 1


async def test_hard_spot_11_only_what_is_offered_is_promised(tmp_path: Path) -> None:
    async with serve(tmp_path, {"style": "codex"}) as world:
        words = await world.thread().say("junk then terminal one")
        capabilities = world.received("initialize")[0]["clientCapabilities"]
    assert capabilities["fs"] == {"readTextFile": False, "writeTextFile": False}
    assert capabilities["terminal"] is False
    assert "fake/ask was answered -32601" in spoken(words)
    assert any("one" in word for word in select_words(words, "CR"))  # A terminal comes all the same.


@pytest.mark.parametrize("ids", ["number", "text", "uuid"])
async def test_hard_spot_12_ids_may_be_anything_and_kinds_may_be_offered_twice(tmp_path: Path, ids: str) -> None:
    """Numbers begin with 0."""
    async with serve(tmp_path, {"ids": ids}) as world:
        thread = world.thread()
        await thread.say("ask-many echo one")
        with pytest.raises(InvalidInput):
            await thread.resume(yes(thread.interrupts[0], {"approved": True, "always": True}))
        answered = await thread.resume(yes(thread.interrupts[0], {"optionId": "for-tool"}))
    assert spoken(answered) == "executed echo one"


async def test_hard_spot_13_another_version_of_the_protocol_is_refused_and_missing_settings_are_not(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, {"protocol": "2"}) as world:
        events = await world.stored("say hi")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "acp_error"
        assert world.received("initialize")[0]["protocolVersion"] == 1
    async with serve(tmp_path, {"without": "modes,config,load,resume,list,close,fork,delete,image"}) as world:
        assert spoken(await world.thread("bare").say("say hi")) == "hi"


@pytest.mark.parametrize(("profile", "style"), [("codex", "codex"), ("gemini", "gemini"), ("claude-acp", "claude")])
async def test_hard_spot_14_the_mode_is_set_in_the_session_before_the_first_prompt(
    tmp_path: Path, profile: str, style: str
) -> None:
    wide = {"codex": "agent", "gemini": "yolo", "claude-acp": "auto"}[profile]
    first = "read-only" if profile == "codex" else "default"
    bridge = _bridge(tmp_path, profile, style, env={"INITIAL_AGENT_MODE": wide})
    async with serve(tmp_path, bridge=bridge) as world:
        thread = world.thread()
        assert f'"mode": "{first}"' in spoken(await thread.say("session"))


async def test_hard_spot_14_an_agent_that_stays_in_a_mode_that_bypasses_us_is_not_prompted(tmp_path: Path) -> None:
    options = {"style": "claude", "journal": str(tmp_path / "journal.jsonl"), "stuck": "yes"}
    env = {"INITIAL_AGENT_MODE": "auto"}
    bridge = ACPBridge("claude-acp", command=fake_command(**options), sandbox="off", home="user", env=env)
    async with serve(tmp_path, bridge=bridge) as world:
        events = await world.stored("say hi")
        assert world.received("session/prompt") == []
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "acp_error"


@pytest.mark.parametrize("style", ["claude", "codex", "opencode"])
async def test_hard_spot_15_a_request_with_nothing_but_an_id_is_merged_with_its_call(
    tmp_path: Path, style: str
) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        words = await thread.say("ask-bare echo one")
        call = thread.interrupts[0].tool_call_id
        answered = await thread.resume(yes(thread.interrupts[0], APPROVED))
    known = {"command": "echo one"} if style != "opencode" else {"cwd": str(tmp_path / "work" / "t")}
    assert select_words(words, "CA") == [f"CA {call} {json.dumps(known, separators=(',', ':'))}"]
    assert spoken(answered) == "executed echo one"


@pytest.mark.parametrize("style", STYLES)
async def test_hard_spot_16_a_call_of_a_client_tool_is_one_call(tmp_path: Path, style: str) -> None:
    """It comes twice: as a tool call of the agent, and as a call of our MCP server."""
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread(tools=[PAINT])
        words = await thread.say('mcp change_background {"color": "teal"}')
        (call,) = words[-1].removeprefix("RF waits for ").split()
        answered = await thread.run(tool_message(call, "teal"))
    assert [word.split()[1] for word in select_words(words + answered, "CS", "CE")] == [call, call]
    assert select_words(words + answered, "CR") == []


async def test_hard_spot_17_updates_may_come_before_their_session_is_known(tmp_path: Path) -> None:
    async with serve(tmp_path, {"early": "yes"}) as world:
        thread = world.thread()
        words = await thread.say("say hi")
        state = str([event for event in thread.events if isinstance(event, StateSnapshot | StateDelta)])
    assert "An early title" in state
    assert "'early'" in state
    assert select_words(words, "SUB") == []


@pytest.mark.parametrize("replay", ["after", "before"])
async def test_hard_spot_18_a_replay_is_dropped_whenever_it_comes(tmp_path: Path, replay: str) -> None:
    async with serve(tmp_path, {"without": "resume", "replay": replay}) as world:
        thread = world.thread()
        await thread.say("say one then tool look then plan")
        await world.adapter().aclose()
        words = await thread.say("say two")
    assert custom_values(words, "acp:session")[0]["started"] == "loaded"
    assert (spoken(words), select_words(words, "CS", "AS")) == ("two", [])


@pytest.mark.parametrize("how", ["yes", "exit"])
async def test_hard_spot_19_an_agent_whose_load_fails_gets_the_conversation(tmp_path: Path, how: str) -> None:
    async with serve(tmp_path, {"load_error": how}) as world:
        thread = world.thread()
        await thread.say("say one")
        await world.adapter().aclose()
        words = await thread.say("say two")
        assert "User: say one" in world.received("session/prompt")[-1]["prompt"][0]["text"]
    assert custom_values(words, "acp:session")[0]["started"] == "replayed"
    assert spoken(words) == "two"


async def test_hard_spot_20_a_permission_is_shown_while_other_lanes_keep_talking(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say hi")
        with promised_within(1.5):
            words = await thread.say("ask2 30")
    assert words[-1] == "RF asks tool_call"


async def test_hard_spot_21_an_open_permission_of_one_thread_blocks_no_other(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        first, second = world.thread("a"), world.thread("b")
        await first.say("ask echo one")
        assert spoken(await second.say("say free")) == "free"
        assert world.adapter("a").pid != world.adapter("b").pid


async def test_hard_spot_22_a_mode_that_cannot_be_selected_is_configured(tmp_path: Path) -> None:
    """Codex has a workspace with network only as a permission profile of its configuration."""
    bridge = _bridge(tmp_path, "codex", "codex", mode="bypass", home="thread")
    async with serve(tmp_path, bridge=bridge) as world:
        words = await world.thread().say("env INITIAL_AGENT_MODE then session")
    (config,) = (tmp_path / "work" / "t").glob(".ambient/**/config.toml")
    assert "[permissions.ambient.network]\nenabled = true" in config.read_text()
    assert spoken(words).startswith("permission-profile:ambient")
    assert '"mode": "permission-profile:ambient"' in spoken(words)
