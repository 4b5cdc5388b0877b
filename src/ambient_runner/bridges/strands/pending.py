"""What an interrupted turn leaves behind, kept with the thread so that any process can go on with it.

The SDK's interrupt state is a dictionary: the questions, the model's message that made the calls, and the results that were already there.
With a session manager it lives in the session; without one we remember it ourselves.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pydantic_core
from strands.types._snapshot import Snapshot  # pyright: ignore[reportPrivateUsage]  the type of `take_snapshot`, exported nowhere
from strands.types.session import decode_bytes_values, encode_bytes_values

from ambient_runner.bridges.strands.messages import result_block
from ambient_runner.bridges.strands.wiring import APPROVAL, FRONTEND
from ambient_runner.protocol.events import Interrupt
from ambient_runner.protocol.turns import no_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strands import Agent

    from ambient_runner.bridges.strands.translate import Question
    from ambient_runner.protocol.events import ResumeEntry
    from ambient_runner.protocol.turns import Result

__all__ = ["NOTHING_PENDING", "Pending", "answer", "open_questions", "questions_of", "responses"]

_AGAIN = "#"
_APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}


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


def open_questions(interrupts: Mapping[str, Any]) -> list[str]:
    """Those of the SDK's stored interrupts that a person has to answer: all but what waits for a tool of the client."""
    return [name for name, one in interrupts.items() if one["name"] != FRONTEND and one["response"] is None]


def questions_of(questions: Iterable[Question], seconds: float | None) -> list[Interrupt]:
    """The questions as AG-UI asks them. The SDK may use an id again in a later run, and ours is unique in its thread."""
    expires = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat() if seconds is not None else None
    return [_interrupt(question, expires) for question in questions if question.interrupt.name != FRONTEND]


def _interrupt(question: Question, expires: str | None) -> Interrupt:
    asked = question.interrupt
    is_approval = asked.name == APPROVAL
    use = asked.reason["call"] if is_approval else question.tool_use
    known = {"tool_name": use["name"], "tool_input": use["input"]} if use else {}
    return Interrupt(
        id=f"{asked.id}{_AGAIN}{uuid4().hex[:12]}",
        reason="tool_call" if is_approval else asked.name,
        message=f"Approve the call to {use['name']}?" if is_approval and use else _words(asked.reason),
        tool_call_id=use["toolUseId"] if use else None,
        response_schema=_APPROVAL_SCHEMA if is_approval else None,
        expires_at=expires,
        metadata=(known if is_approval else {**known, "reason": _plain(asked.reason)}) or None,
        subagent_run_id=question.lane,
    )


def _plain(reason: Any) -> Any:
    """The reason in JSON. A thing JSON has no form for is named by its type alone: its text may hold anything."""
    return pydantic_core.to_jsonable_python(
        reason, bytes_mode="base64", inf_nan_mode="null", fallback=lambda thing: f"<{type(thing).__name__}>"
    )


def _words(reason: Any) -> str | None:
    return reason if isinstance(reason, str) else None


def responses(asked: Iterable[str], resume: Iterable[ResumeEntry]) -> list[Any]:
    """The answers as the SDK takes them: what the person sent, or `{"cancelled": True}`; also for a question that has expired."""
    given = {entry.interrupt_id.rpartition(_AGAIN)[0]: entry for entry in resume}
    return [answer(name, _response(given.get(name))) for name in asked]


def answer(name: str, response: Any) -> dict[str, Any]:
    """What the SDK goes on with at one of its interrupts."""
    return {"interruptResponse": {"interruptId": name, "response": response}}


def _response(entry: ResumeEntry | None) -> Any:
    if entry is None or entry.status == "cancelled":
        return {"cancelled": True}
    return {} if entry.payload is None else entry.payload  # For the SDK, None is no answer at all.
