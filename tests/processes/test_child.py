"""The child process: what it knows, what it may do, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import psutil
import pytest

from ambient_runner.processes import child as child_module
from ambient_runner.processes.child import ChildProcess
from ambient_runner.processes.orphan_reaper import MARK, ensure_reaper
from tests.machine_speed import unless_hung
from tests.processes.recorder import ENVIRONMENT, Recorder, descriptors, gone, marked, python, running

LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
]


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


async def start(command: list[str], recorder: Recorder, cwd: str | Path | None = None, **env: str) -> ChildProcess:
    return await ChildProcess.start(
        command, env=ENVIRONMENT | env, cwd=cwd, on_output=recorder.on_output, on_exit=recorder.on_exit
    )


async def test_it_gets_the_given_variables_and_its_mark_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_ONLY", "of-the-server-alone")
    recorder = Recorder()
    child = await start(["env"], recorder, GRANTED="yes")
    await recorder.until_end()
    await child.aclose()
    variables = dict(line.split("=", 1) for line in recorder.output.decode().splitlines())
    assert variables.pop(MARK).startswith(ensure_reaper())
    assert variables == {"PATH": os.defpath, "GRANTED": "yes"}


async def test_it_has_a_session_of_its_own_and_its_directory(tmp_path: Path) -> None:
    recorder = Recorder()
    child = await start(python("import os; print(os.getsid(0), os.getpid(), os.getcwd())"), recorder, tmp_path)
    await recorder.until_end()
    await child.aclose()
    assert recorder.output.decode().split() == [str(child.pid), str(child.pid), str(tmp_path)]


async def test_its_exit_is_reported_once_after_all_its_output() -> None:
    code = "import sys; sys.stdout.write('x' * 500_000 + 'end'); sys.stderr.write('no luck'); sys.exit(3)"
    async with running(code) as (child, recorder):
        await recorder.until_end()
        assert (child.returncode, child.is_alive, child.stderr) == (3, False, ["no luck"])
        assert (len(recorder.output), recorder.output[-3:]) == (500_003, b"end")
        assert await child.wait() == 3


async def test_nothing_is_reported_before_the_caller_has_the_process() -> None:
    recorder = Recorder()
    for _ in range(5):
        child = await start(python("print('early')"), recorder)
        assert (recorder.output, recorder.ends) == (b"", 0)
        await recorder.until_end()
        await child.aclose()
        assert recorder.output == b"early\n"
        recorder = Recorder()


async def test_it_reads_what_is_written_and_the_end_of_it() -> None:
    async with running("import sys; print(len(sys.stdin.read()))") as (child, recorder):
        child.write(b"a" * 3_000_000)
        child.write(b"b" * 10)
        child.close_input()
        child.write(b"c" * 10)
        await recorder.until_end()
    assert recorder.output == b"3000010\n"


async def test_what_is_written_after_its_exit_is_dropped() -> None:
    async with running("import os; os.close(0); print('closed', flush=True); input") as (child, recorder):
        await recorder.until(b"closed")
        for _ in range(20):
            child.write(b"x" * 100_000)
            await anyio.lowlevel.checkpoint()
        await recorder.until_end()
        child.write(b"late")
    child.write(b"later")
    child.close_input()
    child.pause_output()
    child.resume_output()
    child.terminate()
    child.kill()


async def test_one_that_hangs_is_ended() -> None:
    async with running("print('up', flush=True); import time; time.sleep(600)") as (child, recorder):
        await recorder.until(b"up")
        assert child.is_alive
    assert child.returncode == -signal.SIGTERM


async def test_one_that_ignores_sigterm_is_killed() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    async with running(code) as (child, recorder):
        await recorder.until(b"up")
        child.terminate()
        assert child.is_alive
    assert child.returncode == -signal.SIGKILL


async def test_one_that_is_stopped_is_killed() -> None:
    async with running("print('up', flush=True); import time; time.sleep(600)") as (child, recorder):
        await recorder.until(b"up")
        psutil.Process(child.pid).suspend()
    assert child.returncode in (-signal.SIGTERM, -signal.SIGKILL)


async def test_its_grace_begins_with_the_end_of_its_input(tmp_path: Path) -> None:
    file = tmp_path / "saved"
    code = f"import sys; print('up', flush=True); sys.stdin.read(); open({str(file)!r}, 'w').write('saved')"
    async with running(code) as (child, recorder):
        await recorder.until(b"up")
        with unless_hung():
            await child.aclose(grace=100)
        assert child.returncode == 0
    assert file.read_text() == "saved"


async def test_one_whose_output_is_paused_can_end_within_its_grace() -> None:
    code = "import os, sys; os.write(1, b'up'); sys.stdin.read(); [os.write(1, b'x' * 65536) for _ in range(50)]"
    async with running(code) as (child, recorder):
        await recorder.until(b"up")
        child.pause_output()
        with unless_hung():
            await child.aclose(grace=100)
        assert child.returncode == 0
    assert recorder.output == b"up"


FLOOD = "import os\nwhile True: os.write(1, b'x' * 65536)"


async def test_a_flood_waits_while_its_output_is_paused() -> None:
    async with running(FLOOD) as (child, recorder):
        await recorder.until(b"x" * 1_000_000)
        child.pause_output()
        for _ in range(5):  # What was read already may still arrive.
            await anyio.lowlevel.checkpoint()
        before = len(recorder.output)
        process = psutil.Process(child.pid)
        with unless_hung():
            while process.status() == psutil.STATUS_RUNNING:
                await anyio.sleep(0.01)
        assert len(recorder.output) == before
        child.resume_output()
        await recorder.until(b"x" * (before + 1_000_000))


async def test_a_flood_is_ended() -> None:
    async with running(FLOOD) as (child, recorder):
        await recorder.until(b"x" * 1_000_000)
    assert child.returncode is not None


async def test_a_process_that_does_not_read_is_not_read_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of it may be answered, and the answers would pile up."""
    monkeypatch.setattr(child_module, "_MAX_PENDING_INPUT", 1 << 20)
    answered = 0

    def answer(_: bytes) -> None:
        nonlocal answered
        answered += 1
        child.write(b"y" * 100_000)

    child = await ChildProcess.start(
        python(FLOOD), env=ENVIRONMENT, cwd=None, on_output=answer, on_exit=lambda: None, max_stderr_lines=0
    )
    process = psutil.Process(child.pid)
    with unless_hung():
        while answered < 8 or process.status() == psutil.STATUS_RUNNING:
            await anyio.sleep(0.01)
        assert answered < 100
        await child.aclose()


