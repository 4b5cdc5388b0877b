"""A run as data, and the callables that handle one.

This package knows agents only by the Agent protocol and handlers by RunHandler, so a bridge, a wrapped bridge and a test are
interchangeable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio

from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.redaction import Secrets

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from contextvars import Context

    from ambient_runner.config import OnBusy, OnPendingInterrupt
    from ambient_runner.ledger.records import IdempotencyClaim
    from ambient_runner.projections.open_interrupts import OpenInterrupt
    from ambient_runner.projections.thread_fork import ForkOrigin
    from ambient_runner.protocol.events import Custom, Event, Message, RunAgentInput, Terminal
    from ambient_runner.runs.lowering import PropRules

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """The user of a request. Threads belong to a tenant and an owner; without an authorization mode the owner is `local`."""

    tenant: str = "default"
    owner: str = "local"

    def thread_key(self, id: str) -> ThreadKey:  # noqa: A002  the protocol's name
        """Return the key of this owner's thread with this id."""
        return ThreadKey(self.tenant, self.owner, id)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanRef:
    """A span in W3C trace context: ids of 32 and 16 hex digits, and its sampled flag."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The value of the `traceparent` header for child requests."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueLimits:
    """Limits of the queue for a thread: requests that may wait, and seconds one may wait."""

    depth: int = 8
    seconds: float = 30.0
    max_hold: float | None = None
    """Seconds a run may hold the thread while this request waits for it; then it is stopped. None for no limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRequest:
    """A request for a run, as a route passes it to the Runner."""

    agent: str
    actor: Actor
    input: RunAgentInput
    claim: IdempotencyClaim | None = None
    fork: ForkOrigin | None = None
    """The conversation that the thread, which must be new, begins with; None for an ordinary run."""
    prompt: str = ""
    """User message of the thread's first run if the input has none; it takes precedence over the agent's `default_prompt`."""
    on_busy: OnBusy | None = None
    queue: QueueLimits | None = None
    """Limits for this request if it waits for the thread; None for those of the settings."""
    on_pending_interrupt: OnPendingInterrupt | None = None
    caller: SpanRef | None = None
    """The span of the request; the run is part of its trace. None for a new trace."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The request headers listed in the setting `pass_headers`, under lower-case names."""
    via: tuple[str, ...] = ()
    """The runs of other servers that wait for this one (`loop_detection.py`)."""
    attributes: Mapping[RunAttribute[Any], Any] = field(default_factory=dict["RunAttribute[Any]", Any], repr=False)
    """Attributes that the Run has from its start."""
    size: int = 0
    """Bytes of the request body; 0 if there was none."""
    on_end: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)
    """Awaited when the run this request started is over, whatever its outcome, before its terminal event is written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """The position of a run in the ledger: its entries begin after `after`. `is_joined` is True if it was already running."""

    thread: ThreadKey
    run: str
    epoch: str
    after: int
    is_joined: bool = False
    previous_end: int | None = None
    """The seq of the terminal event of the run before; None if it is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumedRun:
    """The earlier run of the thread that this one resumes, for traces."""

    run: str
    trace_id: str


