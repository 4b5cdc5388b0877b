"""The start: from the command to the first answer, beside a bare FastAPI app, and commands that only print."""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import Section, at_most, spread
from benchmarks.scene import Plans
from benchmarks.servers import AMBIENT, LISTENING, ROOT, ServerNotStarted, child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SERVE, FASTAPI = "`ambient serve`, ready", "FastAPI app with one route, ready"
VERSION, HELP, PYTHON = "`ambient --version`", "`ambient --help`", "`python -c pass`"
LIMITS = {SERVE: 0.8, VERSION: 0.2, HELP: 0.2}
PLANS = Plans(smallest=1, quick=3, full=9)


def count_steps(rounds: int) -> int:
    return 5 * (rounds + 1)


@dataclass(frozen=True, kw_only=True)
class Start:
    seconds: float
    cpu: float


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, list[Start]]:
    """Measure the commands in turn. The first round is not counted: it compiles all modules, as an installation does."""
    found = defaultdict[str, list[Start]](list)
    python = [sys.executable]
    env = child_environment() | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}
    for turn in range(rounds + 1):
        store = f"sqlite:///{scratch / uuid.uuid4().hex}.db"
        measurements: dict[str, Callable[[], Start]] = {
            SERVE: lambda store=store: _start_server(
                [str(AMBIENT), "serve", "demo", "--port", "0", "--store", store], env
            ),
            FASTAPI: lambda: _start_server([*python, "-m", "benchmarks.peers", "fastapi"], env),
            VERSION: lambda: _run_command([str(AMBIENT), "--version"], env),
            HELP: lambda: _run_command([str(AMBIENT), "--help"], env),
            PYTHON: lambda: _run_command([*python, "-c", "pass"], env),
        }
        for title, run_once in measurements.items():
            start = run_once()
            if turn:
                found[title].append(start)
            step()
    return dict(found)


def _start_server(command: Sequence[str], env: Mapping[str, str]) -> Start:
    """Return the time from the command to the answer of `GET /health`."""
    cpu_before, began = _cpu_of_children(), time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout
        try:
            found = LISTENING.search(next((line for line in child.stdout if LISTENING.search(line)), ""))
            if found is None:
                raise ServerNotStarted(" ".join(command))
            _get_health(int(found[1]))
            seconds = time.monotonic() - began
        finally:
            child.terminate()
            child.stdout.read()
    return Start(seconds=seconds, cpu=_cpu_of_children() - cpu_before)


def _get_health(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/health")
    if connection.getresponse().status != 200:
        raise ServerNotStarted("GET /health")
    connection.close()


def _run_command(command: Sequence[str], env: Mapping[str, str]) -> Start:
    cpu_before, began = _cpu_of_children(), time.monotonic()
    subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    return Start(seconds=time.monotonic() - began, cpu=_cpu_of_children() - cpu_before)


def _cpu_of_children() -> float:
    """Return the CPU seconds of all children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


_EXPLANATION = """\
A third of the CPU is importing FastAPI and what it needs (0.17 s), 0.07 s making dataclasses, 0.05 s `ag_ui`, 0.04 s regular expressions, \
16 ms of that for the one that finds private keys. Next: simplify that expression, and open the store once (20 ms)."""


def build_section(found: Mapping[str, Sequence[Start]]) -> Section:
    """Return the table and the goals for the start."""
    return Section(
        explanation=_EXPLANATION,
        title="Start",
        how=f"From the command to the answer of `GET /health`, or to the end of the command; medians of {len(found[SERVE])} starts, in "
        "turn, with compiled modules as in an installation. CPU of a server includes its end.",
        columns=("", "s", "range", "CPU s"),
        rows=[
            [
                title,
                f"{_median_seconds(starts):.2f}",
                spread([start.seconds for start in starts], 2),
                f"{statistics.median(start.cpu for start in starts):.2f}",
            ]
            for title, starts in found.items()
        ],
        goals=[at_most(title, _median_seconds(found[title]), limit, "s", digits=2) for title, limit in LIMITS.items()],
    )


def _median_seconds(starts: Sequence[Start]) -> float:
    return statistics.median(start.seconds for start in starts)
