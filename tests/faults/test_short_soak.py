"""The soak in its short form: random faults on three servers, for eighteen seconds in all. `make soak` is the long form."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.machine_speed import unless_hung
from tests.soak.report import is_clean, render_report
from tests.soak.soak import run_soak

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 18.0
CHATS = 4


async def test_f29_a_short_soak_finds_nothing_lost_twice_or_out_of_order(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    with unless_hung():
        world = await run_soak(tmp_path / "ambient.db", seconds=SECONDS, seed=seed, chats=CHATS)
    print(render_report(world, SECONDS / 60))
    assert world.failures == [], f"seed {seed}"
    assert is_clean(world)
    assert world.faults  # How many fit into the time depends on the machine.
