"""The sandbox around a whole agent: what a process in it cannot do, and what is left of it after a kill.

Where bubblewrap does not work, each of these tests checks that this is reported, and is skipped with the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import pytest

from ambient_runner.processes.bubblewrap import check_bubblewrap, find_bubblewrap
from ambient_runner.processes.gateway import ModelGateway
from ambient_runner.processes.sandbox import GATEWAY_PORT, Sandbox, sandboxed_command
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.processes.origin import open_origin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

KEY = "sk-real-0123456789abcdef"
PLACEHOLDER = "placeholder-42"
MARK = "SANDBOX_TEST"


@dataclass
class Box:
    """A sandbox in a folder of the test: `store/ws` and `store/home` are the agent's, the rest of `store` is hidden."""

    root: Path
    sandbox: Sandbox

    @property
    def workspace(self) -> Path:
        return self.sandbox.workspace

    def change(self, **changes: Any) -> None:
        self.sandbox = replace(self.sandbox, **changes)

    def command(self, *command: str) -> list[str]:
        return sandboxed_command(command, self.sandbox)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*command), env=environment(), capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )

    def run_shell(self, script: str) -> tuple[int, str]:
        result = self.run("sh", "-c", script)
        return result.returncode, result.stdout.strip()

    def run_python(self, script: str, *arguments: str) -> str:
        result = self.run(*python_command(script, *arguments))
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()


def python_command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(script), *arguments]


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more}


@pytest.fixture
def box() -> Iterator[Box]:
    require_bubblewrap()
    with tempfile.TemporaryDirectory(dir="/tmp") as root:  # short: the path of a socket has at most 107 bytes
        store = Path(root) / "store"
        for name in ("ws", "home", "other"):
            (store / name).mkdir(parents=True)
        (store / "ledger.db").write_text("secret")
        (store / "other" / "file").write_text("secret")
        yield Box(Path(root), Sandbox(workspace=store / "ws", home=store / "home", hidden=[store]))


def require_bubblewrap() -> None:
    """Skip the test where there is no sandbox, after checking that nobody is left to believe there is one."""
    if find_bubblewrap() is None:
        reason = check_bubblewrap().reason
        assert reason
        with pytest.raises(FileNotFoundError):
            sandboxed_command(["true"], Sandbox(workspace=Path("/"), home=None))
        pytest.skip(f"not enforced here: {reason}")


def marked_processes(mark: str) -> list[int]:
    """Return the processes that have the mark in their environment."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def wait_for_end(pids: Sequence[int], stack: ExitStack) -> asyncio.Future[None]:
    """Return what is done when all these processes have ended."""
    loop = asyncio.get_running_loop()
    left, done = set(pids), loop.create_future()

    def note_end(pid: int, descriptor: int) -> None:
        loop.remove_reader(descriptor)
        left.discard(pid)
        if not left and not done.done():
            done.set_result(None)

    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            stack.callback(os.close, descriptor)
            loop.add_reader(descriptor, note_end, pid, descriptor)
            continue
        left.discard(pid)
    if not left:
        done.set_result(None)
    return done


@asynccontextmanager
async def running(command: Sequence[str], **more: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *command, env=environment(**more), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin
        process.stdin.close()
        with unless_hung():
            await process.communicate()


async def read_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout
    with unless_hung():
        return (await process.stdout.readline()).decode().strip()


@asynccontextmanager
async def open_gateway(base_url: str | None, **options: Any) -> AsyncGenerator[ModelGateway]:
    gateway = ModelGateway(base_url=base_url, headers={"x-api-key": KEY}, placeholder=PLACEHOLDER, **options)
    with tempfile.TemporaryDirectory() as directory:
        await gateway.start(Path(directory))
        try:
            yield gateway
        finally:
            await gateway.aclose()


@pytest.fixture
def visible() -> Iterator[Path]:
    """A folder next to the tests, which no sandbox hides unless they are in a home."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".visible-") as directory:
        yield Path(directory)


def test_the_workspace_the_home_and_the_temp_folder_are_writable(box: Box) -> None:
    home = box.sandbox.home
    code, output = box.run_shell(f"touch file {home}/file /tmp/file /var/tmp/file /dev/shm/file && pwd")
    assert (code, output) == (0, str(box.workspace))
    assert (box.workspace / "file").exists()
    assert not Path("/tmp/file").exists()


