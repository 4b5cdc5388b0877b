"""What an agent asks a person: the process waits, and goes on with the answer."""

from __future__ import annotations

import dataclasses
import gc
import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from ambient_runner.bridges.acp import session_messages
from ambient_runner.bridges.acp.adapter import ACPAdapter
from ambient_runner.config import Timeouts
from ambient_runner.errors import InterruptNotOpen, InvalidInput, NoActiveRun, PendingInterrupts, RunnerError
from ambient_runner.protocol.events import UserMessage, encode_event
from ambient_runner.runs.run import Run
from tests.bridges.acp.words import custom_values, select_words, spoken
from tests.bridges.acp.world import World, serve
from tests.bridges.claude.world import ClaudeThread, no, yes
from tests.machine_speed import promised_within, unless_hung
from tests.world import KEY, SETTINGS, events_of, request

STYLES = ["claude", "codex", "gemini", "opencode"]
APPROVED = {"approved": True}
USUAL = [
    {"optionId": "yes", "name": "yes", "kind": "allow_once"},
    {"optionId": "yes-always", "name": "yes-always", "kind": "allow_always"},
    {"optionId": "no", "name": "no", "kind": "reject_once"},
]


def _work(tmp_path: Path, name: str) -> Path:
    return tmp_path / "work" / "t" / name


def _prompts(world: World) -> list[list[str]]:
    """Return the texts of all prompts that the agent has received."""
    return [[block["text"] for block in prompt["prompt"]] for prompt in world.received("session/prompt")]


async def _wait_until_waiting(world: World, name: str = "t") -> None:
    with unless_hung():
        while not (world.hosted._adapters and world.adapter(name).is_waiting):
            await anyio.sleep(0.01)


async def _wait_until_gone(world: World, pid: int | None) -> None:
    assert pid is not None
    with unless_hung():
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await anyio.sleep(0.01)
        while world.adapter().pid is not None:
            await anyio.sleep(0.01)


async def test_a_permission_request_is_an_interrupt_and_approval_executes_the_call(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("ask touch a.txt then say done")
        pid, interrupt = world.adapter().pid, thread.interrupts[0]
        with pytest.raises(PendingInterrupts):
            await thread.say("say hi")
        assert not _work(tmp_path, "a.txt").exists()
        answered = await thread.resume(yes(interrupt, APPROVED))
        assert world.adapter().pid == pid
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(interrupt, APPROVED))
    assert words[-1] == "RF asks tool_call"
    call = select_words(words, "CS")[0].split()[1]
    assert (interrupt.tool_call_id, interrupt.message) == (call, "The agent wants to use Bash.")
    assert interrupt.metadata == {"tool": "Bash", "options": USUAL}
    assert interrupt.response_schema is not None
    assert interrupt.response_schema["properties"]["optionId"]["enum"] == ["yes", "yes-always", "no"]
    assert select_words(answered, "CR") == [f'CR {call} "(empty)"']
    assert (spoken(answered), answered[-1]) == ("executed touch a.txtdone", "RF success")
    assert custom_values(answered, "acp:permission") == [
        {
            "decision": "allow",
            "by": "person",
            "optionId": "yes",
            "toolCallId": call,
            "answeredBy": {"tenant": "default", "owner": "local"},
        }
    ]
    assert _work(tmp_path, "a.txt").exists()


@pytest.mark.parametrize("style", STYLES)
async def test_an_answer_reaches_every_agent_as_one_of_its_options(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style, "ids": "uuid"}) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        approved = await thread.resume(yes(thread.interrupts[0], APPROVED))
        await thread.say("ask touch b.txt")
        declined = await thread.resume(yes(thread.interrupts[0], {"approved": False}))
        assert (await thread.say("say still here"))[-1] == "RF success"
    assert approved[-1] == declined[-1] == "RF success"
    assert len(select_words(declined, "CR")) == 1
    assert [_work(tmp_path, name).exists() for name in ("a.txt", "b.txt")] == [True, False]


async def test_always_selects_the_only_option_for_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask echo one")
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True, "always": True}))
        again = await thread.say("ask echo one")
    assert custom_values(answered, "acp:permission")[0]["optionId"] == "yes-always"
    assert (spoken(again), again[-1]) == ("executed echo one", "RF success")


