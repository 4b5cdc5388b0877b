"""What a command of an agent can reach from its sandbox. Without bubblewrap the same scenario says what nobody enforces."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from tests.agents.model import KEY
from tests.agents.scenarios import Try
from tests.agents.script import HELLO
from tests.agents.world import AgentProcess, Conversation, require

SECRET = "a-word-of-another-thread"
REPORT = "escape.txt"


class NotEnforced(Exception):
    """Nobody limits the agent here."""


@dataclass
class Outside:
    """What must stay out of reach: a file, and a port on which somebody listens."""

    file: Path
    port: int
    connections: int = 0

    def escape_command(self) -> str:
        """Return a command that tries to leave the sandbox in every way, and writes what it managed into the workspace."""
        tries = [
            f"echo x > {self.file} && echo wrote-outside",
            f"cat ../../*/artifacts/secret.txt | grep {SECRET}",
            f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{self.port}' && echo connected",
            "cat ../../../../../ambient.db > /dev/null && echo read-the-store",
            f"grep -aq {KEY[3:12]} /proc/*/environ && echo read-the-key",
        ]
        return f"({'; '.join(f'({attempt})' for attempt in tries)}; echo tried) > {REPORT} 2> /dev/null"


@contextmanager
def watched_outside(directory: Path) -> Generator[Outside]:
    """Listen on a port for the time of a `with` block, and count the connections."""
    directory.mkdir(parents=True, exist_ok=True)
    listener = socket.create_server(("127.0.0.1", 0))
    outside = Outside(directory / "written.txt", listener.getsockname()[1])

    def count() -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return
            outside.connections += 1

    thread = Thread(target=count, daemon=True)
    thread.start()
    try:
        yield outside
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


async def try_to_escape(this: Try, outside: Outside) -> None:
    """Let a command try. Raises: AssertionError for everything it reached, NotEnforced if there is no sandbox."""
    await _leave_a_secret(this)
    events = await this.conversation.run("otter escapes")
    while events[-1].get("outcome", {}).get("type") == "interrupt":
        events = await this.conversation.resume(events, {"approved": True})
    reports = [path for path in this.world.find_files(REPORT) if this.thread in path.parts]
    assert reports, "the command was not executed in the workspace"
    reached = sorted({line for line in reports[0].read_text().splitlines() if line != "tried"})
    reached += ["the file outside exists"] if outside.file.exists() else []
    reached += [f"{outside.connections} connections"] if outside.connections else []
    reached += _places_of_the_key(this)
    if not _is_sandboxed(this):
        raise NotEnforced(", ".join(reached) or "nothing was reached")
    assert not reached, f"reached from the sandbox: {', '.join(reached)}"


async def _leave_a_secret(this: Try) -> None:
    """Make another thread with a file in its workspace."""
    other = Conversation(this.conversation.url, f"{this.thread}-other")
    require(await other.run("otter greets"), HELLO)
    own = next(path for path in (this.world.directory / "workspaces").rglob("artifacts") if other.thread in path.parts)
    (own / "secret.txt").write_text(SECRET)


def _is_sandboxed(this: Try) -> bool:
    """Return True if the first process of the agent is the sandbox: some agents start one for their commands."""
    processes = this.world.agent_processes(this.server)
    return bool(processes) and processes[0].name == "bwrap"


def _places_of_the_key(this: Try) -> list[str]:
    """Return the processes and files of the agent that have the key."""
    key = KEY.encode()
    processes = [process for process in this.world.agent_processes(this.server) if key in _read_variables(process)]
    files = (path for path in this.world.directory.rglob("*") if path.is_file() and not path.is_symlink())
    directories = [path.parent.name for path in files if key in path.read_bytes()]
    return [
        *(f"the key is a variable of {name}" for name in sorted({process.name for process in processes})),
        *(f"the key is in a file of {name}" for name in sorted(set(directories))),
    ]


def _read_variables(process: AgentProcess) -> bytes:
    try:
        return Path(f"/proc/{process.handle.pid}/environ").read_bytes()
    except OSError:
        return b""