def test_nothing_else_is_writable(box: Box, visible: Path) -> None:
    places = [visible, visible.parent, "/", "/etc", "/usr", "/var", "/run", "/home", "/root", Path.home(), box.root]
    for place in places:
        code, _ = box.run_shell(f"touch {place}/written-by-agent")
        assert (place, code == 0) == (
            place,
            place == box.root,
        )  # The folder is empty in there, and lies in the temp folder.
    assert list(visible.iterdir()) == []
    assert not (box.root / "written-by-agent").exists()


def test_a_read_only_workspace_cannot_be_written_even_in_a_writable_folder(box: Box) -> None:
    (box.workspace / "file").write_text("content")
    box.change(workspace_access="read", writable=[box.workspace.parent])
    assert box.run_shell("cat file; touch file new || echo refused") == (0, "contentrefused")


def test_the_store_and_other_threads_are_not_there(box: Box) -> None:
    store = box.workspace.parent
    assert box.run_shell(f"ls -A {store}")[1].split() == ["home", "ws"]
    assert box.run_shell(f"cat {store}/ledger.db || cat {store}/other/file || cat {store}/ws/../ledger.db")[0] != 0


def test_not_even_the_names_below_a_hidden_folder_are_seen(box: Box) -> None:
    store = box.workspace.parent
    box.change(hidden=[store / "other", store])
    assert box.run_shell(f"ls -A {store}")[1].split() == ["home", "ws"]


def test_a_hidden_folder_that_is_the_workspace_is_the_workspace(box: Box, visible: Path) -> None:
    box.change(workspace=visible, hidden=[visible])
    assert box.run_shell("touch file") == (0, "")
    assert (visible / "file").exists()