async def test_output_that_is_paused_at_its_exit_arrives_before_the_end() -> None:
    async with running("import sys; sys.stdout.write('a' * 10_000); sys.stdout.flush(); input()") as (child, recorder):
        await recorder.until(b"a")
        child.pause_output()
        child.write(b"\n")
        with unless_hung():
            await child.wait()
        await anyio.sleep(0.1)
        assert recorder.ends == 0
        child.resume_output()
        await recorder.until_end()
    assert recorder.output == b"a" * 10_000


async def test_a_line_of_sixteen_mebibytes_arrives_whole() -> None:
    async with running("print('x' * (16 << 20))") as (_, recorder):
        await recorder.until_end()
    assert (len(recorder.output), recorder.output[-1:]) == ((16 << 20) + 1, b"\n")


async def test_its_end_is_reported_when_it_closes_its_output_and_goes_on() -> None:
    async with running("import os, time; os.write(1, b'bye'); os.close(1); time.sleep(600)") as (child, recorder):
        await recorder.until_end()
        assert (recorder.output, child.is_alive) == (b"bye", True)


KEEPS_OUTPUT = (
    "import os, sys, time\n"
    "if os.fork() == 0:\n"
    "    if 'setsid' in sys.argv: os.setsid()\n"
    "    time.sleep(600)\n"
    "os.write(1, b'last words')\n"
    "sys.exit(4)"
)


@pytest.mark.parametrize("session", ["", "setsid"])
async def test_a_grandchild_that_keeps_its_output_open_delays_nothing_and_is_killed(session: str) -> None:
    async with running(KEEPS_OUTPUT, session) as (child, recorder):
        await recorder.until_end()
        assert (bytes(recorder.output), child.returncode) == (b"last words", 4)
        with unless_hung():
            assert await child.wait() == 4
            while marked():
                await anyio.sleep(0.01)


