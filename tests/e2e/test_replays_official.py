"""Official clients end with the same messages after a replay as after the runs one by one, however the thread was restated.

The runs have all their snapshots, the replay those that a client needs. The official reducers keep their order of known messages, so what a
snapshot alone tells has to come in its place.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.e2e.page_streams import PROTOCOLS
from tests.e2e.test_official_reducer import BOTH, official
from tests.server.restating_agent import Frames, History, replay_thread


def script(streams: list[Frames]) -> bytes:
    runs: list[dict[str, Any]] = [{"add": [], "events": [event for _, event in stream]} for stream in streams]
    return msgspec.json.encode({"runs": runs})


@pytest.mark.parametrize("history", ["server", "client"])
@pytest.mark.parametrize("version", BOTH)
async def test_a_replay_leads_to_the_same_messages_as_the_runs_one_by_one(
    version: str, history: History, long: bool
) -> None:
    seeds = range(300 if long else 12)
    threads = [await replay_thread(seed, history=history, protocol=PROTOCOLS[version]) for seed in seeds]
    one_by_one = official([script(thread.runs) for thread in threads])
    replayed = official([script([thread.replay]) for thread in threads])
    resumed = official([script(thread.parts) for thread in threads])
    for seed in seeds:
        wanted = one_by_one[seed][version][-1]
        assert replayed[seed][version][-1] == wanted, f"replay {seed}"
        assert resumed[seed][version][-1] == wanted, f"resumed {seed}"
