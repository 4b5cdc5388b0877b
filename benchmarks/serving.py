"""Serve an app on a free port, with the settings of this server: one worker, uvloop, httptools, no access log."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn


def serve(app: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", lifespan="off", access_log=False, log_level="warning", ws="none"
    )
    uvicorn.Server(config).run(sockets=[listener])
