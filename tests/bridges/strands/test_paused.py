"""Many threads that wait for people hold nothing, and each goes on after a restart."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import anyio
from strands import tool

from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.protocol import events as e
from tests.bridges.strands.scripted import ScriptedModel, Turn, call, calls, says
from tests.bridges.strands.world import TOOL, Thread, agent_of, strands, tasks_since, yes
from tests.world import SETTINGS

COUNT = 200
CONFIG = StrandsAgentConfig(tool_behaviors={"pay": ToolBehavior(interrupt_on_call=True)})
FEW_ADAPTERS = dataclasses.replace(SETTINGS, adapters_kept=8)


@tool
def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def played(messages: list[Any]) -> Turn:
    """Every other thread calls a tool of the client; the others one that needs approval. Once there is a result, that is said."""
    last = messages[-1]["content"]
    results = [block["toolResult"]["content"][0]["text"] for block in last if "toolResult" in block]
    if results:
        return says(f"got {results[0]}")
    number = int(last[0]["text"])
    name, arguments = ("change_background", "{}") if number % 2 else ("pay", f'{{"amount": {number}}}')
    return calls(call(f"c{number}", name, arguments))


async def test_two_hundred_paused_threads_block_nobody_and_each_is_answered_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    questions: dict[int, e.Interrupt] = {}
    with anyio.fail_after(60):
        async with strands(agent_of(ScriptedModel(script=played), pay), CONFIG, store=store, tools=[TOOL]) as first:
            before = asyncio.all_tasks()
            for number in range(COUNT):
                thread = Thread(first.runner, name=f"t{number}", tools=[TOOL])
                end = (await thread.say(str(number)))[-1]
                assert end == (f"RF waits for c{number}" if number % 2 else "RF asks tool_call")
                if number % 2 == 0:
                    (questions[number],) = thread.interrupts
            while first.runner._active:  # The last run gives its lease back after its last event.
                await anyio.sleep(0.001)
            assert await tasks_since(before) == set()
        model = ScriptedModel(script=played)
        async with strands(agent_of(model, pay), CONFIG, store=store, tools=[TOOL], settings=FEW_ADAPTERS) as second:
            for number in reversed(range(COUNT)):
                thread = Thread(second.runner, name=f"t{number}", tools=[TOOL])
                if number % 2:
                    stream = await thread.answer(**{f"c{number}": f"red {number}"})
                    assert f'TC m1 "got red {number}"' in stream
                else:
                    stream = await thread.resume(yes(questions[number], {"approved": True}))
                    assert f'TC m1 "got paid {number}"' in stream
                assert stream[-1] == "RF success"
    assert len(model.saw) == COUNT
