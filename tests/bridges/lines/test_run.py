"""Runs of the fake command: prompts, sessions, ends of turns, stops, failures, and what a process gets."""

from __future__ import annotations

import json
import logging
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.lines.adapter import LinesAdapter
from ambient_runner.bridges.lines.bridge import LinesBridge
from ambient_runner.errors import NoUserMessage
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.events import (
    AssistantMessage,
    Cancelled,
    Custom,
    Event,
    FunctionCall,
    Message,
    RunAgentInput,
    RunError,
    RunFinished,
    Success,
    ToolCall,
    ToolCallResult,
    ToolMessage,
    UserMessage,
)
from tests.bridges.claude.world import children, gone
from tests.bridges.lines.world import World, fake_command, serve, shown_text
from tests.machine_speed import promised_within, unless_hung
from tests.world import KEY, events_of, structs_of

FORMATS = ["text", "codex", "gemini", "opencode", "claude"]


def _sessions(events: list[Event]) -> list[str]:
    return [event.value["started"] for event in events if isinstance(event, Custom) and event.name == "lines:session"]


def _resumable(tmp_path: Path, output: str = "codex") -> dict[str, Any]:
    """Return the settings of a command that can continue its sessions."""
    options = {"format": output, "sessions": str(tmp_path / "sessions")}
    return {"command": fake_command(**options), "resume_command": fake_command(**options, resume="{session}")}


# Text and tools


@pytest.mark.parametrize("output", FORMATS)
async def test_the_answer_of_every_format_is_shown_once(tmp_path: Path, output: str) -> None:
    async with serve(tmp_path, {"format": output}) as world:
        events = await world.stored("say hello there")
    assert shown_text(events) == "hello there"
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == Success()


@pytest.mark.parametrize("output", FORMATS[1:])
async def test_tools_and_tokens_of_every_format(tmp_path: Path, output: str) -> None:
    async with serve(tmp_path, {"format": output}) as world:
        events = await world.thread().say("say first then run ls then say done")
        [usage] = world.runner.taps["t"][-1].usage  # type: ignore[attr-defined]
    kinds = [event.split(" ")[0] for event in events if event != "MS"]
    assert kinds == ["CUSTOM", "TS", "TC", "TE", "CS", "CA", "CE", "CR", "TS", "TC", "TE", "RF"]
    assert usage.output_tokens == 3


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
async def test_a_stop_reason_is_in_the_result(tmp_path: Path, reason: str) -> None:
    async with serve(tmp_path, {"format": "claude"}) as world:
        events = await world.stored(f"say hi then stop-reason {reason}")
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == Success()
    assert events[-1].result == {"stopReason": reason}


async def test_the_prompt_can_be_an_argument(tmp_path: Path) -> None:
    async with serve(tmp_path, {"prompt": "{prompt}"}) as world:
        assert shown_text(await world.stored("say {prompt} {session}")) == "{prompt} {session}"


async def test_a_prompt_never_becomes_an_option(tmp_path: Path) -> None:
    command = [*fake_command(), "--prompt", "{prompt}"]
    async with serve(tmp_path, command=command) as world:
        events = await world.stored("--yolo\narguments")
    assert json.loads(shown_text(events)) == ["--prompt", " --yolo\narguments"]


async def test_a_prompt_that_is_too_long_for_an_argument_loses_its_oldest_turns(tmp_path: Path) -> None:
    async with serve(tmp_path, {"prompt": "{prompt}"}) as world:
        await world.stored(f"say {'x' * 100_000}")
        events = await world.stored(f"say {'y' * 50_000}", message_id="u2")
        assert isinstance(events[-1], RunFinished)
        events = await world.stored("history", message_id="u3")
        assert "xxx" not in shown_text(events)
        assert "yyy" in shown_text(events)
        events = await world.stored(f"say {'z' * 200_000}", message_id="u4")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "lines_failed"


async def test_a_last_line_without_its_end_is_not_lost(tmp_path: Path) -> None:
    line = {"type": "text", "text": "the end"}
    async with serve(tmp_path, command=["printf", "%s", json.dumps(line)]) as world:
        assert shown_text(await world.stored("hi")) == "the end"


