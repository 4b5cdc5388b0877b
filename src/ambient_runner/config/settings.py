"""What can be set, as data. Nothing here reads anything."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

OnBusy = Literal["reject", "queue", "supersede", "join"]
OnDisconnect = Literal["continue", "stop"]
History = Literal["server", "client"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """How long a run may take, in seconds."""

    idle: float = 600.0
    """Between two events of the agent."""
    total: float = 3600.0
    """From start to end."""
    grace: float = 5.0
    """What an agent gets to end by itself after a stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtlpSettings:
    """An OpenTelemetry collector, or anything else that takes OTLP over HTTP."""

    endpoint: str = "http://localhost:4318/v1/traces"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class LangfuseSettings:
    """A Langfuse project: it takes traces and the scores of feedback."""

    url: str
    public_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    stage: str = ""
    """What Langfuse calls its environment: `production`, `staging`…"""

    @property
    def authorization(self) -> str:
        """The value of the `Authorization` header."""
        return f"Basic {base64.b64encode(f'{self.public_key}:{self.secret_key}'.encode()).decode()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TracingSettings:
    """Where runs are traced to. Nowhere until a place is named."""

    otlp: OtlpSettings | None = None
    langfuse: LangfuseSettings | None = None
    content: bool | None = None
    """Whether texts, arguments and results go along; None: to Langfuse, and nowhere else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that can be set. Durations are seconds, sizes are bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    store: str = field(default="sqlite:///.ambient/ambient.db", repr=False)
    lease: float = 10.0
    on_busy: OnBusy = "reject"
    queue_depth: int = 8
    queue_wait: float = 30.0
    on_disconnect: OnDisconnect = "continue"
    history: History | None = None
    timeouts: Timeouts = Timeouts()
    adapters_kept: int = 256
    adapter_idle: float = 900.0
    max_body: int = 10 << 20
    retain: int = 0
    """How many of a thread's newest entries are kept, at least; 0 keeps all."""
    slow_reader: float = 60.0
    heartbeat: float = 15.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    pass_headers: tuple[str, ...] = ()
    """Names of request headers, in lower case, that agents may see (`current_run().headers`)."""
    agents: tuple[str, ...] = ()
    """Agent specs, `name` or `name=package.module:attribute`, as `load_agent` takes them."""
    log_level: LogLevel = "info"
    tracing: TracingSettings = TracingSettings()
    default_thread: str = ""
    """The thread that a request to the platform's routes means when it names none."""
    workspace: str = ".ambient/workspaces"
    """The folder under which every thread with files has a workspace of its own."""
    git_schemes: tuple[str, ...] = ("https", "ssh")
    git_hosts: tuple[str, ...] = ()
    """Hosts to clone from; empty for any."""
    git_private: bool = False
    """Whether to clone from loopback and private addresses."""
    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    system_prompt: str = ""
    """What every agent is told beside what the workspace says."""
    mcp_config: str = ""
    """The server's own `.mcp.json`; empty for none."""
    mcp_project: bool = False
    """Whether the `.mcp.json` of a workspace counts: what it names is started with the credentials of the run."""
    credentials_url: str = ""
    """Where the credentials of a run are fetched; empty for nowhere."""
    credentials_token: str = field(default="", repr=False)
    """Sent there as a bearer token."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Exact values that must never leave the process, longest first."""

    @property
    def history_mode(self) -> History:
        """Who keeps the conversation: the server where threads are stored, the client where they are not, unless set."""
        return self.history or ("server" if self.is_durable else "client")

    @property
    def is_durable(self) -> bool:
        """Whether threads outlive the process."""
        return not self.store.startswith("memory:")

    @property
    def store_label(self) -> str:
        """The store's URL without its password, fit to be shown."""
        password = urlsplit(self.store).password
        return self.store.replace(f":{password}@", ":***@", 1) if password else self.store
