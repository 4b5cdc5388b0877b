"""What Claude asks a person: the process waits, and goes on with the answer."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import os
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import msgspec
import pytest

from ambient_runner.bridges.claude.adapter import ClaudeAdapter
from ambient_runner.bridges.claude.interrupts import LIMIT_REACHED
from ambient_runner.bridges.claude.translate import CUT_OFF
from ambient_runner.bridges.toolkit import held_elsewhere
from ambient_runner.bridges.toolkit.interrupts import DECLINED
from ambient_runner.errors import HeldElsewhere, InterruptNotOpen, InvalidInput, NoActiveRun, PendingInterrupts
from ambient_runner.ledger.process_identity import this_process
from ambient_runner.protocol.events import encode_event
from ambient_runner.runs.run import Run
from tests.bridges.claude.mock import model_conversation, model_request
from tests.bridges.claude.test_text import frame, spoken
from tests.bridges.claude.test_tools import select_words
from tests.bridges.claude.world import PAINT, children, claude, gone, no, yes
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, events_of, request

OTHER_PROCESS = dataclasses.replace(this_process(), pid=os.getppid())


async def test_a_call_that_needs_permission_is_an_interrupt_and_approval_executes_it(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("lynx runs")
        pid = world.adapter().pid
        question = thread.interrupts[0]
        with pytest.raises(PendingInterrupts):
            await thread.say("walrus remembers")
        assert not (tmp_path / "work" / "t" / "ran.txt").exists()
        answered = await thread.resume(yes(question, {"approved": True}))
        assert world.adapter().pid == pid
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(question, {"approved": True}))
    assert frame(words) == ["CS", "CE", "MS", "RF"]
    assert words[-1] == "RF asks tool_call"
    assert (question.tool_call_id, question.message, question.metadata) == (
        "call_run",
        "Claude wants to use Bash.",
        {"tool": "Bash"},
    )
    assert (frame(answered), spoken(answered)) == (["CR", "TS", "TE", "MS", "RF"], "It ran.")
    assert (tmp_path / "work" / "t" / "ran.txt").exists()


async def test_an_answer_that_is_neither_yes_nor_no_is_refused_and_the_interrupt_stays_open(tmp_path: Path) -> None:
    malformed: list[object] = [
        None,
        1,
        "yes",
        [],
        {},
        {"approved": "true"},
        {"approved": 1},
        {"approve": True},
        {"approved": True, "always": "yes"},
        {"approved": False, "message": 5},
        {"approved": True, "editedArgs": "{}"},
        {"approved": True, "editedArgs": {}},
    ]
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        question = thread.interrupts[0]
        for payload in malformed:
            with pytest.raises(InvalidInput):
                await thread.resume(yes(question, payload))
            assert list((await world.runner.view_thread(KEY)).open_interrupts) == [question.id]
        assert not (tmp_path / "work" / "t" / "ran.txt").exists()
        answered = await thread.resume(yes(question, {"approved": True, "editedArgs": None}))
    assert spoken(answered) == "It ran."


async def test_an_answer_to_another_question_is_refused_and_the_interrupt_stays_open(tmp_path: Path) -> None:
    malformed: list[object] = [
        None,
        True,
        [],
        {},
        {"answers": {}},
        {"answers": {"Which color?": "Blue"}},
        {"answers": {"Which colour?": 5}},
        {"answers": {"Which colour?": "Blue", "Which size?": "Large"}},
        {"approved": True},
        {"declined": "true"},
    ]
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx wonders")
        question = thread.interrupts[0]
        for payload in malformed:
            with pytest.raises(InvalidInput):
                await thread.resume(yes(question, payload))
            assert list((await world.runner.view_thread(KEY)).open_interrupts) == [question.id]
        answered = await thread.resume(yes(question, "Blue"))
    assert '"Which colour?"="Blue"' in select_words(answered, "CR")[0].replace("\\", "")


@pytest.mark.parametrize("payload", [{"declined": True}, {"approved": False}])
async def test_a_question_can_be_declined(tmp_path: Path, payload: object) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx wonders")
        answered = await thread.resume(yes(thread.interrupts[0], payload))
    assert DECLINED in select_words(answered, "CR")[0]
    assert answered[-1] == "RF success"


async def test_an_interrupt_of_a_call_whose_id_was_used_before_names_that_call_and_so_does_its_result(
    tmp_path: Path,
) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        words = await thread.say("lynx runs")
        assert select_words(words, "CS")[0].startswith("CS call_run~2 ")
        assert thread.interrupts[0].tool_call_id == "call_run~2"
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": False, "message": "not twice"}))
    assert select_words(answered, "CR") == ['CR call_run~2 "not twice" error']


async def test_a_declined_call_is_reported_to_claude_and_not_executed(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        words = await thread.resume(yes(thread.interrupts[0], {"approved": False, "message": "not today"}))
    assert select_words(words, "CR") == ['CR call_run "not today" error']
    assert not (tmp_path / "work" / "t" / "ran.txt").exists()


async def test_an_approval_may_edit_the_arguments(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        edited = {"command": "echo changed > other.txt", "description": "a command"}
        await thread.resume(yes(thread.interrupts[0], {"approved": True, "editedArgs": edited}))
    assert (tmp_path / "work" / "t" / "other.txt").read_text() == "changed\n"
    assert not (tmp_path / "work" / "t" / "ran.txt").exists()


@pytest.mark.parametrize(("payload", "is_executed"), [(True, True), (False, False), ('{"approved": true}', True)])
async def test_a_bare_boolean_and_the_json_text_of_an_answer_decide_about_a_call(
    tmp_path: Path, payload: object, is_executed: bool
) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        await thread.resume(yes(thread.interrupts[0], payload))
    assert (tmp_path / "work" / "t" / "ran.txt").exists() is is_executed


async def test_always_is_for_this_process_alone_and_writes_no_settings(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        await thread.resume(yes(thread.interrupts[0], {"approved": True, "always": True}))
        again = await thread.say("lynx repeats")
    assert again[-1] == "RF success"
    assert list((tmp_path / "work" / "t" / ".claude").glob("settings*")) == []


async def test_a_question_of_claude_is_answered_by_one_of_its_options(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("lynx wonders")
        question = thread.interrupts[0]
        answered = await thread.resume(yes(question, {"answers": {"Which colour?": "Blue"}}))
    assert words[-1] == "RF asks input_required"
    assert (question.message, question.tool_call_id) == ("Which colour?", "call_ask")
    assert question.metadata is not None
    assert [one["label"] for one in question.metadata["questions"][0]["options"]] == ["Red", "Blue"]
    assert '"Which colour?"="Blue"' in select_words(answered, "CR")[0].replace("\\", "")
    assert spoken(answered) == "Thanks."


async def test_a_cancelled_interrupt_declines_the_call(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx wonders")
        words = await thread.resume(no(thread.interrupts[0]))
    assert select_words(words, "CR") == [f'CR call_ask "{DECLINED}" error']
    assert words[-1] == "RF success"


async def test_an_interrupt_inside_a_subagent_names_the_subagent(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("otter sends away")
        question = thread.interrupts[0]
        answered = await thread.resume(yes(question, {"approved": False}))
    subagent_id = "subagent-call_away"
    assert (question.subagent_run_id, question.tool_call_id) == (subagent_id, "call_deep")
    assert f"END SUB {subagent_id} suspended" in words
    assert select_words(answered, "SUB", "END") == [
        f"SUB {subagent_id} general-purpose < call_away",
        f"END SUB {subagent_id}",
    ]
    assert f'CR call_deep "{DECLINED}" error @{subagent_id}' in answered
    assert answered[-1] == "RF success"


async def test_an_unanswered_interrupt_expires_and_the_next_message_works(tmp_path: Path) -> None:
    async with claude(tmp_path, interrupt_timeout=1.0) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        expires = datetime.fromisoformat(thread.interrupts[0].expires_at or "")
        assert expires - datetime.now().astimezone() < timedelta(seconds=2)
        session = world.adapter().session
        assert session is not None
        with unless_hung():
            for question in session.open_requests:
                await asyncio.wait([question.answer])
            await anyio.sleep((expires - datetime.now().astimezone()).total_seconds())
        words = await thread.say("walrus remembers")
    assert (spoken(words), words[-1]) == ("I remember.", "RF success")


async def test_when_too_many_processes_wait_the_next_request_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with claude(tmp_path, max_waiting_processes=1) as world:
        first, second = world.thread("a"), world.thread("b")
        await first.say("lynx runs")
        refused = await second.say("lynx runs")
        assert refused[-1] == "RF success"
        assert select_words(refused, "CR") == [f'CR call_run "{LIMIT_REACHED}" error']
        answered = await first.resume(yes(first.interrupts[0], {"approved": True}))
        assert answered[-1] == "RF success"
        assert (await second.say("lynx wonders"))[-1] == "RF asks input_required"


async def test_an_interrupt_lapses_with_its_process_and_claude_asks_again(tmp_path: Path) -> None:
    store = tmp_path / "threads.db"
    async with claude(tmp_path, store=store) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        await thread.say("lynx runs")
        lost = thread.interrupts[0]
        processes = children()
    await gone(processes)
    async with claude(tmp_path, store=store) as world:
        thread = world.thread()
        again = await thread.resume(yes(lost, {"approved": True}))
        assert again[0] == f'CUSTOM ambient:interrupt_lapsed {{"interruptIds": ["{lost.id}"]}}'
        assert again[1].startswith("CR ")  # The call that lapsed has a result: clients show that it is over.
        assert not (tmp_path / "work" / "t" / "ran.txt").exists()
        assert again[-1] == "RF asks tool_call"
        done = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        assert done[-1] == "RF success"
    assert (tmp_path / "work" / "t" / "ran.txt").exists()


async def test_a_declined_interrupt_counts_also_if_the_process_is_gone(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        await world.adapter().aclose()
        await thread.resume(no(thread.interrupts[0]))
    assert "The user declined what you asked for." in str(model_request("lynx runs")["messages"])


async def test_a_process_that_waits_for_an_answer_is_not_evicted(tmp_path: Path) -> None:
    async with claude(tmp_path, idle=0) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        pid = world.adapter().pid
        await world.hosted.evict_idle()
        assert world.adapter().pid == pid
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        assert (select_words(answered, "CUSTOM"), answered[-1]) == ([], "RF success")
        await world.hosted.evict_idle()
        assert children() == []


async def test_a_closed_process_lapses_its_interrupt_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        lost = thread.interrupts[0]
        await world.adapter().aclose()
        assert children() == []
        assert [one.name for one in caplog.records if one.levelno == logging.WARNING] == [ClaudeAdapter.__module__]
        again = await thread.resume(yes(lost, {"approved": True}))
        assert again[0].startswith("CUSTOM ambient:interrupt_lapsed")
        assert again[-1] == "RF asks tool_call"


async def test_a_stop_cancels_an_open_question_and_the_process_stays(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        pid, question = world.adapter().pid, thread.interrupts[0]
        asked = await world.runner.stop(KEY)
        assert not world.adapter().is_waiting
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(question, {"approved": True}))
        with pytest.raises(NoActiveRun):
            await world.runner.stop(KEY)
        words = await thread.say("walrus remembers")
        assert world.adapter().pid == pid
        batches = await world.runner.ledger.read_batches(KEY, 0)
    assert asked in {batch.run for batch in batches}
    facts = [(batch.kind, msgspec.json.decode(line)) for batch in batches for line in batch.lines if not batch.run]
    assert facts == [("interrupts_cancelled", {"interruptIds": [question.id]})]
    assert (spoken(words), words[-1]) == ("I remember.", "RF success")
    assert not (tmp_path / "work" / "t" / "ran.txt").exists()


async def test_a_question_is_shown_while_claude_still_streams_beside_the_subagent_that_asks(tmp_path: Path) -> None:
    """The next call of Claude itself takes a minute to stream. The question of the subagent does not wait for it."""
    async with claude(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("otter juggles")
        question = thread.interrupts[0]
        answered = await thread.resume(yes(question, {"approved": False}))
    assert (question.subagent_run_id, question.tool_call_id) == ("subagent-call_first", "call_deep")
    assert select_words(words, "CR") == [f'CR call_slow "{CUT_OFF}" error']
    assert select_words(answered, "CS")[0].startswith("CS call_slow~2 ")
    assert answered[-1] == "RF success"


async def test_an_answer_to_a_process_of_another_server_process_is_refused_there_and_accepted_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "threads.db"
    async with claude(tmp_path, store=store) as world, claude(tmp_path, store=store) as other:
        thread = world.thread()
        await thread.say("lynx runs")
        question = thread.interrupts[0]
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(held_elsewhere, "this_process", lambda: OTHER_PROCESS)
            with pytest.raises(HeldElsewhere):
                await other.thread().resume(yes(question, {"approved": True}))
        answered = await thread.resume(yes(question, {"approved": True}))
    assert (select_words(answered, "CUSTOM"), answered[-1]) == ([], "RF success")
    assert (tmp_path / "work" / "t" / "ran.txt").exists()


async def test_an_interrupt_that_another_server_process_holds_can_be_cancelled_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "threads.db"
    async with claude(tmp_path, store=store) as world, claude(tmp_path, store=store) as other:
        thread = world.thread()
        await thread.say("lynx runs")
        monkeypatch.setattr(held_elsewhere, "this_process", lambda: OTHER_PROCESS)
        await other.thread().resume(no(thread.interrupts[0]))
    assert "The user declined what you asked for." in str(model_request("lynx runs")["messages"])
    assert not (tmp_path / "work" / "t" / "ran.txt").exists()


async def test_an_interrupt_of_a_server_process_that_died_is_not_held_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "threads.db"
    dead = dataclasses.replace(this_process(), started="0")
    async with claude(tmp_path, store=store) as world:
        thread = world.thread()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(held_elsewhere, "this_process", lambda: dead)
            await thread.say("lynx runs")
        lost = thread.interrupts[0]
        async with claude(tmp_path, store=store) as other:
            again = await other.thread().resume(yes(lost, {"approved": True}))
    assert again[0].startswith("CUSTOM ambient:interrupt_lapsed")
    assert again[-1] == "RF asks tool_call"


async def test_a_process_that_is_killed_while_it_waits_leaves_no_unread_exception(tmp_path: Path) -> None:
    """The loop would report one when the task is collected, and anyio's plugin fails the test."""
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        session = world.adapter().session
        assert session is not None
        session.kill()
        with unless_hung():
            while session.is_alive:
                await anyio.sleep(0.02)
        again = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        assert again[-1] == "RF asks tool_call"
    del session
    gc.collect()


