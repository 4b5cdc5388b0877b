"""Command-line agents: 20,000 chunks of a fake ACP agent, the first text, an answer on its way, and what waiting and restarting cost.

The same agent is read by a bare loop of `readline` and `json.loads`, by the client of the official Python SDK, which only counts the
chunks, and by this server, which stores and delivers them.
"""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.client import Response, UnexpectedResponse, connect
from benchmarks.report import Goal, Section, percentile
from benchmarks.scene import Plans
from benchmarks.servers import ROOT, child_environment, start_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.servers import Server

CHUNKS = 20_000
CLOCK = re.compile(rb'"delta":" ?(\d{12,}) ?"')
FAKE_AGENT = ROOT / "tests" / "bridges" / "acp" / "fake_agent.py"
PARKED = 100
STARTS = 100
_BLOCK = 1 << 20


@dataclass(kw_only=True)
class Measured:
    """Results of all rounds. Durations in seconds, memory in bytes."""

    loop: list[float] = field(default_factory=list[float])
    sdk: list[float] = field(default_factory=list[float])
    ambient: list[float] = field(default_factory=list[float])
    first_text: list[float] = field(default_factory=list[float])
    unended_text: list[float] = field(default_factory=list[float])
    answer: list[float] = field(default_factory=list[float])
    parked_bytes: float = 0.0
    left_over: str = ""


PLANS = Plans(smallest=1, quick=2, full=10)


def count_steps(rounds: int) -> int:
    return rounds + 3


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> Measured:
    """Measure in turn. The first round is a warm-up and is not counted."""
    found = Measured()
    journal = scratch / "journal.jsonl"
    settings = {"BENCH_JOURNAL": str(journal)}
    with start_server("ambient-acp", scratch, settings) as server:
        for turn in range(rounds + 1):
            loop, sdk, ambient = _read_bare(), _read_with_sdk(), _run_flood(server)
            if turn:
                found.loop.append(loop)
                found.sdk.append(sdk)
                found.ambient.append(ambient)
                found.first_text += _measure_first_text(server, "clock 20 0.01")
                found.unended_text += _measure_first_text(server, "ticks 20 0.01")
                found.answer.append(_measure_answer(server, journal))
            step()
        found.left_over = _count_left_over(server)
        step()
        found.parked_bytes = _measure_parked(server)
        step()
    return found


def build_section(found: Measured) -> Section:
    """Return the table and the goals."""
    rates = {name: CHUNKS / statistics.median(times) for name, times in _bursts(found).items()}
    first, unended, answer = (
        percentile(times, 50) * 1000 for times in (found.first_text, found.unended_text, found.answer)
    )
    parked_mb = found.parked_bytes / (1 << 20)
    return Section(
        title="Command-line agents over ACP",
        how=f"A fake agent writes {CHUNKS:,} chunks; medians of {len(found.loop)} rounds. The bare loop and the official SDK's client "
        "only read them; this server stores and delivers them. The first text is measured from the agent's clock to the client: for text "
        "that ends a word, and for text that does not, which waits for the next chunk. An answer is measured from the POST to the agent's "
        "standard input.",
        columns=("", "chunks/s", "range"),
        rows=[_rate_row(title, found) for title in _TITLES],
        goals=[
            _at_least("chunks per second against the official SDK's client", rates["ambient"] / rates["sdk"], 5),
            _at_least("chunks per second against readline and json.loads", rates["ambient"] / rates["loop"], 1),
            _at_most("agent to client, text that ends a word, p50", first, 5, "ms"),
            Goal(
                what="agent to client, text that does not end a word, p50",
                wanted="shown",
                measured=f"{unended:.1f} ms",
                met=True,
            ),
            _at_most("POST with an answer to the agent, p50", answer, 10, "ms"),
            _at_most(f"memory of our process for each of {PARKED} waiting threads", parked_mb, 1, "MB"),
            Goal(
                what=f"processes, descriptors, sockets and files left after {STARTS} starts",
                wanted="none",
                measured=found.left_over or "none",
                met=not found.left_over,
            ),
        ],
    )


_TITLES = {"loop": "readline and json.loads", "sdk": "official SDK's client", "ambient": "Ambient Runner"}


def _bursts(found: Measured) -> dict[str, list[float]]:
    return {"loop": found.loop, "sdk": found.sdk, "ambient": found.ambient}


def _rate_row(name: str, found: Measured) -> list[str]:
    rates = sorted(CHUNKS / seconds for seconds in _bursts(found)[name])
    return [_TITLES[name], f"{statistics.median(rates):,.0f}", f"{rates[0]:,.0f} to {rates[-1]:,.0f}"]


def _at_least(what: str, ratio: float, wanted: float) -> Goal:
    return Goal(what=what, wanted=f"at least {wanted:g} times", measured=f"{ratio:.2f} times", met=ratio >= wanted)


def _at_most(what: str, value: float, wanted: float, unit: str) -> Goal:
    return Goal(what=what, wanted=f"at most {wanted:g} {unit}", measured=f"{value:.2f} {unit}", met=value <= wanted)


