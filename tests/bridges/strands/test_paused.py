"""Many threads that wait for people hold nothing, and each goes on, when its agent is long gone and after a restart."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from strands import tool

from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.protocol import events as e
from ambient_runner.runs.runner import Runner
from tests.bridges.held import held_by, hosted_of, still_there
from tests.bridges.strands.scripted import ScriptedModel, Turn, call, calls, says
from tests.bridges.strands.world import TOOL, Thread, agent_of, strands, yes
from tests.machine_speed import unless_hung
from tests.world import SETTINGS

COUNT = 200
EVICTED = 6
"""Additional threads, which are answered without a restart, after their adapters have been evicted."""
CONFIG = StrandsAgentConfig(tool_behaviors={"pay": ToolBehavior(interrupt_on_call=True)})
FEW_ADAPTERS = dataclasses.replace(SETTINGS, adapters_kept=8)


@tool
def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def played(messages: list[Any]) -> Turn:
    """Every other thread calls a tool of the client; the others one that needs approval. Once there is a result, the model repeats it."""
    last = messages[-1]["content"]
    results = [block["toolResult"]["content"][0]["text"] for block in last if "toolResult" in block]
    if results:
        return says(f"got {results[0]}")
    if last[0]["text"] == "free":
        return says("free")
    number = int(last[0]["text"])
    name, arguments = ("change_background", "{}") if number % 2 else ("pay", f'{{"amount": {number}}}')
    return calls(call(f"c{number}", name, arguments))


@asynccontextmanager
async def server(store: Path) -> AsyncGenerator[tuple[Runner, ScriptedModel], None]:
    """One that keeps few adapters, and holds nothing for any run when all is done."""
    model = ScriptedModel(script=played)
    async with strands(agent_of(model, pay), CONFIG, store=store, settings=FEW_ADAPTERS) as thread:
        before = asyncio.all_tasks()
        yield thread.runner, model
        assert await still_there(asyncio.all_tasks() - before) == set()
        assert await held_by(thread.runner) == []
        assert model.closed == len(model.saw)


async def pause(runner: Runner, number: int) -> e.Interrupt | None:
    """Let a thread run until it waits; what it asks, if it asks."""
    thread = thread_of(runner, number)
    end = (await thread.say(str(number)))[-1]
    assert end == (f"RF waits for c{number}" if number % 2 else "RF asks tool_call")
    return None if number % 2 else thread.interrupts[0]


async def answer(runner: Runner, number: int, question: e.Interrupt | None) -> None:
    thread = thread_of(runner, number)
    if question is None:
        stream, result = await thread.answer(**{f"c{number}": f"red {number}"}), f"red {number}"
    else:
        stream, result = await thread.resume(yes(question, {"approved": True})), f"paid {number}"
        assert f'CR c{number} "{result}"' in stream
    assert f'TC m1 "got {result}"' in stream
    assert stream[-1] == "RF success"
    assert not (await runner.view_thread(ThreadKey("default", "local", thread.name))).open_interrupts


def thread_of(runner: Runner, number: int) -> Thread:
    return Thread(runner, name=f"t{number}", tools=[TOOL])


async def test_two_hundred_paused_threads_hold_nothing_and_each_is_answered_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    with unless_hung():
        async with server(store) as (first, model):
            before = asyncio.all_tasks()
            questions = {number: await pause(first, number) for number in range(COUNT + EVICTED)}
            assert await still_there(asyncio.all_tasks() - before) == set()
            assert await held_by(first) == []
            assert model.closed == len(model.saw) == COUNT + EVICTED
            kept = {thread.id for thread, _ in hosted_of(first)._adapters}
            assert kept == {f"t{number}" for number in range(COUNT + EVICTED - 8, COUNT + EVICTED)}
            assert (await Thread(first, name="free").say("free"))[-1] == "RF success"
            for number in range(EVICTED):
                await answer(first, number, questions.pop(number))
        async with server(store) as (second, model):
            for number, question in reversed(questions.items()):
                await answer(second, number, question)
            assert len(model.saw) == COUNT
            assert [len(messages) for messages in model.saw] == [3] * COUNT
