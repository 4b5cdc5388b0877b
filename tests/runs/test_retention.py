from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import anyio

from ambient_runner.runs.maintenance import apply_retention
from ambient_runner.runs.run import Run
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, runner_of, said, user


async def talk(run: Run) -> AsyncGenerator[Any, None]:
    for event in said("m-" + run.key, *"abcdefgh"):
        yield event


async def test_old_entries_go_at_the_edge_of_a_run_and_nothing_of_the_conversation_is_lost() -> None:
    async with runner_of(ScriptedAgent(talk)) as runner:
        for turn in range(4):
            await run_once(runner, user(f"u{turn}"))
        before = (await runner.view_thread(KEY)).transcript.messages()
        dropped = await apply_retention(runner.ledger, KEY, 5)
        runner.views.evict_thread(KEY)
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        first = await runner.ledger.find_run_at(KEY, info.last)
        after = (await runner.view_thread(KEY)).transcript.messages()
    assert dropped
    assert first is not None
    assert info.first == first.first
    assert after == before


async def test_a_short_thread_is_left_alone() -> None:
    async with runner_of(ScriptedAgent(talk)) as runner:
        await run_once(runner, user("u1"))
        assert not await apply_retention(runner.ledger, KEY, 20)


async def test_the_runner_retains_what_its_settings_say() -> None:
    async with runner_of(ScriptedAgent(talk), dataclasses.replace(SETTINGS, retain=5)) as runner:
        for turn in range(4):
            await run_once(runner, user(f"u{turn}"))
        with unless_hung():
            while (info := await runner.ledger.get_thread(KEY)) is not None and info.first == 1:
                await anyio.lowlevel.checkpoint()
        await run_once(runner, user("u9"))
        view = await runner.view_thread(KEY)
    assert [message.id[:1] for message in view.transcript.messages()] == ["u", "m"] * 5
