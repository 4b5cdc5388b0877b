"""The scripted upstream of `tests/contract/test_bridges.py`: a real server of this project with the demo agent, on a real socket."""

from __future__ import annotations

import atexit
import socket
import threading
from functools import cache

import uvicorn

from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.bridges.remote import RemoteBridge


def scripted_bridge() -> RemoteBridge:
    return RemoteBridge(_demo_server())


@cache
def _demo_server() -> str:
    """The server's URL. It lives in a thread of its own, because those who ask have no loop yet, and ends with the process."""
    app = create_app(Settings(store="memory://"), {"demo": DemoBridge()})
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", loop="asyncio"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()

    @atexit.register
    def end() -> None:  # pyright: ignore[reportUnusedFunction]
        server.should_exit = True
        thread.join(10)

    return f"http://127.0.0.1:{listening.getsockname()[1]}/"
