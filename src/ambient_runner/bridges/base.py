"""The bridge contract: how a framework plugs in. Two methods are required; everything else is optional.

A bridge creates one adapter per thread and configuration; the adapter handles one run after another. What a bridge needs from the platform
arrives as data: `PlatformContext` when the adapter is created, `current_run()` while it runs. Nothing here imports a framework.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from ambient_runner.errors import ConfigError
from ambient_runner.projections.private_entries import MEMORY_EVENT
from ambient_runner.protocol.reserved_events import PlatformEvent
from ambient_runner.runs.lowering import HTTPS_ONLY, PropRule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

    from ag_ui.core import RunAgentInput

    from ambient_runner.config import Exposure, PermissionRule
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Tool
    from ambient_runner.runs.run import Middleware, Run


@dataclass
class PlatformContext:
    """Platform concepts provided to every framework bridge."""

    workspace_path: str = ""
    cwd_path: str = ""
    add_dirs: list[str] = field(default_factory=list[str])
    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    system_prompt_append: str = ""
    mcp_servers: dict[str, Any] = field(default_factory=dict[str, Any])
    custom_tools: list[Any] = field(default_factory=list[Any])
    session_id: str = ""
    is_continuation: bool = False
    operator_prompt: str = ""
    """The part of `system_prompt_append` that is the operator's: for an agent that does not work in the workspace."""
    audience: str = "open"
    """What the agent's clients see: `open`, or `safe`, the part of it that is for anyone."""
    serves_others: bool = False
    """True if others than this machine can connect: an agent must not use the login of the user that runs the server."""
    permissions: Sequence[PermissionRule] = ()
    """Rules that answer an agent's permission requests."""
    hidden_paths: list[str] = field(default_factory=list[str])
    """Files and directories of the server that no agent may see: the store, and the workspaces of other threads."""


@dataclass
class FrameworkCapabilities:
    """Features of a framework, declared by its bridge. Routes and front ends depend on them."""

    file_system: bool = False
    mcp: bool = False
    session_persistence: bool = False
    streaming: bool = True
    thinking: bool = False
    tool_use: bool = True


class Adapter(Protocol):
    """An AG-UI agent for one thread, returned by `create_adapter`. Events are `ambient_runner.protocol.events` or `ag_ui.core`.

    Optional methods: `async def interrupt(self) -> None` (stop the current run), `async def aclose(self) -> None` (release resources) and
    `def waits_for(self, input: RunAgentInput) -> bool` (see `AwaitsAnswer`), the property `is_waiting` (see `HoldsInterrupts`).
    """

    def run(self, input: RunAgentInput) -> AsyncIterator[Any] | Iterator[Any]:  # noqa: A002  the adapter contract's name
        """Yield the events of one run. An async generator must not block; a plain generator is stepped in a thread.

        A coroutine function that returns either of them, or a list of events, is accepted too.
        """
        ...


@runtime_checkable
class Interruptible(Protocol):
    """An adapter that can stop its current run."""

    async def interrupt(self) -> None: ...


@runtime_checkable
class Closeable(Protocol):
    """An adapter or bridge that holds resources."""

    async def aclose(self) -> None: ...


@runtime_checkable
class AwaitsAnswer(Protocol):
    """An adapter that keeps a turn open until its interrupt is answered. The run that answers gets this adapter even if the configuration
    has changed meanwhile."""

    def waits_for(self, input: RunAgentInput) -> bool: ...  # noqa: A002  the adapter contract's name


@runtime_checkable
class HoldsInterrupts(Protocol):
    """An adapter without which its open interrupts are lost. It is not evicted while it waits. If they are cancelled between two runs, its
    `interrupt` is called."""

    @property
    def is_waiting(self) -> bool:
        """True while an interrupt is open that only this adapter can continue from. Must become False when the interrupt expires."""
        ...


@runtime_checkable
class ChecksRuns(Protocol):
    """A bridge that refuses some runs before they start. It must not block."""

    def check_run(self, run: Run) -> None:
        """Return if the run may start. Raises: Refused."""
        ...


@runtime_checkable
class ErasesThreads(Protocol):
    """A bridge whose framework stores threads itself. Called when a thread is erased, so that the framework's copy is erased too."""

    async def erase_thread(self, thread: ThreadKey) -> None: ...


@runtime_checkable
class ListsTools(Protocol):
    """A bridge that can list the tools its agent has, for `GET /tools`. It must not run the agent or call a model."""

    async def list_tools(self, ctx: PlatformContext) -> Sequence[Tool]:
        """Return the declarations of the agent's own tools, from its own schemas; nothing if they cannot be known without a run.

        `current_run()` is not executed: it has the actor, headers and secrets of the request, and an empty thread id if that names none.
        Raises: RunnerError.
        """
        ...


