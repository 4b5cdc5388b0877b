"""The process that ends the child processes of a killed server."""

from __future__ import annotations

import os
import sys

import anyio
import psutil
import pytest

from ambient_runner.processes import orphan_reaper
from ambient_runner.processes.orphan_reaper import MARK, create_mark, ensure_reaper, kill_marked
from tests.machine_speed import unless_hung
from tests.processes.recorder import gone, python


async def test_a_reaper_that_has_died_is_replaced_when_the_next_process_starts() -> None:
    mark = ensure_reaper()
    [reaper] = find_reapers(mark)
    assert (ensure_reaper(), find_reapers(mark)) == (mark, [reaper])
    reaper.kill()
    with unless_hung():
        while reaper.status() != psutil.STATUS_ZOMBIE:
            await anyio.sleep(0.02)
    assert ensure_reaper() == mark
    [other] = find_reapers(mark)
    assert other.pid != reaper.pid


async def test_a_reaper_holds_no_socket_of_the_server() -> None:
    code = (
        "import socket; from ambient_runner.processes.orphan_reaper import ensure_reaper;"
        "s = socket.create_server(('127.0.0.1', 0)); s.set_inheritable(True); ensure_reaper(); print('ready', flush=True); input()"
    )
    async with await anyio.open_process([sys.executable, "-c", code]) as server:
        with unless_hung():
            assert server.stdout is not None
            assert (await server.stdout.receive()).startswith(b"ready")
            [reaper] = psutil.Process(server.pid).children()
            while reaper.num_fds() != 3:
                await anyio.sleep(0.02)
        server.kill()
    await gone(reaper)


def find_reapers(mark: str) -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if mark in one.cmdline()]


async def test_only_processes_with_the_mark_are_killed() -> None:
    mark, other = create_mark(), create_mark()
    async with (
        await anyio.open_process(python("input()"), env={MARK: mark}) as one,
        await anyio.open_process(python("input()"), env={MARK: other}) as two,
        await anyio.open_process(python("input()"), env={}) as three,
    ):
        with unless_hung():
            assert kill_marked(mark) == 1
            assert await one.wait() < 0
            assert kill_marked(mark) == 0
        assert (two.returncode, three.returncode) == (None, None)
        for process in (two, three):
            process.kill()


async def test_every_mark_of_a_server_has_its_prefix_and_is_another_one() -> None:
    marks = {create_mark() for _ in range(3)}
    assert len(marks) == 3
    assert all(mark.startswith(ensure_reaper()) for mark in marks)


async def test_a_reaper_that_cannot_be_started_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(orphan_reaper, "_reapers", [])
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert ensure_reaper()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    pipe = orphan_reaper._reapers[0].pipe
    assert pipe is not None
    os.close(pipe)
