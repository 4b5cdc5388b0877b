"""Calls of the client's tools by an agent: the run ends with them, and the next one brings their results to the same turn."""

from __future__ import annotations

from pathlib import Path

import anyio
import psutil
import pytest

from ambient_runner.protocol.events import RunFinished, Success, UserMessage
from tests.bridges.acp.words import custom_values, select_words, spoken
from tests.bridges.acp.world import World, serve
from tests.bridges.claude.world import PAINT, ClaudeThread, tool_message, yes
from tests.machine_speed import promised_within, unless_hung
from tests.world import KEY, events_of, request

STYLES = ["claude", "codex", "gemini", "opencode"]


def _pending(thread: ClaudeThread) -> list[str]:
    """Return the ids of the calls that the last run ended with."""
    end = thread.events[-1]
    assert isinstance(end, RunFinished)
    assert isinstance(end.outcome, Success)
    return list(end.outcome.pending_tool_call_ids or [])


@pytest.mark.parametrize("style", STYLES)
async def test_a_call_ends_the_run_and_its_result_continues_the_turn(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread(tools=[PAINT])
        words = await thread.say('say now then mcp change_background {"color": "teal"} then say done')
        pid, (call,) = world.adapter().pid, _pending(thread)
        answered = await thread.run(tool_message(call, "It is teal."))
        assert world.adapter().pid == pid
    assert select_words(words, "CS", "CA", "CE", "CR", "CUSTOM", "RF")[-4:] == [
        f"CS {call} change_background < m1",
        f'CA {call} {{"color":"teal"}}',
        f"CE {call}",
        f"RF waits for {call}",
    ]
    assert custom_values(words, "acp:permission") == []  # Tools of the client need no permission.
    assert select_words(answered, "CR", "CS") == []  # The client has the result, and the call.
    assert (spoken(answered), answered[-1]) == ("The tool answered: It is teal.done", "RF success")


@pytest.mark.parametrize("style", STYLES)
async def test_an_error_of_the_client_is_an_error_for_the_agent(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say('mcp change_background {"color": "teal"}')
        (call,) = _pending(thread)
        answered = await thread.run(tool_message(call, {"content": "", "error": "out of paint"}))
    assert (spoken(answered), answered[-1]) == ("The tool answered: out of paint", "RF success")


@pytest.mark.parametrize("style", STYLES)
async def test_two_calls_at_once_get_their_own_results(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread(tools=[PAINT])
        words = await thread.say('mcp change_background {"color": "teal"} {"color": "red"}')
        teal, red = _pending(thread)
        answered = await thread.run(tool_message(red, "second"), tool_message(teal, "first"))
    assert select_words(words, "CA") == [f'CA {teal} {{"color":"teal"}}', f'CA {red} {{"color":"red"}}']
    assert spoken(answered) == "The tool answered: first and second"


@pytest.mark.parametrize("style", STYLES)
async def test_one_of_two_results_leaves_the_other_call_open(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say('mcp change_background {"color": "teal"} {"color": "red"}')
        teal, red = _pending(thread)
        half = await thread.run(tool_message(red, "second"))
        assert half[-1] == f"RF waits for {teal}"
        answered = await thread.run(tool_message(teal, "first"))
    assert spoken(answered) == "The tool answered: first and second"


@pytest.mark.parametrize("style", STYLES)
async def test_a_message_in_place_of_a_result_ends_the_turn_and_the_process_stays(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say('mcp change_background {"color": "teal"}')
        pid, (call,) = world.adapter().pid, _pending(thread)
        words = await thread.say("say instead")
        assert world.adapter().pid == pid
        assert len(world.received("session/cancel")) == 1
    assert len([word for word in select_words(words, "CR") if word.startswith(f"CR {call} ")]) == 1
    # The agent may still say something about the call that is given up.
    assert (spoken(words).endswith("instead"), words[-1]) == (True, "RF success")


@pytest.mark.parametrize("style", STYLES)
async def test_a_stop_while_a_call_waits_beside_other_work_ends_the_turn(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("say hi")
        message = UserMessage(id="u9", content='mcp change_background {"color": "teal"} then hang')
        with unless_hung():
            started = await world.runner.start(request(message, tools=[PAINT]))
            session = world.adapter().session
            assert session is not None
            while not session.calls.open_calls:
                await anyio.sleep(0.001)
            await world.runner.ledger.request_stop(KEY, "stop")
            events = await events_of(world.runner, started)
        assert isinstance(events[-1], RunFinished)
        if events[-1].outcome.__class__.__name__ != "Cancelled":  # The run was over before.
            assert isinstance(events[-1].outcome, Success)
        thread.count = 9
        assert spoken(await thread.say("say on")) == "on"
        assert session.calls.open_calls == []


async def test_a_result_for_a_process_that_is_gone_is_sent_to_the_next_one(tmp_path: Path) -> None:
    store = tmp_path / "threads.db"
    async with serve(tmp_path, store=store) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("say hi")
        await thread.say('mcp change_background {"color": "teal"}')
        (call,) = _pending(thread)
    async with serve(tmp_path, store=store) as world:
        words = await world.thread(tools=[PAINT]).run(tool_message(call, "It is teal."))
        sent = world.received("session/prompt")[-1]["prompt"]
    assert custom_values(words, "acp:session")[0]["started"] == "resumed"
    assert words[-1] == "RF success"
    assert "Your call to change_background:\nIt is teal." in sent[0]["text"]


async def test_an_agent_killed_while_a_call_waits_gets_the_result_in_its_next_process(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say('mcp change_background {"color": "teal"}')
        (call,) = _pending(thread)
        process = psutil.Process(world.adapter().pid)
        process.kill()
        process.wait(30)
        words = await thread.run(tool_message(call, "It is teal."))
        assert "It is teal." in str(world.received("session/prompt")[-1])
    assert words[-1] == "RF success"


async def test_a_call_is_shown_while_something_else_streams(tmp_path: Path) -> None:
    """Another tool prints for ever. The client gets its call all the same."""
    async with serve(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("say hi")
        with promised_within(5):
            words = await thread.say('lane-mcp change_background {"color": "teal"}')
        (call,) = _pending(thread)
        answered = await thread.run(tool_message(call, "It is teal."))
    assert words[-1] == f"RF waits for {call}"
    assert "The tool answered: It is teal." in spoken(answered)


async def test_a_permission_request_beside_a_call_is_answered_first(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        words = await thread.say('lane-ask change_background {"color": "teal"}')
        assert words[-1] == "RF asks tool_call"
        again = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        (call,) = _pending(thread)
        answered = await thread.run(tool_message(call, "It is teal."))
    assert again[-1] == f"RF waits for {call}"
    assert "The tool answered: It is teal." in spoken(answered)


async def test_a_result_that_nobody_waits_for_any_more_follows_when_the_turn_has_ended(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say('mcp-impatient change_background {"color": "teal"} then say gave up')
        (call,) = _pending(thread)
        await _give_up(world, tmp_path)
        answered = await thread.run(tool_message(call, "It is teal."))
        assert "It is teal." in str(world.received("session/prompt")[-1])
    assert spoken(answered).startswith("gave up")
    assert answered[-1] == "RF success"


async def _give_up(world: World, tmp_path: Path) -> None:
    session = world.adapter().session
    assert session is not None
    (tmp_path / "work" / "t" / "asked").touch()
    with unless_hung():
        while session.calls.open_calls:
            await anyio.sleep(0.01)


async def test_tools_of_another_run_start_another_process_that_has_the_conversation(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("mcp-list")
        thread.tools = [PAINT]
        words = await thread.say("history then mcp-list")
    assert spoken(words) == "mcp-list\nhistory then mcp-listambient/change_background"
