"""A program that an agent starts as an MCP server: it connects the agent's pipes with a socket of the server, which has the tools.

It runs outside of the server, in the agent's sandbox, as `python -I -S tool_relay.py SOCKET`. So it imports the standard library only. It
ends when the agent closes its input or its output, or the server the socket.
"""

import os
import signal
import socket
import sys
import threading

_BLOCK_BYTES = 1 << 16


def main(path: str) -> int:
    """Copy bytes in both directions until one side ends. Return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for pipe in (0, 1):
        os.set_blocking(pipe, True)
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
        except OSError as error:
            sys.stderr.write(f"The server that has these tools cannot be reached: {error}\n")
            return 1
        threading.Thread(target=_copy_input, args=(server,), daemon=True).start()
        return _copy_output(server)


def _copy_input(server: socket.socket) -> None:
    try:
        while data := os.read(0, _BLOCK_BYTES):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # The server is gone; `_copy_output` ends.


def _copy_output(server: socket.socket) -> int:
    try:
        while data := server.recv(_BLOCK_BYTES):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]
    except OSError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
