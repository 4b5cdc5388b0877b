"""Events that an agent should not have sent: each is dropped or repaired, or ends its run cleanly; other clients notice nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from tests.e2e.talk import ending, events_of, history, new_id, numbers, run, run_input, split_runs, text_of
from tests.machine_speed import unless_hung

from .agents import POISON
from .harness import AGENTS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.server import Child

from tests.e2e.server import serving

DISORDER = (
    "nothing",
    "no start",
    "end without start",
    "content without start",
    "start without end",
    "two starts",
    "finished twice",
    "error and finished",
    "events after the end",
    "raises after the end",
)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """A server with the agents that misbehave, beside the demo agent."""
    store = tmp_path_factory.mktemp("agents") / "ambient.db"
    names = ("demo", f"poison={AGENTS}:poison", f"disorder={AGENTS}:disorder")
    with serving(store, *names, env={"PYTHONPATH": str(ROOT)}) as child:
        yield child


@pytest.mark.parametrize("name", POISON)
async def test_f22_a_poison_event_harms_neither_its_run_nor_others(agents: Child, name: str) -> None:
    """The event is dropped and the run continues, or the run ends with an error; the thread and a neighbour go on."""
    thread, neighbour = new_id("thread"), list[str]()

    async def count() -> None:
        frames = await run(agents.url, run_input(new_id("thread"), "count 200 every 1ms"))
        neighbour.append(text_of(events_of(frames)))

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            posted = await run(f"{agents.url}/agents/poison", run_input(thread, f"poison {name}"))
        stored = await history(agents.url, thread)
        again = await run(f"{agents.url}/agents/poison", run_input(thread, "count"))
    assert [frame.raw for frame in posted] == [frame.raw for frame in stored]
    (events,) = split_runs(events_of(stored))
    deltas = [event["delta"] for event in events if event.get("messageId") in {"before", "after"} and "delta" in event]
    assert "".join(deltas) == numbers(40 if ending(events) == "success" else 20)
    assert (neighbour, ending(events_of(again))) == ([numbers(200)], "success")


@pytest.mark.parametrize("name", DISORDER)
async def test_f25_events_in_a_wrong_order_are_repaired_to_a_valid_stream(agents: Child, name: str) -> None:
    """`split_runs` accepts one terminal event per run and closed envelopes only."""
    thread = new_id("thread")
    with unless_hung():
        posted = await run(f"{agents.url}/agents/disorder", run_input(thread, name))
        stored = await history(agents.url, thread)
        again = events_of(await run(f"{agents.url}/agents/disorder", run_input(thread, "count 3")))
    (events,) = split_runs(events_of(posted))
    assert [frame.raw for frame in posted] == [frame.raw for frame in stored]
    assert ending(events) in {"success", "mine", "protocol_violation", "internal_error", "agent_error"}
    assert (ending(again), text_of(again)) == ("success", numbers(3))
