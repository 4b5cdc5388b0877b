"""A second opinion: PyPI `ag-ui-validate` reads every demo command. A lint, not the gate: it knows an older protocol.

Every rule is on, and warnings count as errors: none of its known false alarms is set off by the demo agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ag_ui_validate.pytest_plugin import assert_valid_agui, assert_valid_agui_endpoint

from tests.machine_speed import unless_hung

from .talk import events_of, history, new_id, run, run_input

if TYPE_CHECKING:
    from .server import Child

COMMANDS = (
    "hello",
    "count 50",
    "think",
    "weather Lisbon",
    "approve the deploy",
    "state",
    "say one two three",
    "split abcdefghi",
    "two",
    "steps",
    "subagent",
    "crash",
)


@pytest.mark.parametrize("command", COMMANDS)
async def test_the_linter_accepts_every_command(server: Child, command: str) -> None:
    with unless_hung():
        await assert_valid_agui_endpoint(
            f"{server.url}/",
            input=run_input(new_id("thread"), command),
            max_warnings=0,
        )


async def test_the_linter_accepts_a_frontend_tool_and_its_answer(server: Child) -> None:
    thread = new_id("thread")
    tool = {"name": "change_background", "description": "Change it.", "parameters": {"type": "object"}}
    with unless_hung():
        asked = events_of(await run(server.url, run_input(thread, "color red", tools=[tool])))
        call = next(event["toolCallId"] for event in asked if event["type"] == "TOOL_CALL_START")
        answer = {"id": new_id("tool"), "role": "tool", "toolCallId": call, "content": "done"}
        body = run_input(thread, tools=[tool], messages=[answer])
        answered = events_of(await run(server.url, body))
    for events in (asked, answered):
        assert_valid_agui(list(events), max_warnings=0)


async def test_the_linter_accepts_a_resumed_interrupt(server: Child) -> None:
    thread = new_id("thread")
    with unless_hung():
        asked = events_of(await run(server.url, run_input(thread, "approve the deploy")))
        (interrupt,) = asked[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        answered = events_of(await run(server.url, run_input(thread, resume=[entry])))
    for events in (asked, answered):
        assert_valid_agui(list(events), max_warnings=0)


async def test_the_linter_accepts_a_thread_read_from_the_middle_of_a_message(server: Child) -> None:
    thread = new_id("thread")
    with unless_hung():
        frames = await run(server.url, run_input(thread, "count 10"))
        for frame in frames[:-1]:
            rest = events_of(await history(server.url, thread, after=frame.id))
            assert_valid_agui(list(rest), max_warnings=0)