class RunAttribute(Generic[T]):
    """A typed value that one part of the server leaves on a Run for another, as ContextVar does for a context. It is not stored."""

    def __init__(self, name: str) -> None:
        self.name = name

    def set(self, run: Run, value: T) -> None:
        run.attributes[self] = value

    def get(self, run: Run) -> T | None:
        return run.attributes.get(self)

    def clear(self, run: Run) -> None:
        run.attributes.pop(self, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One accepted run. `input` is for the agent: it contains the whole conversation, not only what the client sent."""

    key: str
    thread: ThreadKey
    agent: str
    actor: Actor
    trace_id: str
    input: RunAgentInput
    size: int = 0
    """Bytes of JSON of the input, about, counted until it is large: work on it belongs in a worker thread then (`large_work.py`)."""
    epoch: str = ""
    """The thread's random tag, which threads of the same id in another store do not have."""
    accepted: tuple[Message, ...] = ()
    """The messages this run adds to the thread."""
    buffered_result_ids: tuple[str, ...] = ()
    """Ids of the client's tool messages that earlier runs stored because other results were missing."""
    pending_call_ids: tuple[str, ...] = ()
    """Client tool calls that still have no result. If there are any, this run only stores its messages: the agent does not run."""
    is_continuation: bool = False
    """True if the thread had runs before this one."""
    is_fork: bool = False
    """True if the thread began as a copy of another: its first messages are not of runs of its own."""
    has_input_state: bool = False
    """True if the request had a state, also an empty one. `input.state` is that of the thread."""
    is_state_sent: bool = False
    """True if clients receive a snapshot of the initial state before the agent's first event."""
    memory: Any = field(default=None, repr=False)
    """The value the adapter last stored in this thread (`bridges.base.remember`); None if there is none."""
    source_memory: Any = field(default=None, repr=False)
    """In the first run of a fork: what the adapter of the copied thread had stored there. Of use for what it says of copied messages."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The request headers listed in the setting `pass_headers`, under lower-case names. They are not stored."""
    via: tuple[str, ...] = ()
    """The runs of other servers that wait for this one (`loop_detection.py`)."""
    environment: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Environment variables for child processes of this run. The platform's set-up fills it before the agent begins; it is not stored."""
    attributes: dict[RunAttribute[Any], Any] = field(default_factory=dict["RunAttribute[Any]", Any], repr=False)
    """The values of RunAttributes: what middleware prepares for code that gets the same Run."""
    secrets: Secrets = field(default_factory=lambda: Secrets(()), repr=False)
    """Secrets redacted from everything this run writes. Code that fetches a credential for the run adds it here first."""
    answered_interrupts: Mapping[str, OpenInterrupt] = field(default_factory=dict[str, "OpenInterrupt"], repr=False)
    """The interrupts that this run answers, by id, as they were raised."""
    digest_key: str = field(default="", repr=False)
    """Key of the digests that this run shows with its interrupts (`approvals.py`). No client receives it."""
    resumes: ResumedRun | None = None
    """The run whose interrupts or tool calls this one answers; None if it answers none."""
    caller: SpanRef | None = None
    """The span of the request that started the run, if it had one."""
    span: SpanRef | None = None
    """Parent span of requests this run sends: its own root span if it is traced, else the caller's."""
    on_terminal: list[Callable[[Terminal], None]] = field(
        default_factory=list["Callable[[Terminal], None]"], repr=False
    )
    """Called with the run's terminal event before it is written. Only the Runner knows it for a run that is stopped or cancelled."""
    stopping: anyio.Event = field(default_factory=anyio.Event)
    """Set when a stop of the run is requested."""

    @property
    def new_ids(self) -> frozenset[str]:
        """The ids of the messages that are new to the agent: those this run adds, and tool results stored since it last ran."""
        return frozenset([*self.buffered_result_ids, *(message.id for message in self.accepted)])


Announce = Callable[[Run], Iterable["Custom"]]
"""Returns the CUSTOM events the server adds right after a run's RUN_STARTED."""
GrantCredentials = Callable[[Run], Awaitable[None]]
"""Adds what a run is granted to `Run.environment` and `Run.secrets`, before the run's first entry is written. Keeps its own errors."""
RunHandler = Callable[[Run], AsyncGenerator["Event", None]]
Middleware = Callable[[RunHandler], RunHandler]


class Agent(Protocol):
    """A named, configured agent: a bridge on this server."""

    name: str
    hidden_state: frozenset[str]
    """State keys that are never sent to clients and never accepted from them."""
    middleware: Sequence[Middleware]
    """The agent's own middleware, applied inside the server's."""
    default_prompt: str
    """The user message of a request that has none; empty to refuse it."""
    restates_messages: bool
    """True if a MESSAGES_SNAPSHOT of the agent restates the thread; False if it is ignored."""
    forwarded_props: PropRules
    """The keys of a client's `forwardedProps` that the agent gets."""
    media_url_schemes: Collection[str]
    """Schemes of the media URLs in new messages that are accepted."""
    corrects_history: bool
    """True if the agent's bridge corrects the history itself."""
    relays_developer_messages: bool
    """True if the agent runs on another server, whose set-up sends developer messages."""

    def open_run(self, run: Run) -> AbstractAsyncContextManager[AsyncGenerator[Any, None]]:
        """Return the agent's events, of any type `protocol.agui_models.EventCoercer` accepts. Leaving ends them."""
        ...

    def check_run(self, run: Run) -> None:
        """Return if the run may start. Raises: Refused."""
        ...

    async def interrupt(self, run: Run) -> bool:
        """Ask the agent to end this run by itself. Return False if it cannot."""
        ...

    async def cancel_interrupts(self, thread: ThreadKey) -> None:
        """End what the agent keeps open for the interrupts of the thread: they were cancelled between runs."""
        ...

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Erase what the agent stores for a thread."""
        ...

    async def evict_idle(self) -> None:
        """Evict adapters that have been idle for too long."""
        ...

    async def aclose(self) -> None: ...


_current_run: ContextVar[Run] = ContextVar("ambient_run")


def current_run() -> Run:
    """Return the run this code is part of. Raises: LookupError outside of one."""
    return _current_run.get()


def current_run_or_none() -> Run | None:
    """Return the run this code is part of; None without a server, where an adapter may work too."""
    return _current_run.get(None)


@contextmanager
def as_current_run(run: Run) -> Generator[None]:
    """Make `run` the current one inside the block, for code that works for a run before its task exists."""
    token = _current_run.set(run)
    try:
        yield
    finally:
        _current_run.reset(token)


def run_of_context(context: Context) -> Run | None:
    """Return the run that code in this context is part of, or None."""
    return context.get(_current_run)


def describe_run(run: Run | None) -> str:
    """Return the run's key and thread for log messages."""
    return f"run {run.key} on thread {run.thread.id}" if run else "a run outside of the server"


def enter_run(run: Run) -> None:
    """Make `run` the current one for this task and those it starts."""
    _current_run.set(run)
