"""The context of a run for an agent that keeps its own conversation: its input, and what of it is new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.turns import collect_tool_calls, find_new_input
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.toolkit.turns import NewInput
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["RunContext"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Everything known about a run before its agent is asked."""

    run_input: RunAgentInput
    new_input: NewInput
    run: Run | None
    """The run of the server; None without one."""

    @classmethod
    def from_agui(cls, agui_input: AguiInput) -> RunContext:
        run_input, run = input_from_agui(agui_input), current_run_or_none()
        return cls(
            run_input=run_input,
            new_input=find_new_input(run_input, new_ids=None if run is None else run.new_ids),
            run=run,
        )

    @property
    def has_new_input(self) -> bool:
        return self.new_input.user is not None or bool(self.new_input.results) or bool(self.new_input.resume)

    @property
    def used_ids(self) -> set[str]:
        """Ids that the conversation already has, of messages and of calls."""
        messages = self.run_input.messages
        return {*(call.id for call in collect_tool_calls(messages)), *(message.id for message in messages)}
