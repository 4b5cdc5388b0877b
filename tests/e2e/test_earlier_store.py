"""A store that an earlier version wrote: it opens, reads the same, and its threads get their checkpoints at their next run.

`recordings/stores/schema-5.db` was written by the version before checkpoints of runs: one thread with long and short runs, a rewind, a tool
call, a state, a failed run and an open interrupt. `schema-5.json` is what that version answered to `GET /message_snapshot`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.ledger import SqliteLedger, ThreadKey
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.runs.view_cache import load_view
from tests.e2e.server import serving
from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, events_of, history, run, run_input

if TYPE_CHECKING:
    from ambient_runner.ledger import Batch

STORES = Path(__file__).parents[1] / "recordings" / "stores"
THREAD = "thread-of-schema-5"
KEY = ThreadKey("default", "local", THREAD)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "ambient.db"
    path.write_bytes(gzip.decompress((STORES / "schema-5.db.gz").read_bytes()))
    return path


async def messages_of(url: str) -> list[Any]:
    async with open_stream(f"{url}/message_snapshot/{THREAD}") as answer:
        return json.loads(await answer.body())["messages"]


async def test_a_thread_of_an_earlier_version_gets_a_checkpoint_at_its_next_run_and_reads_the_same(store: Path) -> None:
    expected = json.loads((STORES / "schema-5.json").read_text())["snapshot"]["messages"]
    with serving(store) as server:
        assert await messages_of(server.url) == expected
        frames = await history(server.url, THREAD)
        (interrupt,) = frames[-1].event["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        assert ending(events_of(await run(server.url, run_input(THREAD, resume=[answer])))) == "success"
        before = await messages_of(server.url)
        assert before[: len(expected)] == expected
    async with SqliteLedger(store) as ledger:
        found = await ledger.get_checkpoint(KEY)
        assert found is not None
        assert found.seq > 2540
        view = await load_view(ledger, KEY)
        assert view.to_checkpoint() == (await fold_all(ledger)).to_checkpoint()
    with serving(store) as server:
        assert await messages_of(server.url) == before
        assert ending(events_of(await run(server.url, run_input(THREAD, "say more")))) == "success"


async def fold_all(ledger: SqliteLedger) -> ThreadView:
    """The thread folded from its entries alone."""
    view, batches = ThreadView(), list["Batch"]()
    while found := await ledger.read_batches(KEY, batches[-1].last if batches else 0):
        batches += found
    for batch in batches:
        view.apply(batch)
    return view