@runtime_checkable
class DescribesIsolation(Protocol):
    """A bridge whose agents are processes with limits, for `GET /capabilities`."""

    def describe_isolation(self) -> Mapping[str, Any]:
        """Return who enforces the limits of the agent's files and network, and what they are. Must not block."""
        ...


@runtime_checkable
class SuggestsMessages(Protocol):
    """A bridge that suggests what the user could say next, to pages of CopilotKit. It must not run the agent."""

    async def suggest(self, messages: Sequence[Any], state: Any) -> Sequence[Any]:
        """Return suggestions for a conversation: texts, or mappings with `title` and `message`. `messages` are those of `ag_ui.core`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformRequest:
    """A request to a platform route of this server, such as `POST /repos/add`, for the server that runs the agent.

    `body` is a JSON object without the thread id; None for a GET. `headers` are those of the client that the route uses.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformResponse:
    """The response to a PlatformRequest: an HTTP status and a JSON value."""

    status: int
    body: Any


@runtime_checkable
class ForwardsPlatformRequests(Protocol):
    """A bridge whose agent runs on another server. That server has the workspaces, MCP servers and traces of the agent's threads."""

    async def forward_platform_request(self, run: Run, request: PlatformRequest) -> PlatformResponse | None:
        """Return the other server's response; None if it has no such route.

        `run` is not executed: it has the thread, actor, headers and secrets of the request. Raises: RunnerError.
        """
        ...


class PlatformBridge(ABC):
    """Base class of all bridges. Implement the two methods and pass an instance to `add_ambient_endpoints`."""

    @abstractmethod
    def create_adapter(self, ctx: PlatformContext) -> Any:
        """Build the AG-UI adapter with platform config applied."""

    @abstractmethod
    def capabilities(self) -> FrameworkCapabilities:
        """Declare what this framework supports."""

    settings_types: ClassVar[Mapping[str, type[Any]]] = {}
    """Constructor parameters that are dataclasses: in a table `[agents.NAME]` of `ambient.toml`, their fields are options of the bridge.

    A name that is not a parameter stands for `**settings`.
    """

    default_prompt: str = ""
    """User message for a request that has none. If empty, such a request is refused with 422."""

    hidden_state: Collection[str] = ()
    """Names of state keys that are never sent to clients and never accepted from them."""

    exposure: Mapping[str, Exposure] = {}
    """Exposure to the audience `safe`, by the name of a tool, an activity or a CUSTOM event: `summary`, `arguments`, `result` or `all`."""

    restates_messages: bool = True
    """True if a MESSAGES_SNAPSHOT of an adapter restates the messages of the thread. False ignores it: the adapter's snapshots are
    partial, or it sends none."""

    forwarded_props: Mapping[str, PropRule] | Sequence[str] = ()
    """Keys of a client's `forwardedProps` that this bridge reads: names, or rules by name; `"all"` for everything.

    Others reach the agent if the setting `forwarded_props` lists them.
    """

    media_url_schemes: Collection[str] = HTTPS_ONLY
    """Schemes of the media URLs in a client's messages that are accepted. Add `http` only if the bridge itself checks what it fetches."""

    corrects_history: bool = False
    """True if the adapter corrects the thread's history itself (`projections.private_entries.correct_history`), also what a user wrote: the
    framework masks it. For the bridges of this project."""

    relays_developer_messages: bool = False
    """True if the agent runs on another server like this one, whose set-up sends developer messages. No model reads them. All other text of
    an agent is the assistant's."""

    def middleware(self) -> Sequence[Middleware]:
        """Return the middleware for this bridge's runs, outermost first. It runs inside the server's middleware, which sees its events."""
        return ()

    def mcp_tool_name(self, server: str, tool: str) -> str:
        """Return the name under which the agent calls a tool of one of the platform's MCP servers."""
        return tool


def remember(value: Any) -> PlatformEvent:
    """Return an event that stores `value` with the thread. The adapter yields it; it is never sent to a client.

    `value` is any JSON value. The next run reads it as `current_run().memory`; the last value yielded wins. It is stored with the run's
    events, redacted like them, dropped by a rewind to before the run that wrote it, and erased with the thread. Yield it only if there
    is a `current_run()`: without a server the event would reach the client.
    """
    return PlatformEvent(name=MEMORY_EVENT, value=value)


_AGENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_agent_name(name: str) -> str:
    """Return the name if it is a valid agent name, which is part of a URL. Raises: ConfigError."""
    if not _AGENT_NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a valid agent name. Use 1 to 64 letters, digits, _ or -.")
    return name
