"""Real MCP servers, in processes of their own, over each transport."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from anyio.streams.text import TextReceiveStream

from ambient_runner.errors import Draining
from ambient_runner.processes.orphan_reaper import MARK
from ambient_runner.services.mcp.config import McpConfigProblem, McpServer, ResolvedMcpServers
from ambient_runner.services.mcp.status import McpStatus
from ambient_runner.services.mcp.stdio_client import stdio_client
from tests.machine_speed import HANG_SECONDS, promised_within, scaled, unless_hung
from tests.processes.recorder import gone
from tests.services.mcp_paths import MCP_SERVER

SCRIPT = MCP_SERVER
TOOLS = [{"name": "echo", "annotations": {"readOnlyHint": True}}, {"name": "erase", "annotations": {}}]
WELL = {"status": "connected", "version": "3.2.1", "tools": TOOLS}


def stdio(name: str, log: Path, **env: str) -> McpServer:
    config = {"type": "stdio", "command": sys.executable, "args": [SCRIPT, "stdio", str(log)], "env": env}
    return McpServer(name=name, display_name=name.title(), config=config)


def program(name: str, code: str, *args: str) -> McpServer:
    config = {"type": "stdio", "command": sys.executable, "args": ["-c", code, *args], "env": {}}
    return McpServer(name=name, display_name=name, config=config)


def remote(name: str, kind: str, url: str, token: str = "open-sesame") -> McpServer:
    config = {"type": kind, "url": url, "headers": {"Authorization": f"Bearer {token}"}}
    return McpServer(name=name, display_name=name, config=config)


@asynccontextmanager
async def serving(kind: str) -> AsyncGenerator[str, None]:
    async with await anyio.open_process([sys.executable, SCRIPT, kind], stderr=None) as process:
        assert process.stdout is not None
        try:
            with unless_hung():
                yield (await TextReceiveStream(process.stdout).receive()).strip()
        finally:
            process.kill()


def started(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def test_a_stdio_server_reports_version_and_tools_and_is_ended_afterwards(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            rows = await status.probe(ResolvedMcpServers(servers=(stdio("echo", log),)), tmp_path)
            again = await status.probe(ResolvedMcpServers(servers=(stdio("echo", log),)), tmp_path)
    assert rows == again == [{"name": "echo", "displayName": "Echo", **WELL}]
    assert [psutil.pid_exists(child["pid"]) for child in started(log)] == [False]


SILENT = """
import os, sys, time
if not os.fork():
    os.setsid()
with open(sys.argv[1], "a") as log:
    log.write(f"{os.getpid()}\\n")
time.sleep(600)
"""
PROBING = """
import sys, anyio
from ambient_runner.services.mcp.config import ResolvedMcpServers
from ambient_runner.services.mcp.status import McpStatus
from tests.services.mcp.test_status import SILENT, program

async def main():
    async with McpStatus(timeout=300) as status:
        await status.probe(ResolvedMcpServers(servers=(program("silent", SILENT, sys.argv[1]),)), None)

anyio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a killed process has started is found in /proc")
async def test_a_process_that_is_killed_while_it_probes_leaves_no_server_and_nothing_of_it(tmp_path: Path) -> None:
    log, repository = tmp_path / "log", Path(__file__).parents[3]
    command = [sys.executable, "-c", PROBING, str(log)]
    left: list[psutil.Process] = []
    try:
        with unless_hung():
            async with await anyio.open_process(command, cwd=repository, stderr=None) as process:
                while not log.exists() or log.read_text().count("\n") < 2:
                    await anyio.sleep(0.01)
                left = [psutil.Process(int(pid)) for pid in log.read_text().split()]
                process.kill()
                await process.wait()
        with promised_within(10):
            await gone(*left)
    finally:
        for orphan in left:
            with suppress(psutil.NoSuchProcess):
                orphan.kill()


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_over_http_is_met_with_the_headers_of_its_configuration(kind: str) -> None:
    with unless_hung():
        async with serving(kind) as url, McpStatus(timeout=HANG_SECONDS) as status:
            rows = await status.probe(
                ResolvedMcpServers(servers=(remote("right", kind, url), remote("wrong", kind, url, "guess")))
            )
    assert rows[0] == {"name": "right", "displayName": "right", **WELL}
    assert (rows[1]["name"], rows[1]["status"], rows[1]["tools"]) == ("wrong", "failed", [])
    assert "guess" not in json.dumps(rows)


