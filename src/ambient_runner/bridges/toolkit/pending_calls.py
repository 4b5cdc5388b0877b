"""Calls of the client's tools that wait in an agent's process: a run ends with them open, and the next one brings their results.

An agent calls them through an MCP server of ours and reports them on another channel, often without a common id. `PendingCalls` finds out
which of the reported calls waits here. The MCP server is in each bridge's `client_tools.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.turns import TurnToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["CallRecord", "PendingCall", "PendingCalls"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """A call as the agent has reported it, with the id and the name of the tool that clients know."""

    client_id: str
    tool: str
    arguments: Any
    """None if the agent does not report them."""


@dataclass(kw_only=True, slots=True, eq=False)
class PendingCall:
    """A call of a client's tool that waits for its result."""

    tool: str
    arguments: dict[str, Any]
    agent_id: str | None = None
    """The call's id for the agent, if the MCP request contains it."""
    result: asyncio.Future[TurnToolResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    client_id: str | None = None
    """The call's id for clients, once `PendingCalls.match_records` has found it."""


class PendingCalls:
    """The calls of client tools that wait in one process. `on_call` is notified of each new one."""

    def __init__(self, on_call: Callable[[PendingCall], None]) -> None:
        self._on_call = on_call
        self._pending: list[PendingCall] = []
        self._results: dict[str, TurnToolResult] = {}
        self._answered: set[str] = set()

    @property
    def open_calls(self) -> list[PendingCall]:
        return [call for call in self._pending if not call.result.done()]

    def add_call(self, tool: str, arguments: dict[str, Any], *, agent_id: str | None = None) -> PendingCall:
        """Return a new call, whose `result` is set once the client has sent it. `withdraw_call` must follow."""
        call = PendingCall(tool=tool, arguments=arguments, agent_id=agent_id)
        self._pending.append(call)
        self._on_call(call)
        return call

    def withdraw_call(self, call: PendingCall) -> None:
        """Forget a call that has its result, or whose agent does not wait any more. A result that arrives later is kept."""
        if call in self._pending:
            self._pending.remove(call)
        call.result.cancel()

    def fail_calls(self, reason: str) -> None:
        """Resolve all open calls with this error: nobody will answer them."""
        for call in self.open_calls:
            result = TurnToolResult(
                call_id=call.client_id or "", name=call.tool, content=reason, is_error=True, is_answered=False
            )
            call.result.set_result(result)

    async def wait_for_result(self, tool: str, arguments: dict[str, Any]) -> TurnToolResult:
        """Return the result once the client has sent it. Cancelling it withdraws the call."""
        call = self.add_call(tool, arguments)
        try:
            return await call.result
        finally:
            self.withdraw_call(call)

    def match_records(self, records: Mapping[str, CallRecord]) -> None:
        """Find the client id of each waiting call, in the order of the records, whose keys are the agent's ids.

        A call is known by the agent's id, else by tool and arguments, else, if it has no such id, by tool alone. An agent makes some calls
        one after another, so the result of one may arrive before the call waits.
        """
        taken = {*self._answered, *(call.client_id for call in self._pending)}
        free = {key: record for key, record in records.items() if record.client_id not in taken}
        for is_match in (_is_same_id, _is_same_call, _is_same_tool):
            for call in self.open_calls:
                if call.client_id is None:
                    key = next((key for key, record in free.items() if is_match(call, key, record)), None)
                    call.client_id = None if key is None else free.pop(key).client_id
        self._resolve_calls()

    def assign_client_id(self, call: PendingCall, client_id: str) -> None:
        """Set the client id of a waiting call, and resolve it if its result is there already."""
        call.client_id = client_id
        self._resolve_calls()

    def deliver_results(self, results: Iterable[TurnToolResult]) -> None:
        """Resolve the calls that wait for these results, now or when they begin to wait."""
        self._results |= {result.call_id: result for result in results}
        self._resolve_calls()

    def _resolve_calls(self) -> None:
        for call in self.open_calls:
            result = self._results.pop(call.client_id or "", None)
            if result is not None:
                self._answered.add(result.call_id)
                call.result.set_result(result)


def _is_same_id(call: PendingCall, key: str, record: CallRecord) -> bool:
    return call.agent_id == key


def _is_same_call(call: PendingCall, key: str, record: CallRecord) -> bool:
    return record.tool == call.tool and record.arguments == call.arguments


def _is_same_tool(call: PendingCall, key: str, record: CallRecord) -> bool:
    return call.agent_id is None and record.tool == call.tool
