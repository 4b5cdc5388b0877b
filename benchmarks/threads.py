"""The list of threads of someone who has ten thousand: a page of it, a search, and the poll that keeps a page fresh."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import anyio

from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey
from benchmarks.client import UnexpectedResponse
from benchmarks.report import Goal, Section, percentile
from benchmarks.scene import Plans
from benchmarks.servers import start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_AT_ONCE = 250
"""Threads that are created together, and so in few commits."""
_PAGE = 1000
WITHIN_MS = {
    "page of 100": 20.0,
    "page from the middle": 20.0,
    "search that finds nothing": 20.0,
    "filter that finds nothing": 20.0,
    "changed_after, nothing changed": 5.0,
    "changed_after, one change": 5.0,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Threads of one person, and requests of each kind."""

    threads: int
    requests: int


PLANS = Plans(
    smallest=Plan(threads=20, requests=2),
    quick=Plan(threads=2_000, requests=100),
    full=Plan(threads=10_000, requests=500),
)


def count_steps(plan: Plan) -> int:
    return len(range(0, plan.threads, _AT_ONCE)) + 1


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Milliseconds of each request, by its kind, with so many threads."""

    threads: int
    times: Mapping[str, Sequence[float]]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Listed:
    """Create the threads, then send the requests of each kind."""
    with (
        start_server("ambient", scratch) as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.port)) as client,
    ):
        assert server.store
        anyio.run(_create_threads, server.store, plan.threads, step)
        newest = _get(client, limit=1)
        middle = _find_middle(client, plan.threads)
        before_newest = _get(client, limit=2)["threads"][1]["cursor"]
        queries: list[dict[str, Any]] = [
            {},
            {"before": middle},
            {"search": "nowhere to be found"},
            {"status": "failed"},
            {"changed_after": newest["cursor"]},
            {"changed_after": before_newest},
        ]
        times = {
            name: [_milliseconds(client, query) for _ in range(plan.requests)]
            for name, query in zip(WITHIN_MS, queries, strict=True)
        }
        step()
        return Listed(threads=plan.threads, times=times)


def build_section(listed: Listed) -> Section:
    """Return the table and the goals for lists of threads."""
    times = listed.times
    rounds = len(next(iter(times.values())))
    return Section(
        title=f"The list of {listed.threads:,} threads",
        how=(
            f"`GET /thread/list` of one person's {listed.threads:,} threads with titles beyond ASCII, {rounds} requests each, sequentially "
            "on one connection, from the request to the last byte of the response."
        ),
        columns=("", "p50 ms", "p99 ms"),
        rows=[[name, *(f"{percentile(times[name], at):.2f}" for at in (50, 99))] for name in WITHIN_MS],
        goals=[_build_goal(name, times[name], limit) for name, limit in WITHIN_MS.items()],
    )


def _build_goal(name: str, times: Sequence[float], limit: float) -> Goal:
    measured = percentile(times, 99)
    return Goal(
        what=f"list of threads, {name}, p99",
        wanted=f"within {limit:g} ms",
        measured=f"{measured:.2f} ms",
        met=measured <= limit,
    )


async def _create_threads(path: Path, threads: int, step: Callable[[], None]) -> None:
    """Write the threads into the file of the running server, as another process of it would."""
    async with SqliteLedger(path) as ledger:
        for start in range(0, threads, _AT_ONCE):
            async with anyio.create_task_group() as tasks:
                for number in range(start, min(start + _AT_ONCE, threads)):
                    tasks.start_soon(_create_thread, ledger, number)
            step()


async def _create_thread(ledger: SqliteLedger, number: int) -> None:
    key = ThreadKey("default", "local", f"thread-{number:05d}")
    begun = Fact(owner=RUNTIME, kind="", body=b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}')
    async with await ledger.acquire_lease(key, f"run-{number}") as writer:
        title = f"Über die {number}. Reise nach Köln und zurück, mit allem, was dazu gehört"
        await writer.begin_run([begun], run_id="r", agent="demo", claim=None, title=title)
        await writer.finish_run("finished")


def _find_middle(client: http.client.HTTPConnection, threads: int) -> str:
    """Return the cursor in the middle of the list."""
    size = min(_PAGE, threads // 2)
    page: dict[str, Any] = _get(client, limit=size)
    for _ in range(threads // 2 // size - 1):
        page = _get(client, limit=size, before=page["next"])
    return page["next"]


def _milliseconds(client: http.client.HTTPConnection, query: Mapping[str, Any]) -> float:
    began = time.perf_counter()
    _read(client, query)
    return (time.perf_counter() - began) * 1000


def _get(client: http.client.HTTPConnection, **query: Any) -> dict[str, Any]:
    return json.loads(_read(client, query))


def _read(client: http.client.HTTPConnection, query: Mapping[str, Any]) -> bytes:
    client.request("GET", f"/thread/list?{urlencode(query)}")
    response = client.getresponse()
    content = response.read()
    if response.status != 200:
        raise UnexpectedResponse(content[:500])
    return content
