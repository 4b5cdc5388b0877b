"""What an interrupted turn leaves behind, kept with the thread so that any process can go on with it.

The SDK's interrupt state is a dictionary: the questions, the model's message that made the calls, and the results that were already there.
With a session manager it lives in the session; without one we remember it ourselves. `questions.py` asks and answers.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from strands.types._snapshot import Snapshot  # pyright: ignore[reportPrivateUsage]  the type of `take_snapshot`, exported nowhere
from strands.types.session import decode_bytes_values, encode_bytes_values

from ambient_runner.bridges.strands.instrumentation import FRONTEND
from ambient_runner.bridges.strands.interrupts import open_questions
from ambient_runner.bridges.strands.messages import result_block
from ambient_runner.bridges.toolkit.turns import no_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strands import Agent

    from ambient_runner.bridges.toolkit.turns import Result

__all__ = ["NOTHING_PENDING", "Pending"]


class Pending:
    """The interrupt state of an agent as data."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    @classmethod
    def of(cls, agent: Agent) -> Pending:
        return cls(agent.take_snapshot(include=["interrupt_state"]).data["interrupt_state"])

    @classmethod
    def stored(cls, value: Any) -> Pending | None:
        """What `to_store` gave, or None when it is nothing of ours."""
        return cls(decode_bytes_values(value)) if isinstance(value, dict) and "interrupts" in value else None

    def to_store(self) -> Any:
        return encode_bytes_values(self._state)

    @property
    def is_active(self) -> bool:
        return bool(self._state["activated"])

    @property
    def message(self) -> dict[str, Any] | None:
        """The model's message whose calls are not all answered."""
        return self._turn["assistant_message"] if self._turn else None

    @property
    def calls(self) -> list[str]:
        blocks: list[Any] = self.message["content"] if self.message else []
        return [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]

    @property
    def completed(self) -> list[dict[str, Any]]:
        return self._turn["completed_tool_results"] if self._turn else []

    def asked(self) -> list[str]:
        """The questions to people that are open."""
        return open_questions(self._state["interrupts"])

    def answered_with(self, given: Mapping[str, Result]) -> Pending:
        """The same with the client's tool results in their place. A call it has not answered yet goes on waiting."""
        state = copy.deepcopy(self._state)
        waiting = {name: one["reason"]["call"] for name, one in state["interrupts"].items() if one["name"] == FRONTEND}
        for name, call in waiting.items():
            if call in given:
                del state["interrupts"][name]
                done = state["pending_tool_execution"]["completed_tool_results"]
                done.append(result_block(given[call])["toolResult"])
        return Pending(state)

    def results_message(self, given: Mapping[str, Result]) -> dict[str, Any]:
        """The user message that answers every call: what was there, then what the client gave."""
        done = {result["toolUseId"]: {"toolResult": result} for result in self.completed}
        blocks = [done.get(call) or result_block(given.get(call) or no_result(call)) for call in self.calls]
        return {"role": "user", "content": blocks}

    def put_into(self, agent: Agent) -> None:
        agent.load_snapshot(_snapshot({"interrupt_state": self._state}))

    @property
    def _turn(self) -> Any:
        return self._state.get("pending_tool_execution")


def _snapshot(data: dict[str, Any]) -> Snapshot:
    return Snapshot(scope="agent", schema_version="1.0", data=data, app_data={})


NOTHING_PENDING = Pending({"interrupts": {}, "context": {}, "activated": False})