async def test_concurrent_requests_share_one_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    resolved = ResolvedMcpServers(servers=(stdio("echo", log),))
    found: list[Any] = []
    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:

            async def ask() -> None:
                found.append(await status.probe(resolved, tmp_path))

            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(ask)
    assert len(started(log)) == 1
    assert found == [found[0]] * 5
    assert found[0][0]["status"] == "connected"


async def test_another_configuration_is_another_probe(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            for token in ("first-token", "second-token"):
                written = replace(stdio("echo", log, TOKEN=token), digest=token)
                await status.probe(ResolvedMcpServers(servers=(written,)), tmp_path)
    assert [child["env"]["TOKEN"] for child in started(log)] == ["first-token", "second-token"]


async def test_a_child_gets_its_configured_environment_and_nothing_of_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMBIENT_CREDENTIALS_TOKEN", "bearer-of-the-server")
    monkeypatch.setenv("PROVIDER_API_KEY", "key-of-the-server")
    log = tmp_path / "log"
    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            await status.probe(
                ResolvedMcpServers(servers=(stdio("echo", log, GITHUB_TOKEN="granted-token"),)), tmp_path
            )
    (child,) = started(log)
    assert child["env"].pop("GITHUB_TOKEN") == "granted-token"
    assert child["env"].pop(MARK).startswith(f"{os.getpid()}-")  # By which it is ended if the server is killed.
    assert set(child["env"]) <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}


async def test_failing_servers_report_why_and_the_others_connect(tmp_path: Path) -> None:
    nowhere = McpServer(
        name="gone", display_name="gone", config={"type": "stdio", "command": "no-such-program", "args": [], "env": {}}
    )
    silent = program("silent", "input(); input(); input()")
    closed = remote("closed", "http", "http://127.0.0.1:9/mcp")
    resolved = ResolvedMcpServers(
        servers=(nowhere, silent, closed, stdio("echo", tmp_path / "log")),
        disabled=("off",),
        problems=(McpConfigProblem(name="bad", message="The MCP server 'bad' is wrong."),),
    )
    patience = round(scaled(8))
    with unless_hung():
        async with McpStatus(timeout=patience) as status:
            rows = await status.probe(resolved, tmp_path)
    assert {row["name"]: row["status"] for row in rows} == {
        "gone": "failed",
        "silent": "failed",
        "closed": "failed",
        "echo": "connected",
        "off": "disabled",
        "bad": "invalid",
    }
    errors = {row["name"]: row["error"] for row in rows if "error" in row}
    assert errors["gone"] == "It could not be started or reached: No such file or directory."
    assert errors["silent"] == f"It did not respond within {patience} seconds."
    assert errors["bad"] == "The MCP server 'bad' is wrong."


async def test_a_client_that_disconnects_does_not_end_the_probe_of_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log"
    resolved = ResolvedMcpServers(servers=(stdio("echo", log),))
    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            async with anyio.create_task_group() as group:
                group.start_soon(status.probe, resolved, tmp_path)
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            rows = await status.probe(resolved, tmp_path)
    assert (rows[0]["status"], len(started(log))) == ("connected", 1)


async def test_leaving_in_the_middle_leaves_no_process_behind(tmp_path: Path) -> None:
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    stuck = program("stuck", f"import os; open({str(fifo)!r}, 'w').write(str(os.getpid())); input(); input(); input()")

    async def ask() -> None:
        with pytest.raises(Draining):
            await status.probe(ResolvedMcpServers(servers=(stuck,)), tmp_path)

    with unless_hung():
        async with anyio.create_task_group() as group, McpStatus(timeout=HANG_SECONDS) as status:
            group.start_soon(ask)
            pid = int(await anyio.to_thread.run_sync(fifo.read_text))
            assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


async def ended(process: psutil.Process) -> bool:
    """Whether it is gone; one that was killed may still be on its way."""
    return not await anyio.to_thread.run_sync(lambda: psutil.wait_procs([process], timeout=HANG_SECONDS)[1])


