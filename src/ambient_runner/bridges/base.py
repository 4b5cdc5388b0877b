"""The bridge contract: how a framework plugs in. Two methods, as the ADR says; everything else is optional.

A bridge makes an adapter once per thread and configuration; the adapter runs turn after turn. What a bridge needs from the platform arrives
as data: `PlatformContext` when the adapter is made, `current_run()` while it runs. Nothing here imports a framework.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ambient_runner.errors import ConfigError
from ambient_runner.projections.private_entries import MEMORY
from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ag_ui.core import RunAgentInput

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.runs.run import Middleware


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


@dataclass
class FrameworkCapabilities:
    """What this framework can do, declared by the bridge."""

    file_system: bool = False
    mcp: bool = False
    session_persistence: bool = False
    streaming: bool = True
    thinking: bool = False
    tool_use: bool = True


class Adapter(Protocol):
    """What `create_adapter` gives: an AG-UI agent. Events may be ours (`ambient_runner.protocol.events`) or `ag_ui.core` models.

    It may also have `async def interrupt(self) -> None` (stop the running turn), `async def aclose(self) -> None` (give up what it
    holds) and `def waits_for(self, input: RunAgentInput) -> bool` (see `Patient`).
    """

    def run(self, input: RunAgentInput) -> AsyncIterator[Any]: ...  # noqa: A002  the ADR's name


@runtime_checkable
class Interruptible(Protocol):
    async def interrupt(self) -> None: ...


@runtime_checkable
class Closeable(Protocol):
    async def aclose(self) -> None: ...


@runtime_checkable
class Patient(Protocol):
    """An adapter that holds a turn open until someone answers: it is kept for the run that does, whatever has changed meanwhile."""

    def waits_for(self, input: RunAgentInput) -> bool: ...  # noqa: A002  the ADR's name


@runtime_checkable
class Forgetful(Protocol):
    """A bridge whose framework stores threads too: what it has of an erased one must go."""

    async def forget(self, thread: ThreadKey) -> None: ...


class PlatformBridge(ABC):
    """One framework. Implement the two methods and pass an instance to `add_ambient_endpoints`."""

    @abstractmethod
    def create_adapter(self, ctx: PlatformContext) -> Any:
        """Build the AG-UI adapter with platform config applied."""

    @abstractmethod
    def capabilities(self) -> FrameworkCapabilities:
        """Declare what this framework supports."""

    default_prompt: str = ""
    """When set, a request with nothing to answer gets this as its user message; without it, such a request is refused with 422."""

    def middleware(self) -> Sequence[Middleware]:
        """Handlers that wrap this bridge's runs, the outermost first. They run inside the server's own, so those see their events."""
        return ()


def remember(value: Any) -> Custom:
    """An event that keeps `value` with the thread: an adapter yields it, no client ever gets it.

    `value` is anything JSON can hold. The next run finds it in `current_run().memory`; the last one yielded wins. It is stored with the
    run's events, redacted like them, forgotten by a rewind behind the run that wrote it, and erased with the thread. Without a server
    nobody takes it away again: yield it only where there is a `current_run()`.
    """
    return Custom(name=MEMORY, value=value)


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def agent_name(name: str) -> str:
    """The name, fit for a URL. Raises: ConfigError when it is not."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name for an agent. Use 1 to 64 letters, digits, _ or -.")
    return name
