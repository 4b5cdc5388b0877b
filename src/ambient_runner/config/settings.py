"""The settings as data. `loader.py` reads them."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from ambient_runner.config.credential_patterns import SECRET_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.config.permission_rules import PermissionRule
    from ambient_runner.config.secret_patterns import SecretPattern

OnBusy = Literal["reject", "queue", "supersede", "join"]
OnDisconnect = Literal["continue", "stop"]
OnPendingInterrupt = Literal["cancel", "reject"]
History = Literal["server", "client"]
PropNames = tuple[str, ...] | Literal["all"]
"""Keys of `forwardedProps`, or all of them."""
Suggestions = tuple[str, ...] | str
"""Texts, or a function as `package.module:function`."""
AudienceName = Literal["safe", "open"]
Exposure = Literal["summary", "arguments", "result", "all"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """Time limits of a run, in seconds."""

    idle: float = 600.0
    """Seconds between two events of the agent."""
    total: float = 3600.0
    """Seconds from start to end."""
    grace: float = 5.0
    """Seconds an agent has to end by itself after a stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """A table `[agents.NAME]` of `ambient.toml`."""

    name: str
    bridge: str = ""
    """Name of a registered bridge; empty to use the bridge that fits the object at `use`."""
    use: str = ""
    """The agent: `package.module:attribute`, or the URL of an AG-UI server; empty for the bridge alone."""
    idle_timeout: float | None = None
    """Seconds between two events of the agent; None for the server's setting."""
    total_timeout: float | None = None
    """Seconds from start to end of a run; None for the server's setting."""
    client: str = ""
    """Version of the `@ag-ui/client` of the agent's pages, for those that do not declare it; empty for the server's setting."""
    forwarded_props: PropNames | None = None
    """Keys of `forwardedProps` that reach the agent besides those its bridge reads; None for the server's setting."""
    audience: AudienceName | None = None
    """The audience of the agent's clients; None for the server's setting."""
    exposure: Mapping[str, Exposure] = field(default_factory=dict[str, Exposure])
    """Exposure to the audience `safe`, by the name of a tool, activity or CUSTOM event, in addition to the server's setting."""
    suggestions: Suggestions | None = None
    """Texts that pages suggest to the user, or the function that returns them; None for the agent's own."""
    options: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    """All other keys: settings of the bridge. They are checked when the bridge is created."""
    source: str = "ambient.toml"
    """The file, for error messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtlpSettings:
    """An OpenTelemetry collector, or another receiver of OTLP over HTTP."""

    endpoint: str = "http://localhost:4318/v1/traces"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class LangfuseSettings:
    """A Langfuse project, which receives traces and the scores of feedback."""

    url: str
    public_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    stage: str = ""
    """Environment name in Langfuse: `production`, `staging`…"""

    @property
    def authorization(self) -> str:
        """The value of the `Authorization` header."""
        return f"Basic {base64.b64encode(f'{self.public_key}:{self.secret_key}'.encode()).decode()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TracingSettings:
    """Targets of the traces of runs. Tracing is off if there is none."""

    otlp: OtlpSettings | None = None
    langfuse: LangfuseSettings | None = None
    content: bool | None = None
    """True if spans include texts, arguments and results. None: only those for Langfuse do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All settings. Durations are in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    store: str = field(default="sqlite:///.ambient/ambient.db", repr=False)
    lease: float = 10.0
    store_patience: float = 30.0
    """Time for which runs wait while the store cannot be written."""
    on_busy: OnBusy = "reject"
    queue_depth: int = 8
    queue_wait: float = 30.0
    on_disconnect: OnDisconnect = "continue"
    on_pending_interrupt: OnPendingInterrupt | None = None
    """A new message that answers no open interrupt: cancel the interrupts, or reject it. None: by the version of the client."""
    history: History | None = None
    adopt_history: bool = True
    """True if the first run of an unknown thread adopts the assistant's text that the client sends (history `server`)."""
    audience: AudienceName | None = None
    """The audience of clients, who see all but secrets, or the safe part. None: `safe` if other machines can connect (`audience_for`)."""
    exposure: Mapping[str, Exposure] = field(default_factory=dict[str, Exposure])
    """Exposure to the audience `safe`, by the name of a tool, activity or CUSTOM event; `*` for all others."""
    timeouts: Timeouts = Timeouts()
    adapters_kept: int = 256
    adapter_idle: float = 900.0
    max_body: int = 10 << 20
    retain: int = 0
    """Minimum number of a thread's newest entries to retain; 0 retains all."""
    view_cache: int = 128 << 20
    """Memory for folded threads, which the next run and the next page that opens need."""
    slow_reader: float = 60.0
    heartbeat: float = 15.0
    operators: tuple[str, ...] = ()
    """Owners, or `tenant/owner`, who may read the metrics about secrets."""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    client: str = ""
    """Version of the `@ag-ui/client` that clients use if they do not declare one; empty for 0.0.49 to 0.0.58."""
    pass_headers: tuple[str, ...] = ()
    """Names of request headers, in lower case, that agents may see (`current_run().headers`)."""
    forwarded_props: PropNames | None = None
    """Keys of `forwardedProps` that reach agents besides those their bridges read. None: none, and all in compatibility endpoints."""
    agents: tuple[str | AgentSettings, ...] = ()
    """Agents: specs (`name` or `name=package.module:attribute`) and tables, as `load_agents` takes them."""
    configured_agents: tuple[str | AgentSettings, ...] = field(default=(), repr=False, compare=False)
    """Agents of the file and the environment, also those that the command line or the environment did not choose."""
    middleware: tuple[str, ...] = ()
    """Middleware of every run, outermost first: names of installed middleware, or `package.module:function`."""
    permissions: tuple[PermissionRule, ...] = ()
    """Rules that answer permission requests of agents."""
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    tracing: TracingSettings = TracingSettings()
    default_thread: str = ""
    """Thread of a request to the platform's routes that names none."""
    workspace: str = ".ambient/workspaces"
    """Directory with one workspace per thread that has files."""
    cwd: str = ""
    """Absolute path of a directory that file agents work in instead of the workspace of each thread; empty for the workspace."""
    git_schemes: tuple[str, ...] = ("https", "ssh")
    git_hosts: tuple[str, ...] = ()
    """Hosts that repositories may be cloned from; empty for any."""
    git_private: bool = False
    """True if repositories may be cloned from loopback and private addresses."""
    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    system_prompt: str = ""
    """System prompt for every agent, in addition to the workspace's own."""
    mcp_config: str = ""
    """The server's own `.mcp.json`; empty for none."""
    mcp_project: bool = False
    """True if the `.mcp.json` of a workspace is used. Its servers are started with the credentials of the run."""
    credentials_url: str = ""
    """URL from which the credentials of a run are fetched; empty for none."""
    credentials_token: str = field(default="", repr=False)
    """Bearer token for `credentials_url`."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Exact values that must never leave the process, longest first."""
    secrets_strict: bool = False
    """True if the server does not start while a secret variable has a guessable value."""
    secret_patterns: tuple[SecretPattern, ...] = field(default=SECRET_PATTERNS, repr=False)
    """Shapes of credentials that are redacted although their values are not known."""
    guessable_secrets: tuple[str, ...] = ()
    """Names of variables that are not redacted, because their values are guessable."""
    short_secrets: tuple[str, ...] = ()
    """Names of secret variables that are not redacted, because their values are too short."""
    split_secrets: tuple[str, ...] = ()
    """Names of variables that are redacted as a whole, but not if their words come in several deltas."""

    @property
    def history_mode(self) -> History:
        """The side that keeps the conversation. Default: the server if threads are stored or the audience is `safe`, else the client.

        A client would send the summaries of the audience `safe` back as the conversation.
        """
        is_safe = "safe" in {self.audience, *(table.audience for table in self._tables())}
        return self.history or ("server" if self.is_durable or is_safe else "client")

    def audience_for(self, agent: str, *, serves_others: bool) -> AudienceName:
        """Return the audience of an agent's clients: that of its table, else the server's, else the default.

        By default it is `safe` if other machines can connect, unless clients keep the conversation.
        """
        default: AudienceName = "safe" if serves_others and self.history_mode == "server" else "open"
        return self.configured_audience(agent) or default

    def configured_audience(self, agent: str) -> AudienceName | None:
        """Return the audience that the settings name for an agent; None for the default."""
        table = self._table_of(agent)
        return (table.audience if table else None) or self.audience

    def exposure_of(self, agent: str, of_bridge: Mapping[str, Exposure]) -> dict[str, Exposure]:
        """Return the exposure of an agent's tools: the rules of its table win over those of its bridge, those over the server's."""
        table = self._table_of(agent)
        return {**self.exposure, **of_bridge, **(table.exposure if table else {})}

    def timeouts_for(self, agent: str) -> Timeouts:
        """Return the time limits of an agent's runs: those of its table, else the server's."""
        table = self._table_of(agent)
        if table is None:
            return self.timeouts
        return replace(
            self.timeouts,
            idle=table.idle_timeout or self.timeouts.idle,
            total=table.total_timeout or self.timeouts.total,
        )

    def client_for(self, agent: str) -> str:
        """Return the client version to assume for an agent's clients that declare none: that of its table, else the server's."""
        table = self._table_of(agent)
        return (table.client if table else "") or self.client

    def forwarded_props_for(self, agent: str) -> PropNames | None:
        """Return the keys of `forwardedProps` that reach an agent: those of its table, else the server's; None if neither is set."""
        table = self._table_of(agent)
        return self.forwarded_props if table is None or table.forwarded_props is None else table.forwarded_props

    def suggestions_for(self, agent: str) -> Suggestions | None:
        """Return the suggestions of an agent's table; None if it names none."""
        table = self._table_of(agent)
        return table.suggestions if table else None

    def with_all_props(self) -> Settings:
        """Return the settings of an endpoint whose agents get all of `forwardedProps`, unless a setting says otherwise."""
        return self if self.forwarded_props is not None else replace(self, forwarded_props="all")

    def _table_of(self, agent: str) -> AgentSettings | None:
        return next((table for table in self._tables() if table.name == agent), None)

    def _tables(self) -> list[AgentSettings]:
        return [agent for agent in self.agents if isinstance(agent, AgentSettings)]

    @property
    def is_durable(self) -> bool:
        """True if threads outlive the process."""
        return not self.store.startswith("memory:")

    @property
    def store_label(self) -> str:
        """The store's URL without its password, for display."""
        password = urlsplit(self.store).password
        return self.store.replace(f":{password}@", ":***@", 1) if password else self.store