async def test_a_grandchild_that_writes_for_ever_delays_the_end_only_a_moment() -> None:
    code = (
        "import os, sys\n"
        "if os.fork() == 0:\n    os.setsid()\n    while True: os.write(1, b'x' * 1000)\n"
        "os.write(1, b'last words')"
    )
    async with running(code) as (_, recorder):
        await recorder.until_end()
    assert b"last words" in recorder.output


LEAVES_ITS_GROUP = (
    "import os, time\n"
    "for _ in range(3):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork(): os._exit(0)\n"
    "        for fd in range(3): os.close(fd)\n"
    "        time.sleep(600)\n"
    "os.write(1, b'up')\n"
    "time.sleep(600)"
)


def group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


async def test_what_has_left_its_group_ends_with_it() -> None:
    async with running(LEAVES_ITS_GROUP) as (child, recorder):
        await recorder.until(b"up")
        with unless_hung():
            while len(left := [one for one in marked() if group_of(one) not in (child.pid, None)]) < 3:
                await anyio.sleep(0.01)
    await gone(*left)


async def test_kill_ends_everything_at_once() -> None:
    async with running(LEAVES_ITS_GROUP) as (child, recorder):
        await recorder.until(b"up")
        left = marked()
        child.kill()
        await gone(*left)
        await recorder.until_end()
        assert child.returncode == -signal.SIGKILL


async def test_of_its_standard_error_the_last_lines_are_kept_and_bounded() -> None:
    code = (
        "import sys\n"
        "for number in range(100_000): sys.stderr.write(f'line {number} ' + 'y' * 100 + '\\n')\n"
        "sys.stderr.write('\\n\\x1b[31mred\\x1b[0m\\tand\\x07 ' + 'z' * 5_000_000 + '\\nlast')"
    )
    async with running(code, max_stderr_lines=3) as (child, recorder):
        await recorder.until_end()
        first, long, last = child.stderr
        assert first.startswith("line 99999 y")
        assert long == ("red and  " + "z" * 1000)[:1000]
        assert last == "last"


async def test_standard_error_that_is_not_text_is_kept_as_far_as_it_goes() -> None:
    async with running(r"import os; os.write(2, b'\xff\xfe \x00bad\n')") as (child, recorder):
        await recorder.until_end()
        assert child.stderr == ["\ufffd\ufffd  bad"]


async def test_a_missing_command_is_an_error_with_its_name() -> None:
    with pytest.raises(FileNotFoundError) as raised:
        await start(["ambient-has-no-such-program"], Recorder())
    assert raised.value.filename == "ambient-has-no-such-program"


async def test_a_command_that_is_no_program_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no program")
    with pytest.raises(PermissionError) as raised:
        await start([str(file)], Recorder())
    assert raised.value.filename == str(file)


async def test_a_missing_directory_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        await start(["env"], Recorder(), tmp_path / "gone")
    assert str(raised.value.filename) == str(tmp_path / "gone")


async def test_a_file_in_place_of_the_directory_is_an_error_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError) as raised:
        await start(["env"], Recorder(), file)
    assert raised.value.filename == str(file)


@pytest.mark.parametrize(
    ("command", "variables"), [(["env", "a\0b"], {}), (["env"], {"A": "b\0c"}), (["env"], {"A\0B": "c"})]
)
async def test_a_nul_character_is_refused(command: list[str], variables: dict[str, str]) -> None:
    with pytest.raises(OSError):
        await start(command, Recorder(), None, **variables)


async def test_closing_twice_and_at_once_is_harmless() -> None:
    async with running("import time; time.sleep(600)") as (child, recorder):
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(child.aclose)
            await child.aclose(grace=100)
        assert recorder.ends == 1


async def test_a_cancelled_close_ends_everything_all_the_same() -> None:
    async with running("import time; time.sleep(600)") as (child, _):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await child.aclose()
        assert not child.is_alive


async def test_a_shutdown_of_the_event_loop_during_a_close_leaves_nothing() -> None:
    async with running("print('up', flush=True); import time; time.sleep(600)") as (child, recorder):
        await recorder.until(b"up")
        psutil.Process(child.pid).suspend()
        closing = asyncio.create_task(child.aclose(grace=100))
        for _ in range(5):
            await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        with unless_hung():
            await child.wait()
    gc.collect()


