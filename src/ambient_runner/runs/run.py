"""One run as data, and the callables that handle one.

`runs` knows agents only by the Agent protocol and handlers by RunHandler, so a bridge, a wrapped bridge and a test are all the same
thing here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from ambient_runner.ledger.base import ThreadKey
from ambient_runner.projections.redaction import Secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ambient_runner.config import OnBusy
    from ambient_runner.ledger.base import KeyClaim
    from ambient_runner.protocol.events import Custom, Event, Message, RunAgentInput, Terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """Who asks. Threads belong to a tenant and an owner; without an authorization mode the owner is `local`."""

    tenant: str = "default"
    owner: str = "local"

    def thread(self, id: str) -> ThreadKey:  # noqa: A002  the protocol's name
        """The thread that is called so among this owner's."""
        return ThreadKey(self.tenant, self.owner, id)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanRef:
    """A span of a trace, as W3C trace context names it: 32 and 16 hex digits, and whether it is recorded."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The header that makes a request part of it."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRequest:
    """A request for a run, as a door hands it to the Runner."""

    agent: str
    actor: Actor
    input: RunAgentInput
    claim: KeyClaim | None = None
    prompt: str = ""
    """What the thread's first run answers when the input has nothing to answer; before the agent's own `default_prompt`."""
    on_busy: OnBusy | None = None
    caller: SpanRef | None = None
    """The span this request belongs to; the run is part of its trace. None for a trace of its own."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Those headers of the request that the setting `pass_headers` names, under lower-case names."""
    via: tuple[str, ...] = ()
    """The runs of servers that wait for this one (`via.py`)."""
    on_end: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)
    """Awaited when the run this request started is over, however it ends, before its last word is written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """Where to read a run: its entries begin after `after`. `joined` when it was already there."""

    thread: ThreadKey
    run: str
    epoch: str
    after: int
    joined: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """An earlier run of the thread, as traces know it."""

    run: str
    trace_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One accepted run. `input` is what the agent gets: the whole conversation, not only what the client sent."""

    key: str
    thread: ThreadKey
    agent: str
    actor: Actor
    trace_id: str
    input: RunAgentInput
    accepted: tuple[Message, ...] = ()
    """The messages this run adds to the thread."""
    is_continuation: bool = False
    """Whether the thread had runs before this one."""
    is_state_told: bool = False
    """Whether clients get a snapshot of the state it begins with before the agent says anything."""
    memory: Any = field(default=None, repr=False)
    """What the adapter last remembered in this thread (`bridges.base.remember`); None when there is nothing."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Those headers of the request that the setting `pass_headers` names, under lower-case names. They are not stored."""
    via: tuple[str, ...] = ()
    """The runs of servers that wait for this one (`via.py`)."""
    environment: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """What was granted to this run for its child processes. The platform's set-up fills it before the agent begins; it is not stored."""
    secrets: Secrets = field(default_factory=lambda: Secrets(()), repr=False)
    """What is taken out of everything this run writes. Whoever fetches a credential for the run lets it `learn` the value first."""
    resumes: Resumed | None = None
    """The run that asked what this one answers; None when it answers nothing."""
    caller: SpanRef | None = None
    """The span of the request that started the run, when it named one."""
    span: SpanRef | None = None
    """What this run asks of others belongs to: its own root span when it is traced, else the caller's."""
    endings: list[Callable[[Terminal], None]] = field(default_factory=list["Callable[[Terminal], None]"], repr=False)
    """Called with the run's last word before it is written. Only the Runner knows it of a run that is stopped, cut or left behind."""
    stopping: anyio.Event = field(default_factory=anyio.Event)
    """Set when the run has been asked to stop."""

    @property
    def new_ids(self) -> frozenset[str]:
        """The ids of the messages this run adds to the thread."""
        return frozenset(message.id for message in self.accepted)


Announce = Callable[[Run], Iterable["Custom"]]
"""What the server has to say of a run, right after its RUN_STARTED."""
RunHandler = Callable[[Run], AsyncGenerator["Event", None]]
Middleware = Callable[[RunHandler], RunHandler]


class Agent(Protocol):
    """A named, configured agent: what a bridge becomes on this server."""

    name: str
    hidden_state: frozenset[str]
    """State keys that are never sent to clients and never taken from them."""
    middleware: Sequence[Middleware]
    """The agent's own, applied inside the server's."""
    default_prompt: str
    """The user message of a request that has nothing to answer; empty to refuse it."""

    def running(self, run: Run) -> AbstractAsyncContextManager[AsyncGenerator[Any, None]]:
        """The agent's own events, of any kind `protocol.agui.Coercer` understands. Leaving ends them."""
        ...

    async def interrupt(self, run: Run) -> bool:
        """Ask the agent to end this run by itself; False when it cannot."""
        ...

    async def forget(self, thread: ThreadKey) -> None:
        """Give up whatever is kept for a thread."""
        ...

    async def evict(self) -> None:
        """Give up what has been idle for too long."""
        ...

    async def aclose(self) -> None: ...


_current: ContextVar[Run] = ContextVar("ambient_run")


def current_run() -> Run:
    """The run this code is part of. Raises: LookupError outside of one."""
    return _current.get()


def run_if_any() -> Run | None:
    """The run this code is part of; None without a server, where an adapter may work too."""
    return _current.get(None)


def enter_run(run: Run) -> None:
    """Make `run` the current one for this task and those it starts."""
    _current.set(run)