async def test_a_flood_of_lines_arrives_whole_and_in_order(tmp_path: Path) -> None:
    async with serve(tmp_path, {"format": "gemini"}) as world:
        events = await world.stored("lines 5000")
    assert shown_text(events) == "".join(f"line {number}" for number in range(5000))


async def test_a_line_that_is_too_long_is_skipped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(tmp_path, {"format": "codex"}) as world:
        events = await world.stored(f"flood {17 << 20} then say after")
    assert shown_text(events) == "after"
    assert any("too long" in record.message for record in caplog.records if record.levelno == logging.WARNING)


async def test_a_number_of_more_than_64_bits_harms_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, {"format": "codex"}) as world:
        events = await world.stored(f'raw {{"type": "big", "n": {10**40}}}\\n then say after')
    assert shown_text(events) == "after"
    assert isinstance(events[-1], RunFinished)


# The conversation


async def test_without_a_session_the_conversation_is_sent_as_text(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        first = await world.stored("say one")
        second = await world.stored("history", message_id="u2")
    assert _sessions(first) == ["new"]
    assert _sessions(second) == ["replayed"]
    assert "User: say one\n\nYou: one" in shown_text(second)


@pytest.mark.parametrize("output", FORMATS[1:])
async def test_a_session_is_continued(tmp_path: Path, output: str) -> None:
    async with serve(tmp_path, **_resumable(tmp_path, output)) as world:
        await world.stored("say one")
        events = await world.stored("history", message_id="u2")
    assert _sessions(events) == ["resumed"]
    assert shown_text(events).split() == ["say", "one", "history"]


async def test_a_session_is_continued_in_another_server(tmp_path: Path) -> None:
    settings, store = _resumable(tmp_path), tmp_path / "store.db"
    async with serve(tmp_path, store=store, **settings) as world:
        await world.stored("say one")
    async with serve(tmp_path, store=store, **settings) as world:
        events = await world.stored("history", message_id="u2")
    assert _sessions(events) == ["resumed"]


async def test_a_session_that_is_lost_is_replaced_by_the_conversation(tmp_path: Path) -> None:
    async with serve(tmp_path, **_resumable(tmp_path)) as world:
        await world.stored("say one")
        for file in (tmp_path / "sessions").iterdir():
            file.unlink()
        events = await world.stored("history", message_id="u2")
        assert _sessions(events) == ["resumed", "replayed"]
        assert "User: say one" in shown_text(events)
        assert _sessions(await world.stored("say three", message_id="u3")) == ["resumed"]


async def test_a_rewound_thread_gets_a_new_session(tmp_path: Path) -> None:
    async with serve(tmp_path, **_resumable(tmp_path)) as world:
        await world.stored("say one")
        await world.stored("say two", message_id="u2")
        events = await world.stored("history", message_id="u1")
    assert _sessions(events) == ["new"]
    assert "two" not in shown_text(events)


async def test_a_fork_gets_a_session_of_its_own_with_the_conversation_up_to_there(tmp_path: Path) -> None:
    async with serve(tmp_path, **_resumable(tmp_path)) as world:
        await world.stored("say one")
        await world.stored("say two", message_id="u2")
        point = ForkOrigin(thread_id="t", message_id="u2")
        events = await world.stored("history", thread="fork", message_id="n", fork=point)
    assert _sessions(events) == ["replayed"]
    assert "User: say one\n\nYou: one" in shown_text(events)
    assert "two" not in shown_text(events)


async def test_a_session_gets_the_turn_that_was_stopped(tmp_path: Path) -> None:
    async with serve(tmp_path, **_resumable(tmp_path)) as world:
        await world.stored("say one")
        started = await world.start("hang", message_id="u2")
        await world.runner.ledger.request_stop(KEY, "stop")
        await events_of(world.runner, started)
        events = await world.stored("history", message_id="u3")
    assert _sessions(events) == ["resumed"]
    assert shown_text(events).count("say one") == 1
    assert "User: hang\n\nYou: I begin and" in shown_text(events)


async def test_a_session_that_fails_is_continued_once_more_and_gets_the_turn_that_failed(tmp_path: Path) -> None:
    async with serve(tmp_path, **_resumable(tmp_path)) as world:
        await world.stored("say one")
        assert isinstance((await world.stored("crash", message_id="u2"))[-1], RunError)
        events = await world.stored("history", message_id="u3")
        assert _sessions(events) == ["resumed"]
        assert shown_text(events).count("say one") == 1
        assert "User: crash" in shown_text(events)


async def test_a_session_that_fails_twice_is_given_up(tmp_path: Path) -> None:
    async with serve(tmp_path, **_resumable(tmp_path)) as world:
        await world.stored("say one")
        for message_id in ("u2", "u3"):
            failed = await world.stored("fail", message_id=message_id)
            assert _sessions(failed) == ["resumed"]  # It has begun, so nothing is done twice.
            assert isinstance(failed[-1], RunError)
        events = await world.stored("history", message_id="u4")
        assert _sessions(events) == ["replayed"]
        assert shown_text(events).count("say one") == 1


async def test_an_adapter_without_a_server_keeps_its_session_and_answers_open_calls(tmp_path: Path) -> None:
    call = ToolCall(id="c1", function=FunctionCall(name="paint", arguments="{}"))
    history = [UserMessage(id="u0", content="paint"), AssistantMessage(id="a0", tool_calls=[call])]
    adapter = LinesBridge(**_resumable(tmp_path)).create_adapter(PlatformContext(cwd_path=str(tmp_path)))
    with unless_hung():
        first = await _run_adapter(adapter, [*history, UserMessage(id="u1", content="say hi")])
        second = await _run_adapter(
            adapter, [*history, *(UserMessage(id=name, content="history") for name in ("u1", "u2"))]
        )
    assert isinstance(first[0], ToolCallResult)
    assert first[0].tool_call_id == "c1"
    assert _sessions(first) == ["replayed"]
    assert _sessions(second) == ["resumed"]


async def test_an_adapter_without_a_server_continues_with_the_results_of_tools(tmp_path: Path) -> None:
    call = ToolCall(id="c1", function=FunctionCall(name="paint", arguments="{}"))
    answered = ToolMessage(id="r1", tool_call_id="c1", content="painted")
    adapter = LinesBridge(["cat"], format="text").create_adapter(PlatformContext(cwd_path=str(tmp_path)))
    messages = [UserMessage(id="u0", content="paint"), AssistantMessage(id="a0", tool_calls=[call]), answered]
    with unless_hung():
        events = await _run_adapter(adapter, messages)
        with pytest.raises(NoUserMessage):
            await _run_adapter(adapter, [])
    assert "Your call to paint:\npainted" in shown_text(events)


async def _run_adapter(adapter: LinesAdapter, messages: list[Message]) -> list[Event]:
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=messages)
    return [event async for event in structs_of(adapter.run(input_to_agui(run_input)))]


