"""Two servers on one store: an agent that waits in one of them is answered there, and nowhere else."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from ambient_runner.bridges.toolkit import held_elsewhere
from ambient_runner.errors import HeldElsewhere
from ambient_runner.ledger.process_identity import this_process
from tests.bridges.acp.words import custom_values, spoken
from tests.bridges.acp.world import serve
from tests.bridges.claude.world import no, yes

OTHER_PROCESS = dataclasses.replace(this_process(), pid=os.getppid())


async def test_an_answer_to_an_agent_of_another_server_process_is_refused_there_and_accepted_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "threads.db"
    async with serve(tmp_path, store=store) as world, serve(tmp_path, store=store) as other:
        thread = world.thread()
        await thread.say("ask echo one")
        pid, interrupt = world.adapter().pid, thread.interrupts[0]
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(held_elsewhere, "this_process", lambda: OTHER_PROCESS)
            with pytest.raises(HeldElsewhere):
                await other.thread().resume(yes(interrupt, {"approved": True}))
        assert list(other.hosted._adapters) == []
        answered = await thread.resume(yes(interrupt, {"approved": True}))
        assert world.adapter().pid == pid
        assert len(world.received("initialize")) == 1  # No second agent was started.
    assert spoken(answered) == "executed echo one"


async def test_an_interrupt_that_another_server_process_holds_can_be_cancelled_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "threads.db"
    async with serve(tmp_path, store=store) as world, serve(tmp_path, store=store) as other:
        thread = world.thread()
        await thread.say("ask touch a.txt")
        monkeypatch.setattr(held_elsewhere, "this_process", lambda: OTHER_PROCESS)
        words = await other.thread().resume(no(thread.interrupts[0]))
        assert "The user declined what you asked for." in str(world.received("session/prompt")[-1])
    assert words[-1] == "RF success"
    assert not (tmp_path / "work" / "t" / "a.txt").exists()


async def test_an_interrupt_of_a_server_process_that_died_is_not_held_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "threads.db"
    dead = dataclasses.replace(this_process(), started="0")
    async with serve(tmp_path, store=store) as world:
        thread = world.thread()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(held_elsewhere, "this_process", lambda: dead)
            await thread.say("ask echo one")
        async with serve(tmp_path, store=store) as other:
            again = await other.thread().resume(yes(thread.interrupts[0], {"approved": True}))
    assert again[0].startswith("CUSTOM ambient:interrupt_lapsed")
    assert custom_values(again, "acp:session")[0]["started"] == "resumed"
    assert again[-1] == "RF success"


@pytest.mark.parametrize("options", [{}, {"without": "load,resume"}])
async def test_a_process_that_has_missed_a_turn_of_another_server_process_is_not_continued(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """The session has the same id in both. The first process knew nothing of what was said at the other, and nobody noticed."""
    store = tmp_path / "threads.db"
    async with (
        serve(tmp_path, options, store=store) as world,
        serve(tmp_path, options, store=store) as other,
    ):
        here, there = world.thread(), other.thread()
        await here.say("say one")
        there.count = here.count
        await there.say("say two")
        here.count = there.count
        words = await here.say("say three")
        await here.say("say four")
    assert custom_values(words, "acp:session")[0]["started"] == ("replayed" if options else "resumed")
    assert spoken(words) == "three"
