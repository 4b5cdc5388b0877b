"""Servers that do not keep to HTTP, or not to any end of it: what they send is written by hand, on a socket of loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

__all__ = ["Raw", "Speech", "endless", "raw_server", "trickling"]

_PIECE = b"x" * (1 << 16)


@dataclass
class Raw:
    """What has happened at such a server. `sent` counts the bytes clients have taken."""

    url: str = ""
    hear: Callable[[bytes], object] = len
    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    came: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """One for each client that has asked."""
    left: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """One for each client that has closed its connection before all was said."""

    def send(self, client: socket.socket, data: bytes) -> None:
        client.sendall(data)
        self.sent += len(data)


Speech = Callable[[Raw, socket.socket], None]
"""What a server does with one who has asked."""


def trickling(head: bytes) -> Speech:
    """Says `head`, and then a byte at a time, without end."""

    def speak(server: Raw, client: socket.socket) -> None:
        server.send(client, head)
        while not server.over.wait(0.05):
            server.send(client, b" ")

    return speak


def endless(head: bytes, most: int = 64 << 20) -> Speech:
    """Says `head`, and then more than anyone can want, as fast as it is taken."""

    def speak(server: Raw, client: socket.socket) -> None:
        server.send(client, head)
        while server.sent < most and not server.over.is_set():
            server.send(client, _PIECE)

    return speak


@contextmanager
def raw_server(speech: Speech, hear: Callable[[bytes], object] = len) -> Iterator[Raw]:
    """One that answers every connection with this, for the time of a `with` block. `hear` is told what was asked."""
    state = Raw(hear=hear)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        state.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        accepting = threading.Thread(target=_accept, args=(listening, state, speech), daemon=True)
        accepting.start()
        try:
            yield state
        finally:
            state.over.set()
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()


def _accept(listening: socket.socket, state: Raw, speech: Speech) -> None:
    with suppress(OSError):  # it was closed
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_serve, args=(client, state, speech), daemon=True).start()


def _serve(client: socket.socket, state: Raw, speech: Speech) -> None:
    with client:
        client.settimeout(30)
        try:
            state.hear(client.recv(1 << 20))
            state.came.release()
            speech(state, client)
        except OSError:
            state.left.release()