async def test_the_instructions_of_the_server_come_with_a_new_session(tmp_path: Path) -> None:
    settings = {**_resumable(tmp_path), "context": {"system_prompt_append": "Be kind."}}
    async with serve(tmp_path, **settings) as world:
        assert "Be kind." in shown_text(await world.stored("history"))
        assert shown_text(await world.stored("history", message_id="u2")).count("Be kind.") == 1


# The end of a turn


@pytest.mark.parametrize("kind", ["file", "fifo"])
async def test_a_notify_line_ends_the_turn_of_a_command_that_stays(tmp_path: Path, kind: str) -> None:
    settings = {"end": "notify", "notify": kind}
    async with serve(tmp_path, {"stay": "yes"}, **settings) as world:
        events = await world.stored("say hello then notify")
    assert shown_text(events) == "hello"
    assert isinstance(events[-1], RunFinished)


@pytest.mark.parametrize("kind", ["file", "fifo"])
async def test_only_the_notification_of_a_turns_end_counts(tmp_path: Path, kind: str) -> None:
    script = (
        'notify {"type": "approval-requested"} then wait 0.3 then say hello then notify {"type": "agent-turn-complete"}'
    )
    async with serve(tmp_path, {"stay": "yes"}, end="notify", notify=kind) as world:
        assert shown_text(await world.stored(script)) == "hello"


