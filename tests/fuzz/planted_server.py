"""A real server in which secrets are planted, and everything that leaves it: streams, history, state, exports, store, traces and log."""

from __future__ import annotations

import io
import json
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import httpx
from fastapi import FastAPI
from typer.testing import CliRunner

from ambient_runner import FrameworkCapabilities, PlatformBridge, Settings, Timeouts, add_ambient_endpoints
from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.cli.main import app as command_line
from ambient_runner.config import OtlpSettings, TracingSettings
from ambient_runner.config.secret_values import with_secrets
from ambient_runner.projections.redaction import Secrets
from ambient_runner.services.credentials import CredentialSubject
from ambient_runner.telemetry.log_format import JsonFormatter, RunContextFilter, TextFormatter
from tests.receiver import TRACES, Receiver, receiving
from tests.server.demo_server import client_of, run_body
from tests.services.world import by_header

__all__ = ["PlantedServer", "Surface", "export_threads", "serve_planted"]

_CAPABILITIES = FrameworkCapabilities(mcp=True, thinking=True)
"""With MCP, so that credentials are granted to every run; no server is configured."""
_RUN_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A text that left the server."""

    name: str
    text: str


class GrantedDemoBridge(DemoBridge):
    """The demo agent, with credentials granted to its runs."""

    def capabilities(self) -> FrameworkCapabilities:
        return _CAPABILITIES


@dataclass(kw_only=True)
class PlantedServer:
    """A running server. `grants` are the variables of each owner, `scripts` what the agent does in each run."""

    client: httpx.AsyncClient
    store: Path
    grants: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    scripts: dict[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    surfaces: list[Surface] = field(default_factory=list[Surface])
    threads: dict[str, str] = field(default_factory=dict[str, str])
    """The owner of each thread."""
    refused: int = 0

    async def run(self, agent: str, owner: str, run: str, body: Mapping[str, Any]) -> None:
        """Run the agent on the owner's thread. Keep the response."""
        thread = f"thread-of-{owner}"
        self.threads[thread] = owner
        asked = run_body("say hello", thread=thread, message=f"message-{run}")
        messages = [*body.get("messages", ()), *([] if _has_user_message(body) else asked["messages"])]
        for message in messages:
            message["id"] = f"{message['id']}-{run}" if message.get("id") in {"planted", "sample"} else message["id"]
        asked |= {**body, "runId": run, "messages": messages}
        response = await self.client.post(f"/agents/{agent}", json=asked, headers={"x-owner": owner})
        self.refused += response.status_code != 200
        self._keep_response("stream", response)

    async def request(self, name: str, method: str, path: str, owner: str, **options: Any) -> httpx.Response:
        """Send another request. Keep the response."""
        response = await self.client.request(method, path, headers={"x-owner": owner}, **options)
        self._keep_response(name, response)
        return response

    def _keep_response(self, name: str, response: httpx.Response) -> None:
        self.surfaces += [Surface(name=name, text=text) for text in _response_texts(response.text)]

    async def read_threads(self) -> None:
        """Keep what every thread answers now, and the bytes of the store."""
        for thread, owner in self.threads.items():
            await self.request("replay", "GET", f"/threads/{thread}/events?until=idle", owner)
            await self.request("replay", "GET", f"/threads/{thread}/events?until=idle&client=0.0.42", owner)
            await self.request("messages", "GET", f"/message_snapshot/{thread}", owner)
            await self.request("state", "GET", f"/state_snapshot/{thread}", owner)
        self.read_store()

    def read_store(self) -> None:
        """Keep the bytes of the database and of its write-ahead log."""
        for path in self.store.parent.glob(f"{self.store.name}*"):
            self.surfaces.append(Surface(name="database", text=path.read_bytes().decode("latin-1")))
            self.surfaces.append(Surface(name="database", text=path.read_bytes().decode("utf-8", "replace")))


def _has_user_message(body: Mapping[str, Any]) -> bool:
    return any(message.get("role") == "user" for message in body.get("messages", ()))