def _read_bare() -> float:
    """Return the seconds from the prompt to its answer, read line by line."""
    with subprocess.Popen(
        [sys.executable, "-I", str(FAKE_AGENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=_BLOCK
    ) as agent:
        assert agent.stdin
        assert agent.stdout

        def call(request_id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            assert agent.stdin
            assert agent.stdout
            line = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
            agent.stdin.write(json.dumps(line).encode() + b"\n")
            agent.stdin.flush()
            while True:
                message = json.loads(agent.stdout.readline())
                if message.get("id") == request_id and "method" not in message:
                    return message["result"]

        call(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        session = call(2, "session/new", {"cwd": str(ROOT), "mcpServers": []})["sessionId"]
        started = time.monotonic()
        call(3, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": f"flood {CHUNKS}"}]})
        seconds = time.monotonic() - started
        agent.stdin.close()
    return seconds


def _read_with_sdk() -> float:
    """Return the seconds that the official SDK's client takes, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.acp_sdk", str(FAKE_AGENT), str(CHUNKS)]
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=True)
    return float(done.stdout)


def _run_flood(server: Server) -> float:
    """Return the seconds from the POST to the end of the stream, on a thread whose agent runs already."""
    thread = str(uuid.uuid4())
    _post(server.port, thread, "say ready")
    response = _post(server.port, thread, f"flood {CHUNKS}")
    deltas = b"".join(re.findall(rb'"TEXT_MESSAGE_CONTENT".*?"delta":"([^"]*)"', response.body()))
    if deltas.count(b"chunk") != CHUNKS:
        raise UnexpectedResponse(response.body()[-500:])
    return response.seconds


def _measure_first_text(server: Server, script: str) -> list[float]:
    """Return the seconds between the agent's clock and the arrival of each chunk."""
    thread = str(uuid.uuid4())
    _post(server.port, thread, "say ready")
    response = _post(server.port, thread, script)
    delays: list[float] = []
    received, seen = b"", 0
    for arrived_at, chunk in response.chunks:
        received += chunk
        clocks = CLOCK.findall(received)
        delays += [(arrived_at - int(clock)) / 1e9 for clock in clocks[seen:]]
        seen = len(clocks)
    return delays


def _measure_answer(server: Server, journal: Path) -> float:
    """Return the seconds from the POST with an answer to its arrival at the agent."""
    thread = str(uuid.uuid4())
    body = _post(server.port, thread, "ask true").body()
    interrupt = json.loads(re.findall(rb'data: (\{"type":"RUN_FINISHED".*\})', body)[-1])["outcome"]["interrupts"][0]
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    response = _post(server.port, thread, None, resume=resume)
    lines = [json.loads(line) for line in journal.read_text().splitlines()[-200:]]
    answers = [line["t"] for line in lines if "outcome" in str(line["msg"].get("result"))]
    return answers[-1] - response.sent_at / 1e9


def _measure_parked(server: Server) -> float:
    """Return the bytes of our process for each thread whose agent waits for an answer."""
    for number in range(2):
        _post(server.port, f"warm-{number}", "ask true")
    before = server.process.memory_info().rss
    for number in range(PARKED):
        _post(server.port, f"parked-{number}", "ask true")
    return (server.process.memory_info().rss - before) / PARKED


def _count_left_over(server: Server) -> str:
    """Start and end many agents. Return what is left of them; empty if nothing is."""
    _cycle(server, 4)
    before = _resources(server)
    _cycle(server, STARTS)
    after = _resources(server)
    return ", ".join(f"{after[name] - before[name]} {name}" for name in before if after[name] > before[name])


def _cycle(server: Server, count: int) -> None:
    """Run agents that end by themselves."""
    for _ in range(count):
        _post(server.port, str(uuid.uuid4()), "say bye then exit 0")


def _resources(server: Server) -> dict[str, int]:
    time.sleep(0.5)
    temporary = Path(tempfile.gettempdir())
    return {
        "processes": len(server.process.children(recursive=True)),
        "descriptors": server.process.num_fds(),
        "socket directories": len(list(temporary.glob("ambient-*"))),
    }


def _post(port: int, thread: str, text: str | None, resume: list[dict[str, Any]] | None = None) -> Response:
    messages = [] if text is None else [{"id": str(uuid.uuid4()), "role": "user", "content": text}]
    body = json.dumps(
        {
            "threadId": thread,
            "runId": str(uuid.uuid4()),
            "protocolVersion": "1.0",
            "messages": messages,
            "tools": [],
            "context": [],
            **({"resume": resume} if resume else {}),
        }
    )
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with connect(port) as sock:
        response = Response(sent_at=time.monotonic_ns())
        sock.sendall((head + body).encode())
        while chunk := sock.recv(_BLOCK):
            if response.add(chunk):
                return response
    raise UnexpectedResponse(b"".join(chunk for _, chunk in response.chunks)[-500:])


def find_missing() -> str:
    """Return the package that only the benchmarks need."""
    return "" if importlib.util.find_spec("acp") else "agent-client-protocol: run `make bench`"
