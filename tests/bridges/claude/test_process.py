"""The process behind a thread: what it knows, how it ends, and that it never stays."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tempfile
from contextlib import aclosing, suppress
from pathlib import Path

import anyio
import psutil
import pytest

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.claude import launch_files
from ambient_runner.config import Settings, Timeouts
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Run
from tests.bridges.claude.mock import model_conversation, model_request
from tests.bridges.claude.test_text import spoken
from tests.bridges.claude.test_tools import select_words
from tests.bridges.claude.world import World, bridge_of, children, claude, gone
from tests.bridges.strands.world import tasks_since
from tests.machine_speed import promised_within, scaled, unless_hung
from tests.world import KEY, events_of, request, structs_of, user


async def started(world: World, text: str, thread: str = "t", message: str = "u1") -> asyncio.Task[list[e.Event]]:
    """A run that has begun to say something, and a task that reads it to its end."""
    run = await world.runner.start(request(user(message, text), thread=thread))
    reading = asyncio.create_task(events_of(world.runner, run))
    with unless_hung():
        async with aclosing(follow_run(world.runner.ledger, run)) as events:
            async for event in events:
                if isinstance(event, e.TextMessageContent | e.ToolCallEnd):
                    break
    return reading


async def test_a_stop_ends_the_turn_and_the_process_continues(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        reading = await started(world, "gnu goes on")
        pid = world.adapter().pid
        with unless_hung():
            await world.runner.stop(KEY)
            events = await reading
        assert isinstance(events[-1], e.RunFinished)
        assert isinstance(events[-1].outcome, e.Cancelled)
        thread = world.thread()
        thread.count = 1
        words = await thread.say("walrus remembers")
        assert world.adapter().pid == pid
    assert spoken(words) == "I remember."
    assert model_conversation("walrus remembers")[0] == ("user", "gnu goes on")


async def test_a_process_that_does_not_obey_a_stop_is_ended(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        reading = await started(world, "gnu goes on")
        adapter = world.adapter()
        assert adapter.pid is not None
        stuck = psutil.Process(adapter.pid)
        stuck.suspend()
        await adapter.interrupt()
        events = await reading
        await gone([stuck])
    assert isinstance(events[-1], e.RunFinished)
    assert isinstance(events[-1].outcome, e.Cancelled)


async def test_a_process_that_dies_in_the_middle_is_an_error_at_once_and_the_next_run_has_a_new_one(
    tmp_path: Path,
) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        reading = await started(world, "gnu goes on", message="u2")
        pid = world.adapter().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with unless_hung():
            events = await reading
        assert isinstance(events[-1], e.RunError)
        assert events[-1].code == "claude_exited"
        thread.count = 2
        words = await thread.say("walrus remembers")
        assert world.adapter().pid != pid
    assert spoken(words) == "I remember."
    seen = model_conversation("walrus remembers")
    assert seen[:2] == [("user", "walrus begins"), ("assistant", "I begin.")]
    assert seen[-1] == ("user", "walrus remembers")


async def test_a_process_that_dies_between_runs_is_replaced(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        pid = world.adapter().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await gone([psutil.Process(pid)])
        words = await thread.say("walrus remembers")
    assert spoken(words) == "I remember."
    assert model_conversation("walrus remembers")[0] == ("user", "walrus begins")


async def test_a_shutdown_of_the_event_loop_while_a_process_ends_leaves_nothing_open(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        await world.thread().say("walrus begins")
        session = world.adapter().session
        assert session is not None
        assert session.pid is not None
        process = psutil.Process(session.pid)
        process.suspend()  # It cannot exit by itself, so the end is still under way when the loop cancels all tasks.
        ending = asyncio.create_task(session.aclose())
        with unless_hung():
            while session.pid is not None:
                await asyncio.sleep(0)
            assert session._task is not None
            session._task.cancel()
            await ending
            await gone([process])
        del session, ending
    gc.collect()  # A stream that is still open would warn now, and fail this test.


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("reason", ["missing", "no program", "fails"])
async def test_a_cli_that_cannot_start_is_an_error_and_frees_the_thread(tmp_path: Path, reason: str) -> None:
    path = tmp_path / "cli"
    if reason == "no program":
        path.write_text("this is no program")
        path.chmod(0o755)
    elif reason == "fails":
        script(path, "echo 'no luck' >&2; exit 3")
    async with claude(tmp_path, cli_path=path) as world:
        thread = world.thread()
        for _ in range(2):
            with promised_within(5):
                stored = await world.stored(thread, "say hello there")
            assert isinstance(stored[-1], e.RunError)
            assert stored[-1].code == "agent_unavailable"
            assert str(tmp_path) not in stored[-1].message


async def test_a_cli_that_hangs_at_its_start_is_an_error_in_time(tmp_path: Path) -> None:
    cli = script(tmp_path / "cli", "sleep 300")
    async with claude(tmp_path, cli_path=cli, start_timeout=0.5) as world:
        stored = await world.stored(world.thread(), "say hello there")
        assert children() == []
    assert isinstance(stored[-1], e.RunError)
    assert stored[-1].code == "agent_timeout"


async def test_a_cli_that_hangs_in_the_middle_is_an_error_in_time_and_the_next_run_works(tmp_path: Path) -> None:
    async with claude(tmp_path, turn_timeout=scaled(1.0)) as world:
        reading = await started(world, "gnu goes on")
        pid = world.adapter().pid
        assert pid is not None
        stuck = psutil.Process(pid)
        stuck.suspend()
        events = await reading
        await gone([stuck])
        assert isinstance(events[-1], e.RunError)
        assert events[-1].code == "agent_timeout"
        thread = world.thread()
        thread.count = 1
        assert (await thread.say("say hello there"))[-1] == "RF success"


async def test_a_stop_while_the_cli_starts_ends_the_run(tmp_path: Path) -> None:
    cli = script(tmp_path / "cli", "sleep 300")
    async with claude(tmp_path, cli_path=cli) as world:
        run = await world.runner.start(request(user("u1", "say hello there")))
        with unless_hung():
            while not children():
                await anyio.sleep(0.02)
            await world.runner.stop(KEY)
            events = await events_of(world.runner, run)
        assert children() == []
    assert isinstance(events[-1], e.RunFinished)
    assert isinstance(events[-1].outcome, e.Cancelled)


async def test_two_users_at_once_see_only_what_was_granted_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_ONLY", "of-the-server-alone")

    def granted(run: Run) -> dict[str, str]:
        return {"GRANTED": f"granted-to-{run.thread.id}", f"ONLY_{run.thread.id.upper()}": "mine"}

    async with claude(tmp_path, granted=granted, allowed_tools=["Bash(env)"]) as world:
        threads = [world.thread("alice"), world.thread("bob")]
        output: dict[str, str] = {}

        async def prints(name: str) -> None:
            words = await threads[name == "bob"].say("otter prints")
            output[name] = select_words(words, "CR")[0]

        async with anyio.create_task_group() as both:
            both.start_soon(prints, "alice")
            both.start_soon(prints, "bob")
    for name, other in (("alice", "bob"), ("bob", "alice")):
        assert f"GRANTED=granted-to-{name}" in output[name]
        assert f"ONLY_{name.upper()}=mine" in output[name]
        assert f"granted-to-{other}" not in output[name]
        assert f"ONLY_{other.upper()}" not in output[name]
        assert "SERVER_ONLY" not in output[name]
        assert "PATH=" in output[name]


async def test_what_is_granted_anew_reaches_the_next_run(tmp_path: Path) -> None:
    tokens = iter(["first-token", "second-token"])
    async with claude(tmp_path, granted=lambda _: {"TOKEN_NOW": next(tokens)}, allowed_tools=["Bash(env)"]) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        words = await thread.say("otter prints")
    assert "TOKEN_NOW=second-token" in select_words(words, "CR")[0]


async def test_an_evicted_thread_leaves_no_process_and_continues_with_its_memory(tmp_path: Path) -> None:
    async with claude(tmp_path, idle=0) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        assert len(children()) == 1
        await world.hosted.evict_idle()
        assert children() == []
        await thread.say("walrus remembers")
    assert model_conversation("walrus remembers")[:2] == [("user", "walrus begins"), ("assistant", "I begin.")]


async def test_commands_that_claude_left_running_end_with_it(tmp_path: Path) -> None:
    async with claude(tmp_path, allowed_tools=["Bash"]) as world:
        reading = await started(world, "otter lingers")
        with unless_hung():
            while len([one for one in children() if "sleep" in one.name()]) < 2:
                await anyio.sleep(0.05)
        left = children()
        await world.hosted.erase_thread(KEY)
        await gone(left)
        await reading


async def test_closing_its_events_early_leaves_neither_task_nor_process(tmp_path: Path) -> None:
    adapter = bridge_of(tmp_path / "home").create_adapter(PlatformContext(cwd_path=str(tmp_path)))
    before = asyncio.all_tasks()
    agui_input = input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=[user("u1", "gnu goes on")]))
    async with aclosing(structs_of(adapter.run(agui_input))) as events:
        with unless_hung():
            await anext(events)
    assert await tasks_since(before) == set()
    assert children() == []


async def test_a_run_that_is_cut_leaves_no_process(tmp_path: Path) -> None:
    quick = Settings(store="memory://", history="server", lease=5.0, timeouts=Timeouts(grace=0.5, total=1.5))
    async with claude(tmp_path, settings=quick) as world:
        stored = await world.stored(world.thread(), "gnu goes on")
        assert isinstance(stored[-1], e.RunError)
        assert children() == []


async def test_tokens_of_mcp_servers_are_not_on_the_command_line(tmp_path: Path) -> None:
    async with claude(tmp_path, context={"mcp_servers": SECRETIVE}) as world:
        await world.thread().say("say hello there")
        pid = world.adapter().pid
        assert pid is not None
        line = " ".join(psutil.Process(pid).cmdline())
        status = await world.adapter().mcp_status()
    assert "--mcp-config" in line
    assert "hush-hush" not in line
    assert [(one["name"], one["status"]) for one in status] == [("far", "failed")]


SECRETIVE = {"far": {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"Authorization": "Bearer hush-hush"}}}


@pytest.mark.parametrize("reason", ["missing", "no program", "fails", "no directory", "nothing"])
async def test_files_with_tokens_are_gone_whether_the_cli_starts_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(files))
    cli = tmp_path / "cli"
    if reason == "no program":
        cli.write_text("this is no program")
    elif reason == "fails":
        script(cli, "exit 3")
    starts = reason in ("nothing", "no directory")
    context = {"mcp_servers": SECRETIVE, **({"cwd_path": str(tmp_path / "gone")} if reason == "no directory" else {})}
    async with claude(tmp_path, context=context, **({} if starts else {"cli_path": cli})) as world:
        stored = await world.stored(world.thread(), "say hello there")
        assert isinstance(stored[-1], e.RunFinished if reason == "nothing" else e.RunError)
        assert list(files.rglob("*.json")) == []


@pytest.mark.parametrize("longest", [10, launch_files._MAX_ARGUMENT_BYTES])
async def test_a_system_prompt_of_any_length_reaches_claude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    """Half a MiB and a NUL are more than a command line takes; the scripted model remembers short requests only."""
    monkeypatch.setattr(launch_files, "_MAX_ARGUMENT_BYTES", longest)
    prompt = "Speak like a diver.\0" if longest == 10 else "x" * (1 << 19)
    async with claude(tmp_path, context={"system_prompt_append": prompt}) as world:
        words = await world.thread().say("walrus sums up")
        pid = world.adapter().pid
        assert pid is not None
        assert "--append-system-prompt-file" in psutil.Process(pid).cmdline()
    assert words[-1] == "RF success"
    if longest == 10:
        assert "Speak like a diver." in str(model_request("walrus sums up")["messages"][0])


LONE_SERVER = """
import asyncio, os, sys
from claude_agent_sdk import ClaudeAgentOptions
from ambient_runner.bridges.claude.process import ManagedCli

async def serve():
    cli = ManagedCli(ClaudeAgentOptions(cli_path=sys.argv[1]), {"PATH": os.environ["PATH"]})
    await cli.connect()
    print("ready", flush=True)
    await asyncio.sleep(300)

asyncio.run(serve())
"""


async def test_a_server_that_is_killed_takes_its_cli_and_every_command_with_it(tmp_path: Path) -> None:
    cli = script(tmp_path / "cli", "sleep 300 & setsid sleep 300 & nohup sleep 300 & exec sleep 300 <&-")
    bystander = await anyio.open_process(["sleep", "300"])
    server = await anyio.open_process([sys.executable, "-c", LONE_SERVER, str(cli)])
    left: list[psutil.Process] = []
    try:
        with unless_hung():
            assert server.stdout is not None
            assert (await server.stdout.receive()).startswith(b"ready")
            while len(left := [one for one in children(server.pid) if one.name() == "sleep"]) < 4:
                await anyio.sleep(0.02)
            [reaper] = [one for one in psutil.Process(server.pid).children() if one not in left]
            server.kill()
            await server.wait()
        await gone([*left, reaper])
        assert bystander.returncode is None
    finally:
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        for process in (server, bystander):
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()
