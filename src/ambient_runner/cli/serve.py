"""`ambient serve`: bind, start, and only then say where we listen."""

from __future__ import annotations

import gc
import json
import logging
import os
import shlex
import signal
import socket
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import uvicorn
from rich.console import Console
from rich.table import Table

from ambient_runner.bridges.registry import load_agents
from ambient_runner.config import is_loopback
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.protocol.events import PROTOCOL_VERSION
from ambient_runner.server.app import create_app
from ambient_runner.server.direct_send import direct
from ambient_runner.telemetry.log_format import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable

    from fastapi import FastAPI

    from ambient_runner.config import Settings
    from ambient_runner.server.runtime import Service

_EXAMPLES = {"demo": "weather Lisbon"}
_BACKLOG = 2048
_PORTS = 65535

logger = logging.getLogger(__name__)


def serve_agents(settings: Settings) -> None:
    """Serve until stopped. Raises: ConfigError when it cannot start."""
    secrets = log_to_stderr(settings)
    signal.signal(signal.SIGTERM, _asked_to_end)
    require_loopback(settings.host)
    bridges = load_agents(settings.agents or ("demo",))
    app = create_app(settings, bridges, secrets=secrets)
    with bind(settings.host, settings.port) as listener, _plain_failures(app), suppress(KeyboardInterrupt):
        url = url_of(*listener.getsockname()[:2])
        _calm_the_collector()
        _Server(app, settings, lambda: _announce(url, settings, bridges)).run(sockets=[listener])


def _calm_the_collector() -> None:
    """Modules stay for good, and a look at all of them stops every stream for a tenth of a second: leave them out.

    What a run makes goes with it, without the collector's help. So it looks rarely enough that most runs are over before it does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 5, 5)


def _asked_to_end(number: int, frame: object) -> NoReturn:
    """An ending that was asked for is a success. uvicorn raises the signal again once it has shut down well."""
    sys.exit(0)


def require_loopback(host: str) -> None:
    """Raises: ConfigError for an address others can reach: nobody would be asked who they are."""
    if not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no authorization mode. "
            "To serve others, call add_ambient_endpoints(app, bridge, authorize=...) in an app of your own."
        )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises: ConfigError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Try --port 0, or AMBIENT_PORT={port % _PORTS + 1}."
        ) from error
    listener.set_inheritable(False)
    return listener


def url_of(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


def curl_line(url: str, agent: str, path: str = "/") -> str:
    """A request to try an agent with, ready to paste again and again: without ids, each begins a thread of its own."""
    message = {"role": "user", "content": _EXAMPLES.get(agent, "hello")}
    body = json.dumps({"protocolVersion": PROTOCOL_VERSION, "messages": [message]}, separators=(",", ":"))
    return f"curl -N {url}{path} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


class _Server(uvicorn.Server):
    """uvicorn, with a word when it is really ready, and a door that stays open until the last run has ended."""

    def __init__(self, app: FastAPI, settings: Settings, announce: Callable[[], None]) -> None:
        super().__init__(_uvicorn_config(app, settings))
        self._announce = announce
        self._ambient: Service = app.state.ambient
        self._drain = self._ambient.drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._drain()
        left_behind = self._ambient.left_behind
        await super().shutdown(sockets)
        if left_behind:
            # The loop would wait for them, and they have shown that they do not end.
            logger.error("Ending without %d agents that went on after they were cancelled", len(left_behind))
            os._exit(0)


def _uvicorn_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        direct(app),
        lifespan="on",
        log_config=None,
        access_log=settings.log_level == "debug",
        timeout_graceful_shutdown=round(settings.timeouts.grace) + 5,
        proxy_headers=False,
        server_header=False,
    )


@contextmanager
def _plain_failures(app: FastAPI) -> Generator[None]:
    """Raise our own errors of start-up as they are: uvicorn would log a traceback and exit with a code of its own."""
    failures: list[RunnerError] = []
    start = app.router.lifespan_context
    log = logging.getLogger("uvicorn.error")

    @asynccontextmanager
    async def remembering(served: FastAPI) -> AsyncGenerator[Any]:
        try:
            async with start(served) as state:
                yield state
        except RunnerError as error:
            failures.append(error)
            log.disabled = True
            raise

    app.router.lifespan_context = remembering
    try:
        yield
    except SystemExit:
        if not failures:
            raise
    finally:
        log.disabled = False
    if failures:
        raise failures[0]


def _announce(url: str, settings: Settings, agents: Iterable[str]) -> None:
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_row("[dim]agents[/]", ", ".join(agents))
    table.add_row("[dim]store[/]", settings.store_label)
    console.print(f"Listening on {url}", style="bold green", soft_wrap=True)
    console.print(table)
    console.print("\nTry it:\n", style="dim")
    default, *others = agents
    console.print(curl_line(url, default), soft_wrap=True, markup=False)
    for name in others:
        console.print(curl_line(url, name, f"/agents/{name}"), soft_wrap=True, markup=False)
    console.print()
    console.file.flush()