@asynccontextmanager
async def serve_planted(
    directory: Path,
    environ: Mapping[str, str],
    bridges: Mapping[str, PlatformBridge] | None = None,
    *,
    redacts: bool = True,
) -> AsyncGenerator[PlantedServer, None]:
    """Serve the demo agent, an AG-UI agent that plays scripts, and `bridges`. At the end, keep traces and log too.

    Without redaction, what is planted must be found: that shows that the search works.
    """
    store = directory / "planted.db"
    with ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        settings = with_secrets(_settings(store, receiver), environ, ())
        secrets, logs = stack.enter_context(_captured_log(settings))
        app = FastAPI()
        agents = {"demo": GrantedDemoBridge(), "agui": _scripted_agent(lambda: server), **(bridges or {})}
        add_ambient_endpoints(
            app,
            agents=agents,
            settings=settings if redacts else replace(settings, secrets=()),
            authorize=by_header,
            secrets=secrets if redacts else Secrets((), patterns=()),
            credentials=_credentials(lambda: server) if redacts else None,
        )
        async with client_of(app) as client:
            client.timeout = httpx.Timeout(_RUN_SECONDS)
            server = PlantedServer(client=client, store=store)
            yield server
            await server.read_threads()
        server.read_store()
        server.surfaces += _trace_surfaces(receiver)
        server.surfaces += [Surface(name="log", text=log.getvalue()) for log in logs]


def _settings(store: Path, receiver: Receiver) -> Settings:
    return Settings(
        store=f"sqlite:///{store}",
        timeouts=Timeouts(grace=0.5),
        on_pending_interrupt="cancel",
        tracing=TracingSettings(otlp=OtlpSettings(endpoint=receiver.url + TRACES), content=True),
    )


def _credentials(server: Any) -> Any:
    async def grant(subject: CredentialSubject) -> Mapping[str, str]:
        return cast("PlantedServer", server()).grants.get(subject.actor.owner, {})

    return grant


def _scripted_agent(server: Any) -> AGUIBridge:
    """Return an agent that sends the events of its run's script, raises its exceptions and logs its other objects."""

    async def run(run_input: Any) -> AsyncGenerator[Any, None]:
        for step in cast("PlantedServer", server()).scripts.get(run_input.run_id, ()):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, str):
                logging.getLogger("agent").warning("The tool said %s", step)
                logging.getLogger("agent").info(step)
            else:
                yield step

    return AGUIBridge(run, capabilities=_CAPABILITIES)


@contextmanager
def _captured_log(settings: Settings) -> Iterator[tuple[Secrets, list[io.StringIO]]]:
    """Log through both of our formatters, as `ambient serve` does, into buffers."""
    root, before = logging.getLogger(), logging.getLogger().level
    formatters = (TextFormatter(settings.secrets), JsonFormatter(settings.secrets))
    logs = [io.StringIO() for _ in formatters]
    handlers = [logging.StreamHandler(log) for log in logs]
    for handler, formatter in zip(handlers, formatters, strict=True):
        handler.setFormatter(formatter)
        handler.addFilter(RunContextFilter())
        root.addHandler(handler)

    def add(values: Any) -> None:
        for formatter in formatters:
            formatter.add_secrets(values)

    root.setLevel(logging.INFO)
    try:
        yield Secrets(settings.secrets, add, patterns=settings.secret_patterns), logs
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)


def _response_texts(body: str) -> Iterator[str]:
    """Yield a response as it is, every string of its JSON, and the joined deltas of each message and call."""
    yield body
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]
    if not events and body[:1] in {"{", "["}:
        events = [json.loads(body)]
    yield "\0".join(text for event in events for text in _strings(event))
    deltas: defaultdict[tuple[str, str], str] = defaultdict(str)
    for event in events:
        if isinstance(event.get("delta"), str):
            kind = event["type"].partition("_")[0]
            deltas[kind, event.get("messageId") or event.get("toolCallId") or ""] += event["delta"]
    yield from deltas.values()


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, item in cast("dict[str, Any]", value).items():
                yield name
                yield from _strings(item)
        case list():
            for item in cast("list[Any]", value):
                yield from _strings(item)
        case _:
            return


def _trace_surfaces(receiver: Receiver) -> Iterator[Surface]:
    for span in receiver.spans():
        yield Surface(
            name="traces", text=f"{span.name}\0{span.error}\0" + "\0".join(map(str, span.attributes.values()))
        )
    for post in receiver.posts:
        yield Surface(name="traces", text=post.body.decode("utf-8", "replace"))


def export_threads(server: PlantedServer) -> None:
    """Keep the output of `ambient threads export` for every thread. Call it outside of an event loop, after the server has closed."""
    for thread, owner in server.threads.items():
        arguments = ["threads", "export", thread, "--owner", owner, "--store", f"sqlite:///{server.store}"]
        done = CliRunner().invoke(command_line, arguments)
        assert done.exit_code == 0, done.output
        server.surfaces.append(Surface(name="export", text=done.output))
        lines = [json.loads(line) for line in done.output.splitlines()]
        server.surfaces.append(Surface(name="export", text="\0".join(_strings(lines))))