async def test_a_notify_line_without_its_end_counts(tmp_path: Path) -> None:
    async with serve(tmp_path, {"stay": "yes"}, end="notify") as world:
        assert shown_text(await world.stored("say hello then unfinished-notify")) == "hello"


@pytest.mark.parametrize("kind", ["file", "fifo"])
async def test_a_stale_notify_line_ends_nothing(tmp_path: Path, kind: str) -> None:
    """A line that is written to the file of an earlier turn, and one that an earlier turn has left there."""
    options = {"stay": "yes", "stale": str(tmp_path / "stale")}
    async with serve(tmp_path, options, end="notify", notify=kind) as world:
        await world.stored("notify")
        events = await world.stored("wait 0.5 then say hello then notify", message_id="u2")
    assert shown_text(events) == "hello"


async def test_an_exit_ends_a_turn_without_its_notify_line(tmp_path: Path) -> None:
    async with serve(tmp_path, end="notify") as world:
        assert isinstance((await world.stored("say hello"))[-1], RunFinished)
        assert isinstance((await world.stored("crash", message_id="u2"))[-1], RunError)


async def test_silence_ends_the_turn_but_not_before_the_first_output(tmp_path: Path) -> None:
    async with serve(tmp_path, {"stay": "yes"}, end="idle", idle_seconds=0.3) as world:
        events = await world.stored("wait 1 then say hello")
    assert shown_text(events) == "hello"
    assert isinstance(events[-1], RunFinished)