async def test_a_result_for_a_process_that_is_gone_is_sent_to_the_next_one(tmp_path: Path) -> None:
    store = tmp_path / "threads.db"
    async with claude(tmp_path, store=store) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("walrus begins")
        await thread.say("otter paints")
    async with claude(tmp_path, store=store) as world:
        words = await world.thread(tools=[PAINT]).answer(call_paint="walrus sums up, in teal")
    assert (spoken(words), words[-1]) == ("All told.", "RF success")
    assert model_conversation("walrus sums up")[:2] == [("user", "walrus begins"), ("assistant", "I begin.")]
    assert "otter paints" in str(model_request("walrus sums up")["messages"][-1])


async def test_a_token_of_the_interrupted_run_is_not_shown_by_the_run_that_answers(tmp_path: Path) -> None:
    tokens = iter(["token-of-the-first-run", "token-of-the-second-run"])

    def granted(run: Run) -> dict[str, str]:
        token = next(tokens)
        run.secrets.add([token])
        return {"TOKEN_NOW": token, "GREETING": "good-morning-to-you"}

    async with claude(tmp_path, granted=granted, permission_mode="default") as world:
        thread = world.thread()
        await thread.say("otter prints")
        answer = request(resume=[yes(thread.interrupts[0], {"approved": True})])
        with unless_hung():
            stored = await events_of(world.runner, await world.runner.start(answer))
    encoded = b"".join(encode_event(event) for event in stored)
    assert b"TOKEN_NOW=[redacted]" in encoded
    assert b"GREETING=good-morning-to-you" in encoded
    assert b"token-of-the" not in encoded