@pytest.mark.parametrize("by", ["scope", "task"])
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing(by: str) -> None:
    async def start_and_end() -> None:
        child = await start(python("import time; time.sleep(600)"), Recorder())
        try:
            await anyio.sleep_forever()
        finally:
            await child.aclose()

    for steps in range(8):
        with unless_hung():
            if by == "scope":
                async with anyio.create_task_group() as group:
                    group.start_soon(start_and_end)
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
            else:
                task = asyncio.create_task(start_and_end())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            while marked():
                await anyio.sleep(0.01)
        gc.collect()  # What was not closed is a ResourceWarning.


async def test_many_starts_and_ends_leave_no_process_and_no_descriptor() -> None:
    ends_by_itself = {"pass": True, KEEPS_OUTPUT: True, "import os; os.close(1); input()": True, FLOOD: False}
    before: list[str] = []
    for number in range(51):
        code = list(ends_by_itself)[number % len(ends_by_itself)]
        async with running(code, "setsid") as (child, recorder):
            child.write(b"x" * 1_000_000)
            if number % 3 and ends_by_itself[code]:
                await recorder.until_end()
        if number == 0:
            before = descriptors()
    gc.collect()
    with unless_hung():
        while descriptors() != before:
            await anyio.sleep(0.01)
    assert not marked()


SERVER = """
import asyncio, sys
from ambient_runner.processes.child import ChildProcess

async def serve():
    child = await ChildProcess.start(
        [sys.executable, "-c", sys.argv[1]], env={}, cwd=None, on_output=lambda data: print("up", flush=True), on_exit=lambda: None
    )
    await asyncio.sleep(600)

asyncio.run(serve())
"""


async def test_a_server_that_is_killed_takes_everything_with_it(anyio_backend: Any) -> None:
    serve = SERVER if not anyio_backend[1]["use_uvloop"] else SERVER.replace("asyncio.run", "__import__('uvloop').run")
    async with await anyio.open_process([sys.executable, "-c", serve, LEAVES_ITS_GROUP], stderr=None) as server:
        assert server.stdout is not None
        try:
            with unless_hung():
                assert (await server.stdout.receive()).startswith(b"up")
                while len(left := marked(server.pid)) < 4:
                    await anyio.sleep(0.01)
                reapers = [one for one in psutil.Process(server.pid).children() if one not in left]
        finally:
            server.kill()
        await gone(*left, *reapers)


async def test_it_writes_to_its_process_without_delay() -> None:
    async with running("import sys\nfor line in sys.stdin: print(line, end='', flush=True)") as (child, recorder):
        child.write(b"first\n")
        await recorder.until(b"first\n")
        began = time.monotonic()
        for number in range(100):
            child.write(b"%d\n" % number)
            await recorder.until(b"\n%d\n" % number)
        assert (time.monotonic() - began) / 100 < 0.5


async def test_it_inherits_no_descriptor_of_the_server(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        async with running("import os; print(sorted(os.listdir('/proc/self/fd')))") as (_, recorder):
            await recorder.until_end()
    assert recorder.output.decode().strip() == "['0', '1', '2', '3']"  # 3 is the directory itself.


async def test_its_standard_streams_are_pipes_that_can_be_opened_by_name() -> None:
    code = "open('/dev/stdout', 'w').write('out'); open('/dev/stderr', 'w').write('err')"
    async with running(code) as (child, recorder):
        await recorder.until_end()
        assert (bytes(recorder.output), child.stderr) == (b"out", ["err"])


async def test_its_exit_is_seen_on_systems_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    async with running("print('done'); raise SystemExit(3)") as (child, recorder):
        with unless_hung():
            assert await child.wait() == 3
        await recorder.until_end()
    assert recorder.output == b"done\n"


async def test_output_that_is_handled_by_writing_and_pausing_is_delivered_at_its_exit() -> None:
    received: list[int] = []

    def answer(data: bytes) -> None:
        received.append(len(data))
        child.write(b"answer")
        child.pause_output()
        child.resume_output()

    ended = anyio.Event()
    child = await ChildProcess.start(
        python("import os; os.write(1, b'x' * 60_000); os._exit(0)"),
        env=ENVIRONMENT,
        cwd=None,
        on_output=answer,
        on_exit=ended.set,
    )
    with unless_hung():
        time.sleep(0.5)  # noqa: ASYNC251 - the loop sees its output and its exit at once
        await ended.wait()
        await child.aclose()
    assert sum(received) == 60_000