async def test_always_is_a_single_approval_where_the_agent_does_not_offer_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask-once echo one")
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True, "always": True}))
        again = await thread.say("ask-once echo one")
    assert spoken(answered) == "executed echo one"
    assert again[-1] == "RF asks tool_call"


async def test_always_is_refused_where_it_may_mean_several_options_which_are_named(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask-many echo one")
        interrupt = thread.interrupts[0]
        with pytest.raises(InvalidInput, match="for-tool, for-server"):
            await thread.resume(yes(interrupt, {"approved": True, "always": True}))
        answered = await thread.resume(yes(interrupt, {"optionId": "for-server"}))
    assert custom_values(answered, "acp:permission")[0]["optionId"] == "for-server"
    assert spoken(answered) == "executed echo one"


@pytest.mark.parametrize(
    "payload",
    [
        {"optionId": "allow"},
        {"optionId": 7},
        {"approved": False, "optionId": "yes"},
        {"approved": True, "optionId": "no"},
    ],
)
async def test_an_option_that_was_not_offered_is_refused_and_the_interrupt_stays_open(
    tmp_path: Path, payload: dict[str, Any]
) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask echo one")
        interrupt = thread.interrupts[0]
        with pytest.raises(InvalidInput):
            await thread.resume(yes(interrupt, payload))
        assert list((await world.runner.view_thread(KEY)).open_interrupts) == [interrupt.id]
        assert world.adapter().is_waiting
        answered = await thread.resume(yes(interrupt, {"optionId": "yes"}))
    assert spoken(answered) == "executed echo one"


@pytest.mark.parametrize(
    "payload",
    [
        None,
        1,
        "yes",
        '["yes"]',
        [],
        {},
        [{"approved": True}],
        {"approved": "true"},
        {"approved": 1},
        {"approved": None},
        {"approve": True},
        {"always": True},
        {"approved": True, "always": "yes"},
        {"approved": False, "message": 5},
        {"optionId": "no", "approved": 0},
        {"optionId": ""},
        {"approved": True, "editedArgs": {"command": "touch b.txt"}},
    ],
)
async def test_an_answer_that_is_neither_yes_nor_no_is_refused_and_the_interrupt_stays_open(
    tmp_path: Path, payload: object
) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        interrupt = thread.interrupts[0]
        with pytest.raises(InvalidInput) as refused:
            await thread.resume(yes(interrupt, payload))
        assert list((await world.runner.view_thread(KEY)).open_interrupts) == [interrupt.id]
        assert world.adapter().is_waiting
        assert not _work(tmp_path, "a.txt").exists()
        answered = await thread.resume(yes(interrupt, {"approved": True, "message": None}))
    assert (refused.value.status, refused.value.code) == (422, "invalid_input")
    assert spoken(answered) == "executed touch a.txt"


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "red",
        ["red"],
        {},
        {"declined": "true"},
        {"colour": "red", "approved": 0},
        {"colour": 7},
        {"colour": None},
        {"colour": "red", "declined": 1},
    ],
)
async def test_an_answer_that_does_not_fill_in_the_form_is_refused_and_the_interrupt_stays_open(
    tmp_path: Path, payload: object
) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("elicit")
        interrupt = thread.interrupts[0]
        with pytest.raises(InvalidInput):
            await thread.resume(yes(interrupt, payload))
        assert list((await world.runner.view_thread(KEY)).open_interrupts) == [interrupt.id]
        answered = await thread.resume(yes(interrupt, {"colour": "red"}))
    assert spoken(answered) == 'answered {"action": "accept", "content": {"colour": "red"}}'


