"""Two real processes: an agent server with a memory store, and a gateway in front of it that stores the threads."""

from __future__ import annotations

import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from .server import AMBIENT, Child, start

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def free_port() -> int:
    """A port that is free now, for a server that has to come back where it was."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return int(taken.getsockname()[1])


def start_runner(directory: Path, *agents: str, port: int = 0) -> Child:
    """`ambient serve` with a memory store, in a directory of its own."""
    command = [AMBIENT, "serve", *(agents or ("demo",)), "--port", str(port), "--store", "memory://"]
    return Child(command, cwd=directory)


def start_gateway(store: Path, runner: str) -> Child:
    """`ambient serve` with a SQLite store in front of the runner at this URL."""
    return start(store, f"front={runner}/")


@contextmanager
def pair(directory: Path, *agents: str) -> Generator[tuple[Child, Child]]:
    """The gateway and its runner."""
    (directory / "runner").mkdir()
    with (
        start_runner(directory / "runner", *agents) as runner,
        start_gateway(directory / "gateway.db", runner.url) as gateway,
    ):
        yield gateway, runner
