"""An agent that exits, hangs, floods, ignores signals or forks: it ends with everything it has started, and harms nothing else."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
import pytest

from ambient_runner.bridges.acp import buffered_messages
from ambient_runner.protocol.events import Cancelled, RunError, RunFinished, TextMessageContent, UserMessage
from ambient_runner.runs.event_reader import follow_run
from tests.bridges.acp.words import spoken
from tests.bridges.acp.world import World, serve
from tests.bridges.claude.world import children, gone, yes
from tests.machine_speed import promised_within, unless_hung
from tests.world import KEY, events_of, request

REPOSITORY = Path(__file__).parents[3]
BLOCK_LINES = 4096
"""More lines than one more block of output has, which may arrive after the output is paused."""


async def _run_until_text(world: World, script: str, text: str) -> list[object]:
    """Begin a run, stop it as soon as the agent has said this, and return its events."""
    said = ""
    with unless_hung():
        started = await world.runner.start(request(UserMessage(id="u1", content=script)))
        async for event in follow_run(world.runner.ledger, started):
            said += event.delta if isinstance(event, TextMessageContent) else ""
            if text in said:
                break
        with promised_within(6):
            await world.runner.ledger.request_stop(KEY, "stop")
            return list(await events_of(world.runner, started))


@pytest.mark.parametrize("script", ["crash", "exit 0", "exit 7", "fork then crash", "tool look then exit 1"])
async def test_f26_a_child_that_exits_fails_its_run_and_leaves_nothing(tmp_path: Path, script: str) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored(script)
        await gone(children())
        again = await world.stored("say on", message_id="u2")
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "acp_exited"
    assert isinstance(again[-1], RunFinished)


async def test_f26_a_child_that_hangs_is_ended_by_a_stop_with_its_group(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        events = await _run_until_text(world, "fork then deaf", "do not")
        await gone(children())
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == Cancelled()


async def test_f26_a_child_that_hangs_at_its_start_is_ended(tmp_path: Path) -> None:
    async with serve(tmp_path, {"start": "never"}) as world:
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="say hi")))
            while not children():
                await anyio.sleep(0.01)
            with promised_within(3):
                await world.runner.ledger.request_stop(KEY, "stop")
                events = await events_of(world.runner, started)
        await gone(children())
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == Cancelled()


async def test_f26_a_child_that_exits_at_its_start_says_so_and_the_log_has_what_it_wrote(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path, {"exit": "5"}) as world:
        events = await world.stored("say hi")
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "agent_unavailable"
    assert "did not start" in events[-1].message
    (record,) = [
        record for record in caplog.records if record.name == "ambient_runner.runs.execution" and record.exc_text
    ]
    assert record.levelname == "WARNING"
    assert record.exc_text is not None
    assert record.exc_text.splitlines()[1:] == [
        "Its exit code is 5.",
        "The agent wrote: fatal: the fake agent does not start",
    ]


async def test_f26_a_child_that_exits_instead_of_opening_a_session_did_not_start(tmp_path: Path) -> None:
    async with serve(tmp_path, {"die": "session/new"}) as world:
        events = await world.stored("say hi")
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "agent_unavailable"


async def test_f26_a_request_above_the_bound_is_answered_with_an_error(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        words = await world.thread().say(f"ask-long {(16 << 20) + 100}")
    assert (spoken(words), words[-1]) == ("answered -32600", "RF success")


async def test_f26_a_flood_between_runs_is_bounded_and_nothing_of_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered_messages, "_MAX_BYTES", 1 << 20)
    count = 40_000
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say(f"ask-flood {count}")
        session = world.adapter().session
        assert session is not None
        (tmp_path / "work" / "t" / "asked").touch()
        with unless_hung():
            while not session._messages._is_paused:
                await anyio.sleep(0.01)
            await anyio.sleep(0.3)
        assert session._connection.received_bytes < 4 << 20
        assert len(session._messages._messages) <= buffered_messages._MAX_MESSAGES + BLOCK_LINES
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
    assert spoken(answered) == "chunk " * count + "executed echo one"


async def test_f26_a_stop_ends_a_child_whose_output_is_paused(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("ask-flood 4000000")
        session = world.adapter().session
        assert session is not None
        pid = session.pid
        (tmp_path / "work" / "t" / "asked").touch()
        with unless_hung():
            while not session._messages._is_paused:
                await anyio.sleep(0.01)
        with promised_within(6):
            await world.runner.stop(KEY)
        assert len(session._messages._messages) <= buffered_messages._MAX_MESSAGES + BLOCK_LINES
        assert world.adapter().pid in (pid, None)
        assert spoken(await thread.say("say on")).endswith("on")


async def test_f26_lines_above_the_bound_are_passed_over_and_the_first_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = (16 << 20) + 100
    async with serve(tmp_path) as world:
        thread = world.thread()
        words = await thread.say(f"line {size}")
        await thread.say(f"line {size}")
    assert spoken(words) == "The line was sent."
    (record,) = [record for record in caplog.records if record.name == "ambient_runner.processes.json_rpc"]
    assert record.args == ("The agent", "session/update", size - 1, 16 << 20)


async def test_f26_long_lines_between_runs_are_bounded_in_bytes(tmp_path: Path) -> None:
    script = " then ".join(["line 4000000"] * 40)
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say(f"withdraw echo one then {script}")
        session = world.adapter().session
        assert session is not None
        (tmp_path / "work" / "t" / "asked").touch()
        with unless_hung():
            while not session._messages._is_paused:
                await anyio.sleep(0.01)
            await anyio.sleep(0.3)
        assert session._connection.received_bytes < 64 << 20
        answered = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
    assert len(spoken(answered)) > 40 * 3_900_000


async def test_f26_a_child_that_ignores_signals_is_killed_with_what_it_forked(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        await world.thread().say("ignore-term then fork")
        processes = children()
        assert len(processes) == 2
        with promised_within(8):
            await world.adapter().aclose()
        await gone(processes)


async def test_f26_a_server_that_closes_leaves_no_child_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = psutil.Process().num_fds()
    async with serve(tmp_path) as world:
        await world.thread("a").say("fork")
        await world.thread("b").say("ask echo one")
        await world.thread("c").say("fork then ask2 0.1")
        processes = children()
    await gone(processes)
    assert list(temporary.iterdir()) == []
    assert psutil.Process().num_fds() <= before


LONE_SERVER = """
import sys
from pathlib import Path
import anyio
from tests.bridges.acp.world import serve

async def main() -> None:
    async with serve(Path(sys.argv[1])) as world:
        await world.thread("a").say("fork then ask echo one")
        await world.thread("b").say("ignore-term then fork")
        print("ready", flush=True)
        await anyio.sleep(300)

anyio.run(main)
"""


async def test_f26_a_server_that_is_killed_takes_its_agents_and_what_they_forked_with_it(tmp_path: Path) -> None:
    server = await anyio.open_process([sys.executable, "-c", LONE_SERVER, str(tmp_path)], cwd=REPOSITORY)
    left: list[psutil.Process] = []
    try:
        with unless_hung():
            assert server.stdout is not None
            assert (await server.stdout.receive()).startswith(b"ready")
            left = children(server.pid)
            assert len(left) == 4
            server.kill()
            await server.wait()
        await gone(left)
    finally:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(ProcessLookupError):
            server.kill()
        await server.aclose()
