"""The interface of a provider: a program that is an agent. It is started for a turn, and its output becomes events.

A provider gets a context and a sink. It knows neither middleware nor telemetry nor the ledger. `provider_turns.py` makes a stream of events
of one of its turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ambient_runner.protocol.events import Event

__all__ = ["Handle", "ProviderAdapter", "ProviderContext", "ProviderHandle", "StopReason"]

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
"""Reasons for the end of a turn, as in the Agent Client Protocol."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderContext:
    """Everything that a turn is started with."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    """All variables of the process."""
    cwd: str
    """An existing directory."""
    prompt: str = field(repr=False)
    thread_id: str
    session_id: str = ""
    """The agent's own session that the turn continues; empty for a new one."""


class ProviderHandle(Protocol):
    """A turn that has been started: its process, with what only its provider knows about it."""

    def pause_output(self) -> None:
        """Stop reading the output. The process waits as soon as its pipe is full."""
        ...

    def resume_output(self) -> None: ...

    def cancel(self) -> None:
        """Ask the process to end its turn. `decode_stream` returns `cancelled` when it has."""
        ...

    def kill(self) -> None:
        """Kill the process and everything it has started."""
        ...

    async def aclose(self) -> None:
        """End the process with everything it has started, and release what the turn holds."""
        ...


Handle = TypeVar("Handle", bound=ProviderHandle)


class ProviderAdapter(Protocol[Handle]):
    """A kind of program that can be an agent."""

    async def spawn(self, context: ProviderContext) -> Handle:
        """Start a turn. The caller closes the handle. Raises: BridgeError."""
        ...

    async def decode_stream(self, handle: Handle, sink: Callable[[Event], None]) -> StopReason:
        """Pass the events of the turn to the sink until it ends, and return why it ended. Raises: BridgeError."""
        ...
