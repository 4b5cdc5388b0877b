"""`ambient serve`: binds the socket, starts the server, then prints the address."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import uvicorn
from rich.console import Console
from rich.text import Text

from ambient_runner.bridges.registry import load_agents
from ambient_runner.cli.columns import align_columns
from ambient_runner.cli.errors import find_error
from ambient_runner.cli.garbage_collection import freeze_loaded_agents
from ambient_runner.cli.stdio import OutputClosed
from ambient_runner.cli.text_format import strip_control_chars
from ambient_runner.config import is_loopback
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.ledger import open_ledger
from ambient_runner.runs.busy_threads import find_busy_threads
from ambient_runner.runs.containment import run_of_task
from ambient_runner.server.app import create_app
from ambient_runner.server.connection_limits import make_http_protocol
from ambient_runner.server.direct_send import expose_server_send
from ambient_runner.server.home_page import curl_command
from ambient_runner.telemetry.log_format import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable

    from fastapi import FastAPI

    from ambient_runner.config import Settings
    from ambient_runner.runs.containment import UncancellableTasks
    from ambient_runner.runs.run import Run
    from ambient_runner.server.runtime import ServerRuntime

SWITCH_INTERVAL = 0.001
"""Seconds after which a thread that computes releases the GIL. The commit thread releases it at each call of SQLite, and with Python's
5 ms waits that long to get it back from a busy event loop."""
_BACKLOG = 2048
_PORTS = 65535
_MAX_LOGGED_RUNS = 5
"""Runs that the log names if they did not end."""
_EXIT_TIMEOUT = 2.0
"""Seconds that the process waits for threads after the server has stopped."""

logger = logging.getLogger(__name__)


def serve_agents(settings: Settings) -> None:
    """Serve until stopped. Raises: ConfigError when it cannot start."""
    secrets = log_to_stderr(settings)
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    require_loopback(settings.host)
    anyio.run(try_store, settings)
    bridges = load_agents(settings.agents or ("demo",), settings.configured_agents)
    app = create_app(settings, bridges, secrets=secrets)
    with bind_socket(settings.host, settings.port) as listener, _raise_startup_errors(app), suppress(KeyboardInterrupt):
        url = format_url(*listener.getsockname()[:2])
        freeze_loaded_agents()
        sys.setswitchinterval(SWITCH_INTERVAL)
        _Server(app, settings, lambda: announce_server(url, settings, bridges)).run(sockets=[listener])


def _exit_on_sigterm(number: int, frame: object) -> NoReturn:
    """Exit with 0 on SIGTERM. uvicorn raises the signal again after a clean shutdown."""
    sys.exit(0)


async def try_store(settings: Settings) -> None:
    """Open the store and close it. Raises: ConfigError, LedgerError."""
    async with open_ledger(settings.store, lease=settings.lease, patience=settings.store_patience):
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
        exit_despite_tasks(uncancellable, 0)
        _limit_exit_time(0)


def exit_despite_tasks(uncancellable: UncancellableTasks, code: int) -> None:
    """Exit at once if agents left tasks that ignore their cancellation: the event loop would wait for them forever.

    If one still executes code in a thread, the process exits soon. The log names the runs.
    """
    is_busy = _report_unended_runs(uncancellable)
    if uncancellable:
        with suppress(OutputClosed):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if is_busy:
        _limit_exit_time(code)


def _report_unended_runs(uncancellable: UncancellableTasks) -> bool:
    """Log the runs whose agents still execute code: in tasks that ignored their cancellation, or in threads. Return False if none does."""
    found = [f"{_name_run(run_of_task(task))} in a task" for task in uncancellable]
    found += [f"{_name_run(busy.run)} in a thread, at {busy.location}" for busy in find_busy_threads()]
    if not found:
        return False
    if len(found) > _MAX_LOGGED_RUNS:
        found[_MAX_LOGGED_RUNS:] = [f"{len(found) - _MAX_LOGGED_RUNS} more"]
    logger.error(
        "Exiting although agents did not end: %s. Agents must not swallow CancelledError, and their blocking calls need a timeout.",
        "; ".join(found),
    )
    return True


def _name_run(run: Run | None) -> str:
    return f"run {run.key} of agent {run.agent} on thread {run.thread.id}" if run else "an unknown run"


def _limit_exit_time(code: int) -> None:
    """End the process if it still waits for threads after `_EXIT_TIMEOUT`: the event loop and the interpreter wait without a limit."""
    timer = threading.Timer(_EXIT_TIMEOUT, os._exit, (code,))
    timer.daemon = True
    timer.start()
    atexit.register(timer.cancel)  # Called when all threads have ended. Other exit functions have their time.


def _uvicorn_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        expose_server_send(app),
        http=make_http_protocol(slow_reader=settings.slow_reader),
        ws="none",
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
        except (RunnerError, ExceptionGroup) as raised:
            error = find_error(raised)
            if isinstance(error, RunnerError):
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


def announce_server(url: str, settings: Settings, agents: Iterable[str]) -> None:
    """Print the banner. A server needs no standard output, so one that is closed does not end it."""
    with suppress(OutputClosed):
        print_banner(url, settings, agents)


def print_banner(url: str, settings: Settings, agents: Iterable[str]) -> None:
    """Print the address, the agents, the store and a request to try. Values of the user are never interpreted as markup."""
    console = Console(highlight=False)
    facts = {"agents": ", ".join(agents), "store": settings.store_label}
    console.print(f"Listening on {url}", style="bold green", soft_wrap=True, markup=False)
    rows = [[Text(label, style="dim"), Text(strip_control_chars(value))] for label, value in facts.items()]
    for line in align_columns(rows):
        console.print(line, soft_wrap=True)
    console.print("\nTry it:\n", style="dim")
    default, *others = agents
    console.print(curl_command(url, default), soft_wrap=True, markup=False)
    for name in others:
        console.print(curl_command(url, name, f"/agents/{name}"), soft_wrap=True, markup=False)
    console.print()
    console.file.flush()