def test_the_home_of_the_user_is_not_there(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    home = box.root / "user"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    box.change(hidden=[])
    assert box.run_shell(f"ls -A {home}")[1] == ""
    assert box.run_shell("ls -A /home")[1] == ""


def test_a_store_in_the_workspace_is_hidden(box: Box) -> None:
    project = box.root / "project"
    (project / ".ambient" / "homes" / "t1").mkdir(parents=True)
    (project / ".ambient" / "ledger.db").write_text("secret")
    (project / ".env").write_text("secret")
    box.change(
        workspace=project,
        home=project / ".ambient" / "homes" / "t1",
        hidden=[project / ".ambient", project / ".env", project / "missing"],
    )
    script = "ls -A .ambient; cat .env; touch .ambient/homes/t1/file new; touch .ambient/x || echo refused"
    assert box.run_shell(script)[1].split() == ["homes", "refused"]
    assert (project / "new").exists()


def test_what_the_agent_needs_below_a_hidden_folder_is_there(box: Box) -> None:
    """As an installation of npm below the home: a link in `bin`, and a package that finds its files next to its real path."""
    package = box.root / "store" / "npm" / "lib" / "node_modules" / "agent"
    package.mkdir(parents=True)
    program = package / "main.sh"
    program.write_text('#!/bin/sh\ncat "$(dirname "$(readlink -f "$0")")/message"\n')
    program.chmod(0o755)
    (package / "message").write_text("found")
    link = box.root / "store" / "bin" / "agent"
    link.parent.mkdir()
    link.symlink_to("../npm/lib/node_modules/agent/main.sh")
    assert box.run_shell(str(link))[0] != 0
    box.change(readable=[link, package.parent])
    assert box.run_shell(str(link)) == (0, "found")
    assert box.run_shell(f"touch {package}/message")[0] != 0


def test_a_folder_behind_a_link_is_used(box: Box) -> None:
    link = box.root / "link"
    link.symlink_to(box.workspace.parent)
    box.change(workspace=link / "ws", home=link / "home")
    assert box.run_shell(f"touch {link}/ws/file && touch {link}/home/file") == (0, "")
    assert (box.workspace / "file").exists()


@pytest.mark.parametrize("option", ["writable", "readable", "home"])
def test_a_link_that_the_agent_has_made_leads_nowhere(box: Box, option: str) -> None:
    """It would otherwise get at any folder with its next start."""
    victim = box.root / "store" / "other"
    link = box.workspace / "sub"
    link.symlink_to(victim)
    box.change(**{option: link if option == "home" else [link]})
    assert box.run_shell(f"cat {victim}/file || touch {victim}/written || echo refused")[1] == "refused"
    assert not (victim / "written").exists()


def test_without_a_home_there_is_an_empty_temporary_one_with_what_is_writable(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = box.root / "user"
    (home / ".agent").mkdir(parents=True)
    (home / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(home))
    box.change(home=None, writable=[home / ".agent"])
    assert box.run_shell(f"touch {home}/file {home}/.agent/login; ls -A {home}")[1].split() == [".agent", "file"]
    assert [path.name for path in home.iterdir() if path.name == "file"] == []
    assert (home / ".agent" / "login").exists()


def test_nobody_inside_has_a_capability_or_can_undo_a_mount(box: Box) -> None:
    script = """
        import os, subprocess
        text = open("/proc/self/status").read()
        assert "CapEff:\\t0000000000000000" in text and "NoNewPrivs:\\t1" in text, text
        for command in ("mount -o remount,rw /", "umount /run", "umount -l /root",
                        "unshare -Urm umount -l /run", "unshare -Urm mount -o remount,rw,bind /"):
            assert subprocess.run(command.split(), capture_output=True).returncode, command
        print("confined")
        """
    assert box.run_python(script) == "confined"


def test_other_processes_are_not_seen(box: Box) -> None:
    script = "import os; print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit())[:1], os.getppid())"
    assert box.run_python(script) == "[1] 1"
    assert str(os.getpid()) not in box.run_shell("ls /proc")[1].split()


CONNECT = """
    import socket, sys
    for address in sys.argv[1:]:
        family = socket.AF_UNIX if address[0] in "/@" else socket.AF_INET
        target = address.replace("@", "\\0") if family == socket.AF_UNIX else ("127.0.0.1", int(address))
        try:
            socket.socket(family).connect(target)
            print("connected", address)
        except OSError as error:
            print(type(error).__name__)
    """


@pytest.mark.parametrize("network", ["none", "gateway"])
def test_no_listener_outside_can_be_reached(box: Box, network: str) -> None:
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0ambient-test-{os.getpid()}")
        hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
        hidden.bind(str(box.root / "hidden.sock"))
        gateway = stack.enter_context(socket.socket(socket.AF_UNIX))
        gateway.bind(str(box.root / "gateway.sock"))
        for listener in (abstract, hidden, gateway):
            listener.listen()
        box.change(network=network, gateway=box.root / "gateway.sock")
        addresses = [str(tcp.getsockname()[1]), f"@ambient-test-{os.getpid()}", str(box.root / "hidden.sock")]
        output = box.run_python(CONNECT, *addresses)
    assert "connected" not in output
    assert len(output.splitlines()) == 3


def test_sockets_of_the_system_cannot_be_reached_wherever_they_are(box: Box, visible: Path) -> None:
    """A read-only mount does not keep anyone from connecting to a socket in it."""
    paths = [visible / "daemon.sock", visible / "allowed.sock", box.workspace / "own.sock"]
    with ExitStack() as stack:
        for path in paths:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
        box.change(sockets=[visible / "allowed.sock"])
        refused, allowed, own = box.run_python(CONNECT, *map(str, paths)).splitlines()
    assert not refused.startswith("connected")
    assert allowed.startswith("connected")
    assert own.startswith("connected")


def test_sockets_in_folders_of_other_users_do_not_keep_an_agent_from_starting(
    box: Box, visible: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's list names sockets whose path cannot be followed: in private folders, or with names too long for a file."""
    private = visible / "private"
    private.mkdir(mode=0o000)
    table = box.root / "unix"
    rows = [
        f"0000: 00000002 0 10000 0001 01 {number} {path}"
        for number, path in enumerate((private / "s", "/" + "x" * 300))
    ]
    table.write_text("\n".join(["Num RefCount Protocol Flags Type St Inode Path", *rows]))
    monkeypatch.setattr("ambient_runner.processes.sandbox._SOCKET_TABLE", table)
    assert box.run_shell("echo started") == (0, "started")


@pytest.mark.parametrize(
    "path", ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/user"]
)
def test_folders_of_system_sockets_are_empty(box: Box, path: str) -> None:
    assert box.run_shell(f"test -e {path} && echo there")[1] == ""
    assert box.run_shell("ls -A /run")[1] == ""


def test_with_the_whole_network_a_listener_is_reached_and_names_can_be_resolved(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        box.change(network="all")
        port = str(listener.getsockname()[1])
        assert box.run_python(CONNECT, port) == f"connected {port}"
    assert box.run_shell("cat /etc/resolv.conf > /dev/null")[0] == 0


def test_a_gateway_needs_its_socket(box: Box) -> None:
    with pytest.raises(ValueError):
        box.change(network="gateway", gateway=None)


def test_input_output_and_exit_code_are_those_of_the_agent(box: Box) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(box.root / "gateway.sock"))
        box.change(network="gateway", gateway=box.root / "gateway.sock")
        result = subprocess.run(
            box.command("sh", "-c", "cat; echo $VALUE >&2; exit 7"),
            env=environment(VALUE="given"),
            input="through",
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
    assert (result.returncode, result.stdout, result.stderr) == (7, "through", "given\n")


def test_the_agent_finds_no_child_that_it_did_not_start(box: Box) -> None:
    box.change(network="gateway", gateway=box.root / "store")
    script = """
        import os
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no children", sorted(os.listdir("/proc/self/fd")))
        """
    assert box.run_python(script) == "no children ['0', '1', '2', '3']"  # 3 is the listing itself.


READ_EVENTS = f"""
    import http.client, sys
    connection = http.client.HTTPConnection("127.0.0.1", {GATEWAY_PORT})
    connection.request("POST", "/v1/messages", body=b"x" * int(sys.argv[1]), headers={{"x-api-key": sys.argv[2]}})
    response = connection.getresponse()
    print(response.status, flush=True)
    while line := response.readline():
        print(line.decode().strip(), flush=True)
    print("end", flush=True)
    """


async def test_the_model_is_reached_and_its_events_arrive_one_by_one(box: Box) -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway:
        box.change(network="gateway", gateway=gateway.socket_path)
        async with running(box.command(*python_command(READ_EVENTS, "5", PLACEHOLDER))) as agent:
            arrived = await origin.next_request()
            assert (arrived.headers["x-api-key"], await arrived.receive_body()) == (KEY, b"xxxxx")
            await arrived.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
            assert await read_line(agent) == "200"
            for number in range(10):
                await arrived.send_data(b"data: %d\n" % number)
                assert await read_line(agent) == f"data: {number}"
            await arrived.send(h11.EndOfMessage())
            assert await read_line(agent) == "end"


async def test_a_megabyte_is_uploaded_from_inside(box: Box) -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway:
        box.change(network="gateway", gateway=gateway.socket_path)
        async with running(box.command(*python_command(READ_EVENTS, str(1 << 20), PLACEHOLDER))) as agent:
            arrived = await origin.next_request()
            assert len(await arrived.receive_body()) == 1 << 20
            await arrived.respond(b"ok\n")
            assert [await read_line(agent) for _ in range(3)] == ["200", "ok", "end"]


async def test_an_agent_that_ends_ends_its_request(box: Box) -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway:
        box.change(network="gateway", gateway=gateway.socket_path)
        async with running(box.command(*python_command(READ_EVENTS, "1", PLACEHOLDER))) as agent:
            arrived = await origin.next_request()
            await arrived.receive_body()
            agent.kill()
            with unless_hung():
                assert await arrived.reader.read() == b""


async def test_the_key_is_in_no_variable_argument_or_file_inside(box: Box) -> None:
    script = f"""
        import http.client, os
        connection = http.client.HTTPConnection("127.0.0.1", {GATEWAY_PORT})
        connection.request("GET", "/", headers={{"x-api-key": os.environ["API_KEY"]}})
        assert connection.getresponse().read() == b"ok"
        found = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            for name in ("environ", "cmdline"):
                try:
                    with open(f"/proc/{{process}}/{{name}}", "rb") as file:
                        text = file.read()
                except OSError:
                    continue
                found.append({KEY[:9]!r}.encode() + {KEY[9:]!r}.encode() in text)
        print(len(found) >= 4, any(found))
        """
    async with open_origin() as origin, open_gateway(origin.url) as gateway:
        box.change(network="gateway", gateway=gateway.socket_path)
        async with running(box.command(*python_command(script)), API_KEY=PLACEHOLDER) as agent:
            arrived = await origin.next_request()
            assert arrived.headers["x-api-key"] == KEY
            await arrived.respond(b"ok")
            assert await read_line(agent) == "True False"


async def test_a_tunnel_leads_to_allowed_hosts_only(box: Box) -> None:
    script = f"""
        import http.client, json, sys
        statuses = []
        for host in sys.argv[1:]:
            connection = http.client.HTTPConnection("127.0.0.1", {GATEWAY_PORT})
            name, port = host.split(":")
            connection.set_tunnel(name, int(port))
            try:
                connection.request("GET", "/")
                statuses.append(connection.getresponse().read().decode())
            except OSError as error:
                statuses.append(str(error))
        print(json.dumps(statuses))
        """
    async with open_origin() as origin:
        allowed = f"localhost:{origin.port}"
        async with open_gateway(None, hosts=[allowed]) as gateway:
            box.change(network="gateway", gateway=gateway.socket_path)
            async with running(box.command(*python_command(script, "example.com:443", allowed))) as agent:
                await (await origin.next_request()).respond(b"inside")
                refused, answer = json.loads(await read_line(agent))
            assert "403" in refused
            assert (answer, gateway.refused) == ("inside", ["example.com"])


HOLD = """
    import os, signal, subprocess, sys
    detached = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    started, ready = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.fork()
        os.write(ready, b"x")
        signal.pause()
    os.read(started, 1), os.read(started, 1)
    print("ready", flush=True)
    sys.stdin.read()
    """


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_sandbox_leaves_no_process(box: Box, sent: signal.Signals) -> None:
    mark = f"{os.getpid()}-{sent}"
    with closing(socket.socket(socket.AF_UNIX)) as listener, ExitStack() as stack:
        listener.bind(str(box.root / "gateway.sock"))
        box.change(network="gateway", gateway=box.root / "gateway.sock")
        async with running(box.command(*python_command(HOLD)), **{MARK: mark}) as process:
            assert await read_line(process) == "ready"
            pids = marked_processes(mark)
            assert len(pids) >= 6  # two of bubblewrap, the agent, who forwards, and what the agent has started
            ended = await wait_for_end(pids, stack)
            process.send_signal(sent)
            with unless_hung():
                await ended
    assert marked_processes(mark) == []


async def test_a_killed_server_leaves_no_process(box: Box) -> None:
    mark = f"{os.getpid()}-server"
    server = """
        import subprocess, sys
        process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
        process.wait()
        """
    with ExitStack() as stack:
        command = python_command(server, *box.command(*python_command(HOLD)))
        async with running(command, **{MARK: mark}) as process:
            assert await read_line(process) == "ready"
            ended = await wait_for_end(marked_processes(mark), stack)
            process.kill()
            with unless_hung():
                await ended
    assert marked_processes(mark) == []


async def test_an_agent_that_ends_takes_everything_with_it(box: Box) -> None:
    mark = f"{os.getpid()}-end"
    with ExitStack() as stack:
        async with running(box.command(*python_command(HOLD)), **{MARK: mark}) as process:
            assert await read_line(process) == "ready"
            ended = await wait_for_end(marked_processes(mark), stack)
            assert process.stdin
            process.stdin.close()
            with unless_hung():
                await ended
                assert await process.wait() == 0
    assert marked_processes(mark) == []


async def test_a_hundred_starts_leave_no_descriptor_process_or_file(box: Box) -> None:
    mark = f"{os.getpid()}-hundred"
    slots = asyncio.Semaphore(4)

    async def start_once(url: str) -> None:
        async with slots, open_gateway(url) as gateway:
            box_command = sandboxed_command(
                ["true"], replace(box.sandbox, network="gateway", gateway=gateway.socket_path)
            )
            async with running(box_command, **{MARK: mark}) as process:
                with unless_hung():
                    assert await process.wait() == 0

    async with open_origin() as origin:
        await start_once(origin.url)
        before = len(list(Path("/proc/self/fd").iterdir()))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(start_once(origin.url))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
    with ExitStack() as stack, unless_hung():  # The kernel ends the rest of a sandbox right after its first process.
        await (await wait_for_end(marked_processes(mark), stack))
    assert marked_processes(mark) == []
    assert sorted(path.name for path in box.root.rglob("*")) == ["file", "home", "ledger.db", "other", "store", "ws"]