async def test_an_id_of_several_kinds_is_not_offered_and_cannot_be_chosen(tmp_path: Path) -> None:
    """The agent could take it for either. What is left is offered, and every answer has one meaning."""
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask-doubled touch a.txt")
        interrupt = thread.interrupts[0]
        for payload in ({"optionId": "both"}, {"optionId": "bare"}, {"optionId": "nothing"}, {"approved": True}):
            with pytest.raises(InvalidInput):
                await thread.resume(yes(interrupt, payload))
        answered = await thread.resume(yes(interrupt, {"approved": True, "always": True}))
    assert (interrupt.metadata or {})["options"] == [
        {"optionId": "twice", "name": "twice", "kind": "allow_always"},
        {"optionId": "no", "name": "no", "kind": "reject_once"},
    ]
    assert custom_values(answered, "acp:permission")[0]["optionId"] == "twice"
    assert spoken(answered) == "executed touch a.txt"


async def test_a_request_without_a_clear_option_can_only_be_declined(tmp_path: Path) -> None:
    async with serve(tmp_path, mode="yolo") as world:
        thread = world.thread()
        await thread.say("ask-unclear touch a.txt")
        interrupt = thread.interrupts[0]
        for payload in ({"approved": True}, {"approved": True, "always": True}, {"optionId": "both"}):
            with pytest.raises(InvalidInput):
                await thread.resume(yes(interrupt, payload))
        answered = await thread.resume(yes(interrupt, {"approved": False}))
        assert (await thread.say("say still here"))[-1] == "RF success"
    assert (interrupt.metadata or {})["options"] == []
    assert interrupt.response_schema is not None
    assert "optionId" not in interrupt.response_schema["properties"]
    assert answered[-1] == "RF success"
    assert not _work(tmp_path, "a.txt").exists()


