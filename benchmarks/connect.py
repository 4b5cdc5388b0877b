"""Time to the first byte of a connect to a long thread, between runs and during one: what a page waits for when it is opened."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import UnexpectedResponse
from benchmarks.report import Goal, Section, percentile
from benchmarks.scene import Plans
from benchmarks.servers import start_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

EVENTS_PER_TURN = 200
_FRAME_EVENTS = 6
"""Entries of a turn beside its deltas: the input, RUN_STARTED, the start and end of the message, the snapshot and RUN_FINISHED."""
WITHIN_MS = 50.0
THREAD = "long"
CONNECT = f"/threads/{THREAD}/events?from=snapshot"
CASES = ("between runs", "during a run")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs on the thread, and connects in each case."""

    turns: int
    connects: int


PLANS = Plans(
    smallest=Plan(turns=2, connects=2),
    quick=Plan(turns=100, connects=20),
    full=Plan(turns=500, connects=100),
)


def count_steps(plan: Plan) -> int:
    return plan.turns + 1


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> dict[str, list[float]]:
    """Return the milliseconds to the first byte of each connect, by case, and the sizes in bytes of the connect and its messages."""
    with start_servers(["ambient"], scratch) as (server,):
        for turn in range(plan.turns):
            _post(server.port, f"count {EVENTS_PER_TURN - _FRAME_EVENTS}", turn)
            step()
        times = {CASES[0]: [_seconds_to_first_byte(server.port) * 1000 for _ in range(plan.connects)]}
        times |= {"turns": [float(plan.turns)]}
        times |= {"size": [float(len(_get(server.port, f"{CONNECT}&until=idle")))]}
        times |= {"messages": [float(len(_get(server.port, f"/message_snapshot/{THREAD}")))]}
        _post(server.port, "hang", plan.turns, prefer="respond-async")
        times |= {CASES[1]: [_seconds_to_first_byte(server.port) * 1000 for _ in range(plan.connects)]}
        step()
        return times


def build_section(times: Mapping[str, Sequence[float]]) -> Section:
    """Return the table and the goals for connects."""
    turns, size, messages = (times[name][0] for name in ("turns", "size", "messages"))
    rows = [
        [case, *(f"{ms:.1f}" for ms in (percentile(times[case], 50), times[case][0], max(times[case])))]
        for case in CASES
    ]
    return Section(
        title="Connect to a long thread",
        how=(
            f"A thread of {turns * EVENTS_PER_TURN:,.0f} entries and {2 * turns:,.0f} messages that the server has in memory, "
            f"{len(times[CASES[0]])} connects each, sequentially, each on a new connection. "
            f"A connect is {size / 1e3:,.0f} kB, its messages are {messages / 1e3:,.0f} kB."
        ),
        columns=("", "first byte, p50 ms", "first connect ms", "slowest ms"),
        rows=rows,
        goals=[_build_goal(case, times[case]) for case in CASES],
    )


def _build_goal(case: str, times: Sequence[float]) -> Goal:
    measured = max(times)  # One slow connect of a hundred is a page that waits: a percentile would hide it.
    return Goal(
        what=f"first byte of a connect {case}, slowest",
        wanted=f"within {WITHIN_MS:g} ms",
        measured=f"{measured:.1f} ms",
        met=measured <= WITHIN_MS,
    )


def _post(port: int, text: str, turn: int, prefer: str = "") -> None:
    messages = [{"id": f"u{turn}", "role": "user", "content": text}]
    body = json.dumps({"threadId": THREAD, "runId": f"r{turn}", "protocolVersion": "1.0", "messages": messages})
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/?snapshots=0", body, {"Content-Type": "application/json", "Prefer": prefer})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    if response.status not in {200, 202}:
        raise UnexpectedResponse(content[:500])


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    content = connection.getresponse().read()
    connection.close()
    return content


def _seconds_to_first_byte(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began = time.perf_counter()
    connection.request("GET", CONNECT)
    first = connection.getresponse().read(len("data: "))
    took = time.perf_counter() - began
    connection.close()
    if first != b"data: ":
        raise UnexpectedResponse(first)
    return took
