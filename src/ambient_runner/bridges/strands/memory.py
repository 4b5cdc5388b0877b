"""Memory of an interrupted turn, stored with the thread so that any process can resume it.

The SDK's interrupt state is a dictionary: the interrupts, the assistant message with the calls, and the results that exist already. With a
session manager it is stored in the session; without one the run stores it in the thread. `interrupts.py` converts the interrupts.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from strands.types.session import decode_bytes_values, encode_bytes_values

from ambient_runner.bridges.strands.client_tools import CLIENT_TOOL_INTERRUPT
from ambient_runner.bridges.strands.interrupts import changed_interrupts, open_interrupts
from ambient_runner.bridges.strands.messages import result_block
from ambient_runner.bridges.strands.sdk import Snapshot
from ambient_runner.bridges.toolkit.turns import missing_result
from ambient_runner.errors import ArgumentsWithheld
from ambient_runner.projections.json_values import canonical_json
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.runs.approvals import is_known_digest
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from strands import Agent

    from ambient_runner.bridges.strands.run_input import RunContext
    from ambient_runner.bridges.toolkit.turns import TurnToolResult
    from ambient_runner.protocol.events import ResumeEntry
    from ambient_runner.runs.run import Run

__all__ = ["NO_INTERRUPTS", "InterruptMemory", "choose_memory"]


def choose_memory(context: RunContext, name: str) -> Any:
    """Return the stored data of the interrupted turn, or the adapter's own copy if it has one and secrets were redacted from the former."""
    stored, own = context.memory.get(name), context.own_memory.get(name)
    if own is None or REDACTED not in canonical_json(stored):
        return stored
    return own if _is_copy(own, stored, context.new_input.resume) else stored


def _is_copy(own: Any, stored: Any, resume: Iterable[ResumeEntry]) -> bool:
    """Return True if both have the same open interrupts, and the calls of the first are those that the answers are for."""
    run, interrupts = current_run_or_none(), open_interrupts(_interrupts_in(own))
    if run is None or interrupts != open_interrupts(_interrupts_in(stored)):
        return False
    has_digests = all(is_known_digest(asked) for asked in run.answered_interrupts.values())
    try:
        return has_digests and not changed_interrupts(run, own, interrupts, resume)
    except ArgumentsWithheld:
        return False


def _interrupts_in(memory: Any) -> dict[str, Any]:
    """Return the interrupts in the stored data of an agent, or of a graph or swarm."""
    return (
        memory["interrupts"] if "interrupts" in memory else memory["_internal_state"]["interrupt_state"]["interrupts"]
    )


class InterruptMemory:
    """The interrupted turn of an agent, as the SDK's interrupt state."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    @classmethod
    def from_agent(cls, agent: Agent) -> InterruptMemory:
        return cls(agent.take_snapshot(include=["interrupt_state"]).data["interrupt_state"])

    @classmethod
    def from_stored(cls, value: Any) -> InterruptMemory | None:
        """Return the state that `to_stored` serialized; None when the value is not a valid one."""
        return cls(decode_bytes_values(value)) if isinstance(value, dict) and "interrupts" in value else None

    def to_stored(self) -> Any:
        return encode_bytes_values(self._state)

    @property
    def is_active(self) -> bool:
        return bool(self._state["activated"])

    @property
    def assistant_message(self) -> dict[str, Any] | None:
        """The model's message whose calls do not all have a result."""
        return self._pending_execution["assistant_message"] if self._pending_execution else None

    @property
    def call_ids(self) -> list[str]:
        blocks: list[Any] = self.assistant_message["content"] if self.assistant_message else []
        return [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]

    @property
    def completed_results(self) -> list[dict[str, Any]]:
        return self._pending_execution["completed_tool_results"] if self._pending_execution else []

    def open_interrupts(self) -> dict[str, str]:
        """Return the names of the interrupts that a person has to answer, by id."""
        return open_interrupts(self._state["interrupts"])

    def add_client_results(self, results: Mapping[str, TurnToolResult]) -> InterruptMemory:
        """Return a copy with the client's tool results. Calls without a result stay pending."""
        state = copy.deepcopy(self._state)
        pending_calls = {
            native_id: stored["reason"]["call"]
            for native_id, stored in state["interrupts"].items()
            if stored["name"] == CLIENT_TOOL_INTERRUPT
        }
        for native_id, call_id in pending_calls.items():
            if call_id in results:
                del state["interrupts"][native_id]
                completed = state["pending_tool_execution"]["completed_tool_results"]
                completed.append(result_block(results[call_id])["toolResult"])
        return InterruptMemory(state)

    def changed_interrupts(self, run: Run | None, resume: Iterable[ResumeEntry]) -> set[str]:
        """Return the ids of the answered interrupts whose calls have changed. Raises: ArgumentsWithheld."""
        return changed_interrupts(run, self._state, self.open_interrupts(), resume)

    def without(self, native_ids: Collection[str]) -> InterruptMemory:
        """Return a copy without these interrupts: the SDK raises them again, with the current arguments."""
        interrupts = {name: item for name, item in self._state["interrupts"].items() if name not in native_ids}
        return InterruptMemory({**self._state, "interrupts": interrupts})

    def results_message(self, results: Mapping[str, TurnToolResult]) -> dict[str, Any]:
        """Return the user message with a result for every call: the completed ones, then the client's, then placeholders."""
        completed = {result["toolUseId"]: {"toolResult": result} for result in self.completed_results}
        blocks = [
            completed.get(call_id) or result_block(results.get(call_id) or missing_result(call_id))
            for call_id in self.call_ids
        ]
        return {"role": "user", "content": blocks}

    def load_into(self, agent: Agent) -> None:
        agent.load_snapshot(_interrupt_snapshot(self._state))

    @property
    def _pending_execution(self) -> Any:
        return self._state.get("pending_tool_execution")


def _interrupt_snapshot(state: dict[str, Any]) -> Snapshot:
    return Snapshot(scope="agent", schema_version="1.0", data={"interrupt_state": state}, app_data={})


NO_INTERRUPTS = InterruptMemory({"interrupts": {}, "context": {}, "activated": False})
