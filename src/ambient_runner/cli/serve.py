"""`ambient serve`: binds the socket, starts the server, then prints the address."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import uvicorn
from rich.console import Console
from rich.table import Table

from ambient_runner.bridges.registry import load_agents
from ambient_runner.config import is_loopback
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.ledger import open_ledger
from ambient_runner.server.app import create_app
from ambient_runner.server.direct_send import expose_server_send
from ambient_runner.server.home_page import curl_command
from ambient_runner.telemetry.log_format import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable

    from fastapi import FastAPI

    from ambient_runner.config import Settings
    from ambient_runner.server.runtime import ServerRuntime

_BACKLOG = 2048
_PORTS = 65535

logger = logging.getLogger(__name__)


def serve_agents(settings: Settings) -> None:
    """Serve until stopped. Raises: ConfigError when it cannot start."""
    secrets = log_to_stderr(settings)
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    require_loopback(settings.host)
    anyio.run(try_store, settings)
    bridges = load_agents(settings.agents or ("demo",))
    app = create_app(settings, bridges, secrets=secrets)
    with bind_socket(settings.host, settings.port) as listener, _raise_startup_errors(app), suppress(KeyboardInterrupt):
        url = format_url(*listener.getsockname()[:2])
        _freeze_gc()
        _Server(app, settings, lambda: _print_banner(url, settings, bridges)).run(sockets=[listener])


def _freeze_gc() -> None:
    """Exclude loaded modules from garbage collection, and collect less often.

    Scanning the modules pauses every stream for a tenth of a second. Objects of a run are freed by reference counting, so collections
    are rare enough that most runs end before one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 5, 5)


def _exit_on_sigterm(number: int, frame: object) -> NoReturn:
    """Exit with 0 on SIGTERM. uvicorn raises the signal again after a clean shutdown."""
    sys.exit(0)


async def try_store(settings: Settings) -> None:
    """Open the store and close it. Raises: ConfigError, LedgerError."""
    async with open_ledger(settings.store, lease=settings.lease):
        pass


def require_loopback(host: str) -> None:
    """Raise ConfigError for an address that other machines can reach: `ambient serve` does not authenticate."""
    if not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no authorization mode. "
            "To serve others, call add_ambient_endpoints(app, bridge, authorize=...) in an app of your own."
        )


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises: ConfigError when the address is in use or not local."""
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


def format_url(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


class _Server(uvicorn.Server):
    """uvicorn that prints the banner once it accepts connections, and drains the runs before it closes its sockets."""

    def __init__(self, app: FastAPI, settings: Settings, announce: Callable[[], None]) -> None:
        super().__init__(_uvicorn_config(app, settings))
        self._announce = announce
        self._ambient: ServerRuntime = app.state.ambient
        self._drain = self._ambient.drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._drain()
        uncancellable = self._ambient.uncancellable_tasks
        await super().shutdown(sockets)
        logger.info("The server stopped. Its threads are stored; start it again to continue them.")
        if uncancellable:
            # The event loop would wait for them forever.
            logger.error(
                "Exiting although %d agent tasks ignored their cancellation. Their agents must not swallow CancelledError.",
                len(uncancellable),
            )
            os._exit(0)


def _uvicorn_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        expose_server_send(app),
        lifespan="on",
        log_config=None,
        access_log=settings.log_level == "debug",
        timeout_graceful_shutdown=round(settings.timeouts.grace) + 5,
        proxy_headers=False,
        server_header=False,
    )


@contextmanager
def _raise_startup_errors(app: FastAPI) -> Generator[None]:
    """Raise our own start-up errors unchanged. uvicorn would log a traceback and exit with its own code."""
    failures: list[RunnerError] = []
    start = app.router.lifespan_context
    log = logging.getLogger("uvicorn.error")

    @asynccontextmanager
    async def recording_lifespan(served: FastAPI) -> AsyncGenerator[Any]:
        try:
            async with start(served) as state:
                yield state
        except RunnerError as error:
            failures.append(error)
            log.disabled = True
            raise

    app.router.lifespan_context = recording_lifespan
    try:
        yield
    except SystemExit:
        if not failures:
            raise
    finally:
        log.disabled = False
    if failures:
        raise failures[0]


def _print_banner(url: str, settings: Settings, agents: Iterable[str]) -> None:
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_row("[dim]agents[/]", ", ".join(agents))
    table.add_row("[dim]store[/]", settings.store_label)
    console.print(f"Listening on {url}", style="bold green", soft_wrap=True)
    console.print(table)
    console.print("\nTry it:\n", style="dim")
    default, *others = agents
    console.print(curl_command(url, default), soft_wrap=True, markup=False)
    for name in others:
        console.print(curl_command(url, name, f"/agents/{name}"), soft_wrap=True, markup=False)
    console.print()
    console.file.flush()
