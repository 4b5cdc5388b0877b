"""The input of a run as an adapter gets it, read back into our own structs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.runs.large_work import run_in_thread_if_large
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["read_run_input"]


async def read_run_input(agui_input: AguiInput) -> RunAgentInput:
    """Return what `input_from_agui` does; for a large run of the server it works in a thread.

    Raises: ValueError if the input holds a value that JSON or AG-UI 1.0 cannot represent.
    """
    run = current_run_or_none()
    return await run_in_thread_if_large(run.size if run else 0, input_from_agui, agui_input)
