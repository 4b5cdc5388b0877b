"""The inner end of a gateway: a program that makes a port on 127.0.0.1 lead to a unix socket, and then becomes the agent.

`python -I -S gateway_inside.py SOCKET PORT COMMAND…` runs in a sandbox that has no network but its own loopback. The process itself becomes
the agent, with its input, output and exit code; a process of its own forwards the connections, until the sandbox ends. This file imports
nothing of ours, to be started in a sandbox that does not have our packages, and to stay small.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from threading import Thread

_BLOCK_BYTES = 1 << 16
_BACKLOG = 128
_MAX_FILES = 1 << 16
_RETRY_SECONDS = 0.05


def run(path: str, port: int, command: list[str]) -> None:
    """Listen, start forwarding, and become the command. Raises: OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    _start_forwarding(listener, path)
    listener.close()
    os.execvp(command[0], command)  # noqa: S606


def _start_forwarding(listener: socket.socket, path: str) -> None:
    """Forward in a process that is not a child of ours: the agent must not find a child that it did not start."""
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]:
            raise ChildProcessError("The process that forwards connections could not be started.")
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    _release_files(listener.fileno())
    _forward_connections(listener, path)


def _release_files(kept: int) -> None:
    """Let go of the agent's input and output: who reads them must see their end when the agent has ended."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.closerange(3, kept)
    os.closerange(kept + 1, _MAX_FILES)


def _forward_connections(listener: socket.socket, path: str) -> None:
    while True:
        try:
            inner, _ = listener.accept()
            Thread(target=_forward, args=(inner, path), daemon=True).start()
        except (OSError, RuntimeError):  # Too many connections: those that end make room for the next.
            time.sleep(_RETRY_SECONDS)


def _forward(inner: socket.socket, path: str) -> None:
    """Pass bytes both ways until both sides have ended."""
    with inner, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as outer:
        try:
            inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            outer.connect(path)
        except OSError:
            return
        upload = Thread(target=_copy, args=(inner, outer), daemon=True)
        upload.start()
        _copy(outer, inner)
        upload.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_BLOCK_BYTES):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