async def test_waiters_get_draining_on_shutdown_and_nothing_starts_after_it(tmp_path: Path) -> None:
    """Bug: waiters got "could not be reached", and a later request started the server all the same."""
    fifo, log = tmp_path / "begun", tmp_path / "log"
    os.mkfifo(fifo)
    stuck = program("stuck", f"open({str(fifo)!r}, 'w').write('here'); input(); input(); input()")

    async def ask() -> None:
        with pytest.raises(Draining):
            await status.probe(ResolvedMcpServers(servers=(stuck,)), tmp_path)

    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await anyio.to_thread.run_sync(fifo.read_text)
                status.cancel_all()
            with pytest.raises(Draining):
                await status.probe(ResolvedMcpServers(servers=(stdio("echo", log),)), tmp_path)
        with pytest.raises(Draining):
            await status.probe(ResolvedMcpServers(servers=(stdio("echo", log),)), tmp_path)
    assert started(log) == []


@pytest.mark.parametrize("ends", ["input()", "import time; time.sleep(600)"], ids=["by-itself", "never"])
async def test_what_a_server_has_started_is_ended_with_it(tmp_path: Path, ends: str) -> None:
    """A server that ended by itself left its own children running."""
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    child = "import time; time.sleep(600)"
    code = (
        f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {child!r}]); "
        f"open({str(fifo)!r}, 'w').write(str(child.pid)); {ends}"
    )
    with unless_hung():
        async with anyio.create_task_group() as group, McpStatus(timeout=scaled(5)) as status:
            group.start_soon(status.probe, ResolvedMcpServers(servers=(program("parent", code),)), tmp_path)
            process = psutil.Process(int(await anyio.to_thread.run_sync(fifo.read_text)))
            await status.probe(ResolvedMcpServers(servers=(program("parent", code),)), tmp_path)
            assert await ended(process)


async def test_many_silent_servers_take_no_longer_than_one(tmp_path: Path) -> None:
    """Those who had to wait for a place had their own time on top of that."""
    silent = "import time; time.sleep(600)"
    servers = tuple(program(f"s{number}", silent, str(number)) for number in range(6))
    with unless_hung():
        async with McpStatus(timeout=2, max_concurrent=2) as status:
            with promised_within(4):
                rows = await status.probe(ResolvedMcpServers(servers=servers), tmp_path)
            again = await status.probe(
                ResolvedMcpServers(servers=(*servers[:2], stdio("echo", tmp_path / "log"))), tmp_path
            )
    assert [row["status"] for row in rows] == ["failed"] * 6
    assert len({row["error"] for row in rows}) == 2
    assert [row["error"] for row in again[:2]] == [row["error"] for row in rows[:2]]


async def test_a_server_that_got_no_slot_is_probed_by_the_next_request(tmp_path: Path) -> None:
    silent = program("silent", "import time; time.sleep(600)")
    echo = stdio("echo", tmp_path / "log")
    with unless_hung():
        async with McpStatus(timeout=scaled(8), max_concurrent=1) as status:
            rows = await status.probe(ResolvedMcpServers(servers=(silent, echo)), tmp_path)
            again = await status.probe(ResolvedMcpServers(servers=(silent, echo)), tmp_path)
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert [row["status"] for row in again] == ["failed", "connected"]


async def test_a_line_without_an_end_ends_the_probe(tmp_path: Path) -> None:
    """It was kept whole, however long it grew."""
    endless = "import os\nwhile True: os.write(1, b'x' * 65536)"
    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            with promised_within(30):
                rows = await status.probe(ResolvedMcpServers(servers=(program("endless", endless),)), tmp_path)
    assert [row["status"] for row in rows] == ["failed"]


def test_a_server_whose_start_is_cancelled_at_any_moment_is_waited_for() -> None:
    """Bug: cancelled while its pipes were connected, it was killed and not waited for, and the loop ended before it."""

    async def start() -> None:
        async with stdio_client([sys.executable, "-c", "input()"], {}, None):
            await anyio.sleep_forever()

    async def start_and_cancel(steps: int) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(start)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    for steps in range(12):
        anyio.run(start_and_cancel, steps)
        gc.collect()  # A process that was not waited for is a ResourceWarning.
