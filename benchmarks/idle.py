"""Ten thousand open streams that have nothing to send: memory of each, and CPU to open one."""

from __future__ import annotations

import contextlib
import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import build_get
from benchmarks.history import extend_thread
from benchmarks.report import Section, at_most
from benchmarks.scene import Plans
from benchmarks.servers import TITLES, start_servers
from benchmarks.streams import open_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.servers import Server
    from benchmarks.streams import StreamSet

THREADS = 100
WARM_UP = 50
MAX_KB, MAX_CPU_MS = 20.0, 1.2
_AT_ONCE = 100
_LINGER_NS = 500_000_000
"""Time for frames that follow the headers of a response."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    streams: int
    names: tuple[str, ...]


PLANS = Plans(
    smallest=Plan(streams=5, names=("pings", "ambient")),
    quick=Plan(streams=1_000, names=("pings", "sse_pings", "ambient")),
    full=Plan(streams=10_000, names=("pings", "sse_pings", "ambient")),
)


def count_steps(plan: Plan) -> int:
    return len(plan.names)


@dataclass(frozen=True, kw_only=True)
class Idle:
    """Bytes of a stream, CPU seconds to open it, and the share of a core that all of them take while they wait."""

    streams: int
    size: float
    cpu: float
    idle_share: float


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> dict[str, Idle]:
    """Open the streams of one server after the other."""
    found = dict[str, Idle]()
    _raise_descriptor_limit()
    for name in plan.names:
        with start_servers([name], scratch) as (server,):
            found[name] = _measure_server(server, plan.streams)
        step()
    return found


def _measure_server(server: Server, count: int) -> Idle:
    threads = [f"idle-{number}" for number in range(min(THREADS, count))]
    if server.name == "ambient":
        for thread in threads:
            extend_thread(server.port, thread, 1, 1)
    requests = [build_get(f"/threads/{threads[n % len(threads)]}/events") for n in range(count + WARM_UP)]
    with open_streams() as streams:
        for request in requests[:WARM_UP]:
            streams.open_stream(server.port, request)
        _wait_until_idle(streams)
        size_before, cpu_before = server.rss(), server.cpu_seconds()
        for start in range(WARM_UP, len(requests), _AT_ONCE):
            for request in requests[start : start + _AT_ONCE]:
                streams.open_stream(server.port, request)
            streams.read_until_answered()
        _wait_until_idle(streams)
        size, cpu = server.rss() - size_before, server.cpu_seconds() - cpu_before
        time.sleep(1)
        idle_share = server.cpu_seconds() - cpu_before - cpu
    return Idle(streams=count, size=size / count, cpu=cpu / count, idle_share=idle_share)


def _wait_until_idle(streams: StreamSet) -> None:
    """Read the first frames of all streams."""
    streams.read_until_answered()
    streams.read(time.monotonic_ns() + _LINGER_NS)


def _raise_descriptor_limit() -> None:
    """Allow as many open files as the system does: each stream is one here, and one in the server."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


_EXPLANATION = """\
Of the event loop's CPU the route takes 30 % (two thirds of it to pass two queries to a thread and back), the stream 29 % (half of it \
to fold the thread again for the snapshot before its end), and the middleware before the route 9 %. Next: one query instead of two, \
and a snapshot that is folded and encoded once for all who open the thread."""


def build_section(found: Mapping[str, Idle]) -> Section:
    """Return the table and the goals for idle streams."""
    ours = found["ambient"]
    return Section(
        explanation=_EXPLANATION,
        title=f"{ours.streams:,} idle streams",
        how=f"Streams that were opened one after the other and have nothing more to send; growth of the resident memory. Those of (c) read "
        f"{min(THREADS, ours.streams)} threads and send the one short run of theirs first; the peers know no threads and send a ping.",
        columns=("", "KB a stream", "CPU ms to open one", "CPU of one core while idle"),
        rows=[
            [TITLES[name], f"{idle.size / 1e3:.1f}", f"{idle.cpu * 1000:.2f}", f"{idle.idle_share:.1%}"]
            for name, idle in found.items()
        ],
        goals=[
            at_most("memory of an idle stream", ours.size / 1e3, MAX_KB, "KB"),
            at_most("CPU to open an idle stream", ours.cpu * 1000, MAX_CPU_MS, "ms", digits=2),
        ],
    )
