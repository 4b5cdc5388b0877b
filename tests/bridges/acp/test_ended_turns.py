"""Turns that have ended otherwise than well: what a cancelled one still sends, and what the agent forgets of a refused one."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from ambient_runner.protocol.events import (
    ActivitySnapshot,
    Cancelled,
    Custom,
    Event,
    ReasoningMessageStart,
    RunFinished,
    StateDelta,
    TextMessageContent,
    TextMessageEnd,
    Tool,
    ToolCallResult,
    UserMessage,
)
from tests.bridges.acp.words import custom_values, spoken
from tests.bridges.acp.world import World, serve
from tests.bridges.claude.world import yes
from tests.machine_speed import unless_hung
from tests.world import KEY, events_of, request

STYLES = ["claude", "gemini"]
PAINT = Tool(name="paint", description="", parameters={"type": "object", "properties": {}})


async def _wait_for_late_messages(world: World) -> None:
    """Wait for the last message that lingers."""
    session = world.adapter().session
    assert session is not None
    with unless_hung():
        while not any("A late title" in str(message) for message in session._messages._messages):
            await anyio.sleep(0.01)


def _texts(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, TextMessageContent))


def _refused(events: list[Event]) -> list[str]:
    (refusal,) = [event for event in events if isinstance(event, Custom) and event.name == "acp:refusal"]
    return refusal.value["messageIds"]


@pytest.mark.parametrize("style", STYLES)
async def test_what_a_stopped_turn_still_writes_is_no_part_of_the_next_answer(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="linger")))
            while not (world.hosted._adapters and world.adapter().session and world.adapter().session.is_busy):
                await anyio.sleep(0.01)
            await world.runner.ledger.request_stop(KEY, "stop")
            stopped = await events_of(world.runner, started)
        await _wait_for_late_messages(world)
        events = await world.stored("say on", message_id="u2")
    assert isinstance(stopped[-1], RunFinished)
    assert stopped[-1].outcome == Cancelled()
    assert _texts(stopped).endswith("I linger.")  # It came before the end of the turn, and the run was there.
    assert _texts(events) == "on"
    assert [event for event in events if isinstance(event, ReasoningMessageStart | ActivitySnapshot)] == []
    changes = [change for event in events if isinstance(event, StateDelta) for change in event.delta]
    assert "A late title" in str(changes)  # What it says about the session counts.


@pytest.mark.parametrize("style", STYLES)
async def test_what_a_turn_that_was_stopped_between_runs_still_writes_is_no_part_of_the_next_answer(
    tmp_path: Path, style: str
) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        await thread.say("linger touch a.txt")
        await world.runner.stop(KEY)
        await _wait_for_late_messages(world)
        words = await thread.say("say on")
    assert (spoken(words), words[-1]) == ("on", "RF success")
    assert len([word for word in words if word.startswith("CR ")]) == 1  # The call that was asked about has a result.


async def test_what_a_turn_wrote_before_it_was_abandoned_is_shown(tmp_path: Path) -> None:
    """Nothing was cancelled while it wrote: the agent went on while a person decided."""
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask-flood 3")
        (tmp_path / "work" / "t" / "asked").touch()
        session = world.adapter().session
        assert session is not None
        with unless_hung():
            while "chunk" not in str(session._messages._messages):
                await anyio.sleep(0.01)
        await world.runner.stop(KEY)
        words = await thread.say("say on")
    assert spoken(words) == "chunk chunk chunk on"


async def test_after_a_refusal_the_messages_are_named_that_the_agent_has_forgotten(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        await world.stored("say hi", message_id="u1")
        before = {message.id for message in (await world.runner.view_thread(KEY)).transcript.messages()}
        events = await world.stored("think then tool look then say no then stop-reason refusal", message_id="u2")
        after = [message.id for message in (await world.runner.view_thread(KEY)).transcript.messages()]
        assert _refused(events)[0] == "u2"
        assert sorted(_refused(events)) == sorted(set(after) - before)  # The thread keeps them.
        assert isinstance(events[-1], RunFinished)
        assert events[-1].result == {"stopReason": "refusal"}
        events = await world.stored("say hi", message_id="u3")
    assert not any(isinstance(event, Custom) and event.name == "acp:refusal" for event in events)


async def test_a_refusal_comes_after_the_whole_text_of_the_message_that_it_names(tmp_path: Path) -> None:
    """Redaction holds back the last word of a text until the text has ended."""
    async with serve(tmp_path) as world:
        events = await world.stored("say hello world then stop-reason refusal")
    kinds = [type(event) for event in events]
    names = [getattr(event, "name", None) for event in events]
    last_text = max(index for index, kind in enumerate(kinds) if kind in (TextMessageContent, TextMessageEnd))
    assert kinds[last_text] is TextMessageEnd
    assert last_text < names.index("acp:refusal")


@pytest.mark.parametrize("end", ["", " then crash", " then ask-beside echo one"])
async def test_a_result_for_a_call_without_one_comes_after_the_whole_text(tmp_path: Path, end: str) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored(f"leave look then say hello wonderful{end}")
    kinds = [type(event) for event in events]
    first_text = kinds.index(TextMessageContent)
    assert TextMessageEnd in kinds[first_text:]
    torn = kinds[first_text : kinds.index(TextMessageEnd)]
    assert ToolCallResult not in torn


async def test_a_refused_turn_of_several_runs_is_named_as_a_whole(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("say hi then mcp paint {} then ask touch a.txt then stop-reason refusal")
        call_id = next(iter((await world.runner.view_thread(KEY)).transcript.messages()[-1].tool_calls or [])).id
        await thread.answer(**{call_id: "blue"})
        words = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        messages = (await world.runner.view_thread(KEY)).transcript.messages()
    (refusal,) = custom_values(words, "acp:refusal")
    assert sorted(refusal["messageIds"]) == sorted(message.id for message in messages)


async def test_a_turn_that_is_refused_before_the_next_prompt_of_its_run_is_named(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt then stop-reason refusal")
        words = await thread.resume(yes(thread.interrupts[0], {"approved": False, "message": "say sorry"}))
    assert len(custom_values(words, "acp:refusal")) == 1
    assert spoken(words).endswith("sorry")


async def _end_process(world: World) -> None:
    session = world.adapter().session
    assert session is not None
    session.kill()
    with unless_hung():
        while world.adapter().pid is not None:
            await anyio.sleep(0.01)


def _prompts(world: World) -> list[list[str]]:
    return [[block["text"] for block in prompt["prompt"]] for prompt in world.received("session/prompt")]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_refused_turn_is_not_sent_again(tmp_path: Path, kept: bool) -> None:
    """Neither to its session, which has forgotten it, nor to a new one, which would refuse it too."""
    options = {} if kept else {"without": "load,resume"}
    async with serve(tmp_path, options) as world:
        await world.stored("say hi", message_id="u1")
        await world.stored("say poison then stop-reason refusal", message_id="u2")
        await _end_process(world)
        await world.stored("say on", message_id="u3")
        prompt = "\n".join(_prompts(world)[-1])
    assert "poison" not in prompt
    assert ("say hi" in prompt) is not kept


async def test_a_session_that_has_forgotten_the_earlier_turns_with_the_refused_one_gets_them_again(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, {"without": "load,resume"}) as world:
        await world.stored("say hi", message_id="u1")
        await _end_process(world)
        await world.stored("say poison then stop-reason refusal", message_id="u2")  # The prompt has the first turn too.
        await world.stored("say on", message_id="u3")
        prompt = "\n".join(_prompts(world)[-1])
    assert ("say hi" in prompt, "poison" in prompt) == (True, False)