@pytest.mark.parametrize("style", STYLES)
async def test_what_is_said_with_a_rejection_follows_when_the_turn_has_ended(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": False, "message": "say not today"}))
        assert _prompts(world) == [["ask touch a.txt"], ["say not today"]]
    assert spoken(answered).endswith("not today")
    assert answered[-1] == "RF success"
    assert len([word for word in answered if word.startswith("TS ")]) == (2 if style in ("claude", "gemini") else 1)


async def test_what_is_said_with_two_rejections_is_one_prompt(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask2 0.1")
        first, second = thread.interrupts
        await thread.resume(
            yes(first, {"approved": False, "message": "say no"}),
            yes(second, {"approved": False, "message": "say never"}),
        )
        assert _prompts(world)[1:] == [["say no", "say never"]]


async def test_what_is_said_with_a_rejection_waits_while_the_turn_asks_again(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask echo one then ask echo two")
        asked = await thread.resume(yes(thread.interrupts[0], {"approved": False, "message": "say at last"}))
        assert asked[-1] == "RF asks tool_call"
        answered = await thread.resume(yes(thread.interrupts[0], APPROVED))
    assert spoken(answered) == "executed echo twoat last"


async def test_a_message_beside_an_answer_is_sent_when_the_turn_has_ended(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask echo one")
        answered = await thread.say("say and this", resume=[yes(thread.interrupts[0], APPROVED)])
        assert _prompts(world) == [["ask echo one"], ["say and this"]]
        assert spoken(await thread.say("history")) == "ask echo one\nsay and this\nhistory"
    assert spoken(answered) == "executed echo oneand this"


@pytest.mark.parametrize("style", STYLES)
async def test_a_cancelled_interrupt_declines_the_call(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        answered = await thread.resume(no(thread.interrupts[0]))
    assert answered[-1] == "RF success"
    assert not _work(tmp_path, "a.txt").exists()


async def test_the_record_of_a_cancelled_interrupt_names_no_person(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        call = thread.interrupts[0].tool_call_id
        answered = await thread.resume(no(thread.interrupts[0]))
    assert custom_values(answered, "acp:permission") == [
        {"decision": "reject", "by": "cancelled", "optionId": "no", "toolCallId": call}
    ]


@pytest.mark.parametrize(
    ("payload", "is_executed"),
    [
        (True, True),
        (False, False),
        ('{"approved": true}', True),
        ('{"approved": false}', False),
        ('{"optionId": "yes"}', True),
        ("true", True),
        ("false", False),
    ],
)
async def test_a_bare_boolean_and_the_json_text_of_an_answer_decide_about_a_call(
    tmp_path: Path, payload: object, is_executed: bool
) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        answered = await thread.resume(yes(thread.interrupts[0], payload))
    assert answered[-1] == "RF success"
    assert _work(tmp_path, "a.txt").exists() is is_executed


async def test_a_reason_is_another_word_for_the_message_of_a_rejection(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": False, "reason": "say not today"}))
        assert _prompts(world) == [["ask touch a.txt"], ["say not today"]]
    assert spoken(answered).endswith("not today")


async def test_options_beyond_a_bound_are_not_offered_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask-options 4000")
        interrupt = thread.interrupts[0]
        with pytest.raises(InvalidInput) as refused:
            await thread.resume(yes(interrupt, {"approved": True, "always": True}))
        with pytest.raises(InvalidInput):
            await thread.resume(yes(interrupt, {"optionId": "option-3000"}))
        answered = await thread.resume(yes(interrupt, APPROVED))
    assert len((interrupt.metadata or {})["options"]) == 32
    assert len(refused.value.message) < 500
    assert spoken(answered) == "executed echo one"
    (record,) = [record for record in caplog.records if record.name == session_messages.__name__]
    assert record.args == ("t", "The agent", 3970)


async def test_two_requests_are_shown_together_while_something_else_streams(tmp_path: Path) -> None:
    """Another tool and text stream every 10 ms. The run ends within 1.5 seconds all the same; what comes later is in the next one."""
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say hi")
        with promised_within(1.5):
            words = await thread.say("ask2 0.2")
        first, second = thread.interrupts
        with pytest.raises(PendingInterrupts):
            await thread.resume(yes(first, APPROVED))
        answered = await thread.resume(yes(first, APPROVED), yes(second, {"approved": False}))
    assert words[-1] == "RF asks tool_call tool_call"
    assert "executed echo one" in spoken(answered)
    assert "rejected echo two" in spoken(answered)
    assert spoken(answered).endswith("Both are answered.")
    numbers = [int(word) for word in (spoken(words) + spoken(answered)).split() if word.isdigit()]
    assert numbers == list(range(1, len(numbers) + 1))  # Nothing that streams is lost or doubled between the runs.


async def test_a_request_that_comes_between_runs_is_shown_by_the_next_run(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask2 1.0")
        (first,) = thread.interrupts
        session = world.adapter().session
        assert session is not None
        with unless_hung():
            while len(session.requests) < 2:
                await anyio.sleep(0.01)
        again = await thread.resume(yes(first, APPROVED))
        (second,) = thread.interrupts
        answered = await thread.resume(yes(second, APPROVED))
    assert again[-1] == "RF asks tool_call"
    assert second.id != first.id
    assert spoken(again + answered).endswith("Both are answered.")


async def test_an_interrupt_can_be_answered_after_its_client_has_gone(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        await world.runner.start(request(UserMessage(id="u1", content="ask echo one")))
        await _wait_until_waiting(world)
        with unless_hung():
            while not (opened := (await world.runner.view_thread(KEY)).open_interrupts):
                await anyio.sleep(0.01)
        (asked,) = opened.values()
        answered = await world.thread().resume(yes(asked.interrupt, APPROVED))
    assert spoken(answered) == "executed echo one"


async def test_an_unanswered_interrupt_expires_and_the_next_message_works(tmp_path: Path) -> None:
    async with serve(tmp_path, interrupt_timeout=0.7) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        pid, expires = world.adapter().pid, datetime.fromisoformat(thread.interrupts[0].expires_at or "")
        assert expires - datetime.now().astimezone() < timedelta(seconds=1)
        with unless_hung():
            while world.adapter().is_waiting:
                await anyio.sleep(0.01)
            await anyio.sleep(max(0.0, (expires - datetime.now().astimezone()).total_seconds()))
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(thread.interrupts[0], APPROVED))
        words = await thread.say("say on")
        assert world.adapter().pid == pid
        assert len(world.received("session/cancel")) == 1
    assert (spoken(words), words[-1]) == ("on", "RF success")
    assert len(select_words(words, "CR")) == 1  # The call that was asked about has a result.
    assert not _work(tmp_path, "a.txt").exists()


@pytest.mark.parametrize("style", STYLES)
async def test_a_stop_cancels_an_open_interrupt_and_the_process_stays(tmp_path: Path, style: str) -> None:
    async with serve(tmp_path, {"style": style}) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        pid, interrupt = world.adapter().pid, thread.interrupts[0]
        asked = await world.runner.stop(KEY)
        assert not world.adapter().is_waiting
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(interrupt, APPROVED))
        with pytest.raises(NoActiveRun):
            await world.runner.stop(KEY)
        words = await thread.say("say on")
        assert world.adapter().pid == pid
        assert len(world.received("session/cancel")) == 1
        batches = await world.runner.ledger.read_batches(KEY, 0)
    assert asked in {batch.run for batch in batches}
    facts = [(batch.kind, msgspec.json.decode(line)) for batch in batches for line in batch.lines if not batch.run]
    assert facts == [("interrupts_cancelled", {"interruptIds": [interrupt.id]})]
    assert (spoken(words), words[-1]) == ("on", "RF success")
    assert not _work(tmp_path, "a.txt").exists()


async def test_a_stop_between_runs_ends_an_agent_that_does_not_react(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say hi")
        await thread.say("ask echo one")
        pid = world.adapter().pid
        psutil.Process(pid).suspend()
        await world.runner.stop(KEY)
        assert world.adapter().pid is None
        words = await thread.say("history")
    assert spoken(words).startswith("say hi")


async def test_an_agent_that_withdraws_its_request_goes_on_and_the_answer_lapses(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("withdraw echo one")
        pid = world.adapter().pid
        _work(tmp_path, "asked").touch()
        with unless_hung():
            while world.adapter().is_waiting:
                await anyio.sleep(0.01)
        answered = await thread.resume(yes(thread.interrupts[0], APPROVED))
        assert world.adapter().pid == pid
        assert len(_prompts(world)) == 1
        assert spoken(await thread.say("say on")) == "on"
    assert words[-1] == "RF asks tool_call"
    assert answered[0].startswith("CUSTOM ambient:interrupt_lapsed")
    assert spoken(answered) == 'withdrawn, answered {"outcome": {"outcome": "cancelled"}}'
    assert answered[-1] == "RF success"


async def test_an_interrupt_lapses_with_its_process_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say hi")
        await thread.say("ask touch a.txt")
        lost, session = thread.interrupts[0], world.adapter().session
        assert session is not None
        pid = session.pid
        session.kill()
        await _wait_until_gone(world, pid)
        again = await thread.resume(yes(lost, APPROVED))
        assert not _work(tmp_path, "a.txt").exists()
        history = spoken(await thread.say("history"))
    assert again[0] == f'CUSTOM ambient:interrupt_lapsed {{"interruptIds": ["{lost.id}"]}}'
    assert select_words(again, "CR")[0].endswith(" error")  # Clients show that the call is over.
    assert custom_values(again, "acp:session")[0]["started"] == "resumed"
    assert again[-1] == "RF success"
    assert history.startswith("say hi\nask touch a.txt\n")
    del session
    gc.collect()


async def test_a_declined_interrupt_counts_also_if_the_process_is_gone(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        await world.adapter().aclose()
        await thread.resume(no(thread.interrupts[0]))
        assert "The user declined what you asked for." in _prompts(world)[-1][0]


async def test_what_the_agent_sent_before_it_died_is_delivered_by_the_next_run(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say hi")
        words = await thread.say("ask2 5")
        session = world.adapter().session
        assert session is not None
        shown = [int(word) for word in spoken(words).split() if word.isdigit()][-1]
        with unless_hung():
            while len(session._messages._messages) < 20:
                await anyio.sleep(0.01)
        pid = session.pid
        session.kill()
        await _wait_until_gone(world, pid)
        again = await thread.resume(yes(thread.interrupts[0], APPROVED))
    assert spoken(again).split()[0] == str(shown + 1)


async def test_at_the_limit_of_parked_processes_the_next_request_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with serve(tmp_path, parked=1) as world:
        first, second = world.thread("a"), world.thread("b")
        await first.say("ask2 0.1")  # Two requests of one process count once.
        refused = await second.say("ask echo one")
        assert refused[-1] == "RF success"
        assert spoken(refused) == "rejected echo one"
        (decision,) = custom_values(refused, "acp:permission")
        assert (decision["decision"], decision["by"]) == ("reject", "limit")
        assert "parked" in decision["message"]
        asked = await second.say("elicit")
        assert spoken(asked) == 'answered {"action": "cancel"}'
        await first.resume(*(yes(interrupt, APPROVED) for interrupt in first.interrupts))
        assert (await second.say("ask echo one"))[-1] == "RF asks tool_call"


async def test_a_process_that_waits_for_an_answer_is_neither_evicted_nor_counted_as_working(tmp_path: Path) -> None:
    async with serve(tmp_path, processes=1) as world:
        first, second = world.thread("a"), world.thread("b")
        await first.say("ask echo one")
        pid = world.adapter("a").pid
        assert (await second.say("say hi"))[-1] == "RF success"
        world.hosted._idle_timeout = 0
        await world.hosted.evict_idle()
        assert (world.adapter("a").pid, "b" in {slot[0].id for slot in world.hosted._adapters}) == (pid, False)
        assert spoken(await first.resume(yes(first.interrupts[0], APPROVED))) == "executed echo one"


async def test_a_closed_process_lapses_its_interrupt_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask echo one")
        await world.adapter().aclose()
        assert [one.name for one in caplog.records if one.levelno == logging.WARNING] == [ACPAdapter.__module__]
        again = await thread.resume(yes(thread.interrupts[0], APPROVED))
        assert again[0].startswith("CUSTOM ambient:interrupt_lapsed")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"colour": "red"}, {"action": "accept", "content": {"colour": "red"}}),
        ({"approved": True, "colour": "red"}, {"action": "accept", "content": {"colour": "red"}}),
        ({"declined": True}, {"action": "decline"}),
        ({"approved": False}, {"action": "decline"}),
    ],
)
async def test_an_elicitation_is_an_interrupt_with_its_schema(
    tmp_path: Path, payload: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("elicit")
        interrupt = thread.interrupts[0]
        answered = await thread.resume(yes(interrupt, payload))
    assert words[-1] == "RF asks input_required"
    assert (interrupt.message, interrupt.metadata) == ("Which colour?", None)
    assert interrupt.response_schema is not None
    assert interrupt.response_schema["required"] == ["colour"]
    assert spoken(answered) == f"answered {msgspec.json.encode(expected, order='sorted').decode()}".replace(
        ":", ": "
    ).replace(",", ", ")


async def test_a_cancelled_elicitation_is_cancelled_for_the_agent(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("elicit")
        answered = await thread.resume(no(thread.interrupts[0]))
    assert spoken(answered) == 'answered {"action": "cancel"}'


@pytest.mark.parametrize("payload", [{}, {"color": "red"}, None, "red"])
async def test_an_incomplete_form_is_refused_and_the_interrupt_stays_open(tmp_path: Path, payload: object) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("elicit")
        interrupt = thread.interrupts[0]
        with pytest.raises(InvalidInput, match="colour"):
            await thread.resume(yes(interrupt, payload))
        answered = await thread.resume(yes(interrupt, {"colour": "blue"}))
    assert '"colour": "blue"' in spoken(answered)


async def test_an_elicitation_at_a_url_shows_the_url_and_is_accepted_without_content(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("elicit url")
        interrupt = thread.interrupts[0]
        answered = await thread.resume(yes(interrupt, APPROVED))
    assert interrupt.metadata == {"url": "https://example.com/sign-in"}
    assert spoken(answered) == 'answered {"action": "accept"}'


async def test_an_interrupt_inside_a_subagent_names_the_subagent(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("subagent-ask echo one")
        interrupt = thread.interrupts[0]
        answered = await thread.resume(yes(interrupt, APPROVED))
    task, call = (word.split()[1] for word in select_words(words, "CS"))
    subagent_id = f"subagent-{task}"
    assert (interrupt.subagent_run_id, interrupt.tool_call_id) == (subagent_id, call)
    assert f"END SUB {subagent_id} suspended" in words
    assert select_words(answered, "SUB", "END") == [f"SUB {subagent_id} agent < {task}", f"END SUB {subagent_id}"]
    assert f'CR {call} "ran" @{subagent_id}' in answered
    assert spoken(answered) == "The subagent is done."


async def test_a_call_whose_arguments_have_changed_since_it_was_shown_is_asked_about_again(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("change touch a.txt / touch b.txt")
        (first,) = (await world.runner.view_thread(KEY)).open_interrupts.values()
        _work(tmp_path, "asked").touch()
        with unless_hung():
            while not _work(tmp_path, "changed").exists():
                await anyio.sleep(0.01)
            await anyio.sleep(0.1)  # Its update is on its way.
        words = await thread.resume(yes(first.interrupt, APPROVED))
        (second,) = (await world.runner.view_thread(KEY)).open_interrupts.values()
        assert words[-1] == "RF asks tool_call"
        assert not list((tmp_path / "work" / "t").glob("*.txt"))
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(first.interrupt, APPROVED))
        await thread.resume(yes(second.interrupt, APPROVED))
    before, after = first.interrupt.metadata or {}, second.interrupt.metadata or {}
    assert before["argumentsDigest"] != after["argumentsDigest"]
    assert after["arguments"] == {"command": "touch b.txt"}
    assert "arguments" not in before
    assert _work(tmp_path, "b.txt").exists()


async def test_a_new_message_in_place_of_an_answer_ends_the_turn_where_the_policy_allows_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        pid = world.adapter().pid
        words = await thread.say("say instead", on_pending_interrupt="cancel")
        assert world.adapter().pid == pid
        assert len(world.received("session/cancel")) == 1
    assert (spoken(words), words[-1]) == ("instead", "RF success")
    assert not _work(tmp_path, "a.txt").exists()


async def test_a_token_of_the_interrupted_run_is_not_shown_by_the_run_that_answers(tmp_path: Path) -> None:
    tokens = iter(["token-of-the-first-run", "token-of-the-second-run"])

    def granted(run: Run) -> dict[str, str]:
        token = next(tokens)
        run.secrets.add([token])
        return {"TOKEN_NOW": token}

    async with serve(tmp_path, granted=granted) as world:
        thread = world.thread()
        await thread.say("ask echo one then env TOKEN_NOW")
        with unless_hung():
            started = await world.runner.start(request(resume=[yes(thread.interrupts[0], APPROVED)]))
            stored = await events_of(world.runner, started)
    encoded = b"".join(encode_event(event) for event in stored)
    assert b"[redacted]" in encoded
    assert b"token-of-the" not in encoded


async def test_an_answer_reaches_the_interrupted_process_although_the_configuration_has_changed(tmp_path: Path) -> None:
    context = {"add_dirs": [str(tmp_path)]}
    async with serve(tmp_path, context=context) as world:
        thread = world.thread()
        await thread.say("ask echo one")
        pid = world.adapter().pid
        context["add_dirs"] = []
        answered = await thread.resume(yes(thread.interrupts[0], APPROVED))
        assert world.adapter().pid == pid
        await thread.say("say on")
        assert world.adapter().pid != pid
    assert spoken(answered) == "executed echo one"


async def test_a_redacted_call_runs_with_the_arguments_of_the_process(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, secrets=("very-secret-value",), timeouts=Timeouts(grace=4))
    async with serve(tmp_path, settings=settings) as world:
        thread = world.thread()
        await thread.say("ask echo very-secret-value > a.txt")
        await thread.resume(yes(thread.interrupts[0], APPROVED))
        messages = (await world.runner.view_thread(KEY)).transcript.messages()
    assert "very-secret-value" not in repr(messages)
    assert _work(tmp_path, "a.txt").read_text() == "very-secret-value\n"


async def test_one_answer_wins_when_many_watch(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask echo one")
        interrupt, refusals = thread.interrupts[0], list[int]()

        async def answer() -> None:
            try:
                await ClaudeThread(world.runner, "t").resume(yes(interrupt, APPROVED))
            except RunnerError as error:
                refusals.append(error.status)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(answer)
        batches = await world.runner.ledger.read_batches(KEY, 0)
        assert len({batch.run for batch in batches if batch.run}) == 2
    assert refusals == [409] * 4