async def test_an_answer_reaches_the_interrupted_process_although_the_configuration_has_changed(tmp_path: Path) -> None:
    context = {"system_prompt_append": "be brief"}
    async with claude(tmp_path, context=context) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        pid = world.adapter().pid
        context["system_prompt_append"] = "be verbose"
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        assert world.adapter().pid == pid
        await thread.say("walrus remembers")
        assert world.adapter().pid != pid
    assert (select_words(answered, "CUSTOM"), answered[-1]) == ([], "RF success")
    assert (tmp_path / "work" / "t" / "ran.txt").exists()
    assert "be verbose" in str(model_request("walrus remembers"))


async def test_a_call_whose_arguments_have_changed_since_it_was_shown_is_asked_about_again(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        (first,) = (await world.runner.view_thread(KEY)).open_interrupts.values()
        session = world.adapter().session
        assert session is not None
        (waiting,) = session.open_requests
        waiting.input = {**waiting.input, "command": "echo changed > other.txt"}
        words = await thread.resume(yes(first.interrupt, {"approved": True}))
        (second,) = (await world.runner.view_thread(KEY)).open_interrupts.values()
        assert words[-1] == "RF asks tool_call"
        assert not list((tmp_path / "work" / "t").glob("*.txt"))
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(first.interrupt, {"approved": True}))
        await thread.resume(yes(second.interrupt, {"approved": True}))
    before, after = first.interrupt.metadata or {}, second.interrupt.metadata or {}
    assert before["argumentsDigest"] != after["argumentsDigest"]
    assert after["arguments"]["command"] == "echo changed > other.txt"
    assert (tmp_path / "work" / "t" / "other.txt").read_text() == "changed\n"


async def test_a_redacted_call_runs_with_the_arguments_of_the_process(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, secrets=("curl --version",))
    async with claude(tmp_path, settings=settings) as world:
        thread = world.thread()
        await thread.say("lynx runs")
        await thread.resume(yes(thread.interrupts[0], {"approved": True}))
        messages = (await world.runner.view_thread(KEY)).transcript.messages()
    assert "curl --version" not in repr(messages)
    assert (tmp_path / "work" / "t" / "ran.txt").exists()
