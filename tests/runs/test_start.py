"""The first entries of a run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ambient_runner.projections.thread_view import INPUT, RUN_OWNER
from ambient_runner.protocol.events import AssistantMessage, ToolMessage
from tests.scripts import hello
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, runner_of, user

if TYPE_CHECKING:
    from ambient_runner.config import History
    from ambient_runner.protocol.events import Message
    from ambient_runner.runs.runner import Runner


async def stored_inputs(runner: Runner) -> list[list[str]]:
    """The ids of the messages in each run's stored input."""
    batches = [
        batch for batch in await runner.ledger.read_batches(KEY, 0) if (batch.owner, batch.kind) == (RUN_OWNER, INPUT)
    ]
    bodies: list[Any] = [msgspec.json.decode(line) for batch in batches for line in batch.lines]
    return [[message["id"] for message in body["input"].get("messages", [])] for body in bodies]


@pytest.mark.parametrize("history", ["server", "client"])
async def test_the_stored_input_has_the_messages_that_the_thread_did_not_have(history: History) -> None:
    """A client that sends its whole conversation with every run made the store grow with the square of its length."""
    async with runner_of(ScriptedAgent(hello), dataclasses.replace(SETTINGS, history=history)) as runner:
        posted: list[Message] = []
        for turn in range(4):
            posted.append(user(f"u{turn}"))
            await run_once(runner, *posted)
            posted = (await runner.view_thread(KEY)).transcript.messages()
        forged = [AssistantMessage(id="forged", content="x"), ToolMessage(id="t", tool_call_id="c", content="x")]
        await run_once(runner, *posted, *forged, user("last"))
        assert await stored_inputs(runner) == [["u0"], ["u1"], ["u2"], ["u3"], ["forged", "t", "last"]]