async def test_what_an_exited_command_has_left_running_does_not_keep_its_turn_open(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored("fork then say hello")
        assert shown_text(events) == "hello"
        await gone(children())


async def test_a_command_that_prints_nothing_for_too_long_is_stopped(tmp_path: Path) -> None:
    async with serve(tmp_path, turn_timeout=0.5) as world:
        events = await world.stored("silent")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "agent_timeout"


@pytest.mark.parametrize(
    "settings", [{}, {"end": "notify", "notify": "fifo"}, {"end": "notify"}], ids=["exit", "fifo", "file"]
)
async def test_turns_leave_no_descriptor_and_no_file(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    async with serve(tmp_path, **settings) as world:
        await world.stored("say hello")
        before = psutil.Process().num_fds()
        for number in range(10):
            await world.stored("say hello then crash" if number % 2 else "say hello", message_id=f"n{number}")
        assert psutil.Process().num_fds() == before
        assert list(temporary.iterdir()) == []


# Stops and failures


async def test_a_stop_ends_the_process(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        started = await world.start("hang")
        pid = world.adapter().pid
        assert pid is not None
        process = psutil.Process(pid)
        await world.runner.ledger.request_stop(KEY, "stop")
        with unless_hung():
            events = await events_of(world.runner, started)
        assert isinstance(events[-1], RunFinished)
        assert isinstance(events[-1].outcome, Cancelled)
        await gone([process])
        assert world.adapter().pid is None


async def test_a_stop_before_the_process_has_started_starts_none(tmp_path: Path) -> None:
    adapter = LinesBridge(fake_command()).create_adapter(PlatformContext(cwd_path=str(tmp_path)))
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=[UserMessage(id="u1", content="say hi")])
    await adapter.interrupt()
    with unless_hung():
        async with aclosing(structs_of(adapter.run(input_to_agui(run_input)))) as events:
            assert _sessions([await anext(events)]) == ["new"]
            await adapter.interrupt()
            end = [event async for event in events][-1]
        await adapter.interrupt()
    assert isinstance(end, RunFinished)
    assert isinstance(end.outcome, Cancelled)
    assert children() == []


async def test_a_command_that_closes_its_output_ends_its_turn_with_its_exit(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored("close-output 0.7")
    assert shown_text(events) == "that is all"
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "lines_failed"


async def test_a_stop_ends_a_command_that_ignores_it_and_everything_it_has_started(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        started = await world.start("stubborn then hang")
        processes = children()
        assert len(processes) >= 2
        with promised_within(10):
            await world.runner.ledger.request_stop(KEY, "stop")
            events = await events_of(world.runner, started)
        assert isinstance(events[-1], RunFinished)
        assert isinstance(events[-1].outcome, Cancelled)
        await gone(processes)


async def test_a_failure_has_a_code_and_the_log_has_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored("crash")
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "lines_failed"
    assert "fatal" not in events[-1].message
    assert "fatal: the fake command has crashed" in caplog.text
    assert "code 3" in caplog.text


async def test_an_error_that_a_command_reports_fails_the_run_although_it_exits_normally(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"format": "codex"}
    async with serve(tmp_path, options) as world:
        events = await world.stored("say I try then error overloaded then stop-reason")
        assert isinstance(events[-1], RunFinished)  # it went on: `turn.completed` came after it
        events = await _fail_with_error(world)
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "lines_failed"
    assert "overloaded" in caplog.text


async def _fail_with_error(world: World) -> list[Any]:
    return await world.stored(
        'raw {"type": "turn.failed", "error": {"message": "overloaded"}}\\n then fail', message_id="u2"
    )


async def test_a_command_that_has_vanished_is_unavailable(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o700)
    async with serve(tmp_path, command=[str(program)]) as world:
        assert shown_text(await world.stored("hi")) == "hello"
        program.unlink()
        events = await world.stored("hi", message_id="u2")
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "agent_unavailable"


async def test_at_the_limit_of_processes_a_run_is_refused_and_nothing_is_forgotten(tmp_path: Path) -> None:
    async with serve(tmp_path, processes=1, **_resumable(tmp_path)) as world:
        await world.stored("say one", thread="b")
        started = await world.start("hang", thread="a")
        events = await world.stored("say two", thread="b", message_id="u2")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "lines_busy"
        await world.runner.ledger.request_stop(KEY._replace(id="a"), "stop")
        with unless_hung():
            await events_of(world.runner, started)
        assert _sessions(await world.stored("say three", thread="b", message_id="u3")) == ["resumed"]


# What a process gets


async def test_a_process_has_the_granted_variables_and_the_directory_of_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED_TOKEN", "a-server-secret-4711")
    monkeypatch.setenv("PASSED_ON", "yes")
    async with serve(
        tmp_path, granted=lambda run: {"GRANTED": "yes"}, env={"MINE": "1"}, pass_env=["PASSED_ON"]
    ) as world:
        told = json.loads(shown_text(await world.stored("environment")))
    assert {"GRANTED", "MINE", "PASSED_ON", "PATH"} <= set(told["names"])
    assert "UNRELATED_TOKEN" not in told["names"]
    assert "AMBIENT_NOTIFY" not in told["names"]
    assert told["cwd"] == told["PWD"] == str(tmp_path / "work" / "t")


async def test_a_secret_of_the_settings_is_redacted(tmp_path: Path) -> None:
    async with serve(tmp_path, env={"MY_API_KEY": "sk-quicksilver-4711-abcdef"}) as world:
        text = shown_text(await world.stored("say the key is sk-quicksilver-4711-abcdef"))
    assert "quicksilver" not in text


@pytest.mark.parametrize(
    ("home", "serves_others", "is_own"),
    [("auto", True, True), ("auto", False, False), ("thread", False, True), ("user", True, False)],
)
async def test_a_thread_has_a_home_of_its_own_when_others_can_connect(
    tmp_path: Path, *, home: str, serves_others: bool, is_own: bool
) -> None:
    async with serve(tmp_path, home=home, context={"serves_others": serves_others}) as world:
        told = json.loads(shown_text(await world.stored("environment")))
    own = tmp_path / "work" / "t" / ".ambient" / "home-lines"
    assert (told["HOME"] == str(own)) is is_own
    assert own.is_dir() is is_own


async def test_a_directory_of_the_settings(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with serve(tmp_path, cwd=str(project)) as world:
        told = json.loads(shown_text(await world.stored("environment")))
        assert told["cwd"] == str(project)
        project.rmdir()
        events = await world.stored("environment", message_id="u2")
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "agent_unavailable"
