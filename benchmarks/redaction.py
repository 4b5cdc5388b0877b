"""Redaction: a burst with and without it (`make bench`), and alone with its hardest inputs (`python -m benchmarks.redaction`)."""

from __future__ import annotations

import asyncio
import base64
import random
import statistics
import string
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from ambient_runner.config import SECRET_PATTERNS
from ambient_runner.projections.redaction import Redactor, Secrets
from ambient_runner.protocol.events import TextMessageContent, TextMessageEnd
from benchmarks.burst import run_burst
from benchmarks.report import Goal, Section, print_sections
from benchmarks.scene import Plans
from benchmarks.servers import start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.burst import Burst

ORDER = ("unredacted", "redacted")
TITLES = {"unredacted": "without redaction", "redacted": "redaction on"}
VALUE_COUNT = 60
WANTED_SHARE = 0.75
_ALNUM = string.ascii_letters + string.digits
_ALPHABETS = (_ALNUM, _ALNUM + "-_", _ALNUM + "+/=", _ALNUM + "/~%&+ ")
_PERIOD = "ab12CD34"
_MEGABYTES = 8
_TICK_SECONDS = 0.001
_MAX_PAUSE_SECONDS = 0.05
_MAX_SECONDS, _MAX_FLOOD_SECONDS = 1.0, 8.0


def known_values(count: int = VALUE_COUNT) -> list[str]:
    """Return the secrets that the server knows."""
    rng = random.Random(1)
    return ["".join(rng.choices(rng.choice(_ALPHABETS), k=rng.randint(16, 64))) for _ in range(count)]


def secret_variables(count: int) -> dict[str, str]:
    """Return so many environment variables whose values are secrets."""
    return {f"BENCH_{number}_API_KEY": value for number, value in enumerate(known_values(count))}


PLANS = Plans(smallest=1, quick=3, full=15)


def count_steps(rounds: int) -> int:
    return (rounds + 1) * len(ORDER)


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, list[Burst]]:
    """Measure the burst with and without redaction in turn. The first round is a warm-up and is not counted."""
    bursts = defaultdict[str, list["Burst"]](list)
    with start_server(ORDER[0], scratch) as first, start_server(ORDER[1], scratch) as second:
        for turn in range(rounds + 1):
            for server in (first, second) if turn % 2 else (second, first):
                burst = run_burst(server)
                if turn:
                    bursts[server.name].append(burst)
                step()
    return {name: bursts[name] for name in ORDER}


def build_section(bursts: Mapping[str, Sequence[Burst]]) -> Section:
    """Return the table and the goal of the burst."""
    rates = {name: statistics.median(burst.rate for burst in results) for name, results in bursts.items()}
    share = rates["redacted"] / rates["unredacted"]
    return Section(
        title="Redaction on a run of 20,000 deltas",
        how=f"The same server with {VALUE_COUNT} known values, all encodings and all patterns, and with nothing to search for; "
        f"medians of {len(bursts['redacted'])} rounds. `python -m benchmarks.redaction` measures redaction alone.",
        columns=("", "events/s", "range", "CPU µs/event"),
        rows=[_build_row(name, bursts[name], rates[name]) for name in ORDER],
        goals=[
            Goal(
                what="redaction on against without, events per second",
                wanted=f"at least {WANTED_SHARE:.0%}",
                measured=f"{share:.0%}",
                met=share >= WANTED_SHARE,
            )
        ],
    )


def _build_row(name: str, bursts: Sequence[Burst], rate: float) -> list[str]:
    rates = sorted(burst.rate for burst in bursts)
    cost = sum(burst.cpu for burst in bursts) / sum(burst.events for burst in bursts) * 1e6
    return [TITLES[name], f"{rate:,.0f}", f"{rates[0]:,.0f} to {rates[-1]:,.0f}", f"{cost:.1f}"]


def _floods() -> dict[str, str]:
    """Return words of which a text may consist: beginnings of credentials, plain and encoded, credentials, pieces of known values."""
    beginnings = [literal for pattern in SECRET_PATTERNS for literal in pattern.literals]
    floods = {
        repr(word): word
        for word in ("://", ":\\", "AKIA", "sk-", "sk- ", "eyJ", "-----BEGIN", "Authorization: Bearer ")
    }
    for word in ("sk-", "sk-ant-", "AKIA", "eyJ"):
        floods[f"{word!r} in hex"] = word.encode().hex()
        floods[f"{word!r} in base64"] = _encode_base64(word)
    return floods | {
        "all beginnings": "".join(beginnings),
        "all beginnings in hex": "".join(beginnings).encode().hex(),
        "all beginnings in base64": _encode_base64("".join(beginnings)),
        "'sk-' in base64, in lines": _encode_base64("sk-") * 16 + "\n",
        "base64 in lines": "".join(random.Random(6).choices(_ALNUM, k=76)) + "\n",
        "'sk-' in base64, spaced": _encode_base64("sk-") + " ",
        "keys": "AKIAB3DE5GH7B3DE5GH7 ",
        "keys in hex": b"AKIAB3DE5GH7B3DE5GH7 ".hex(),
        "keys in base64, spaced": _encode_base64("AKIAB3DE5GH7B3DE5GH7") + " ",
        "URLs with passwords": "://a:b3dE5gH7x@h ",
        "JWTs": "eyJabcdefgh1.eyJ ",
        "a known value": known_values()[0],
        "a piece of a long value": _long_value()[256:288],
        "half a line of a key": _key_lines()[3][:32],
        "a part of a periodic value": _PERIOD,
    }


def _encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


def _long_value() -> str:
    return "".join(random.Random(4).choices(_ALNUM, k=4000))


def _key_lines() -> list[str]:
    rng = random.Random(5)
    return ["".join(rng.choices(_ALNUM + "+/", k=64)) for _ in range(50)]


class DeltaCase(NamedTuple):
    """A text in one delta, and the secrets that it is searched for."""

    name: str
    text: str
    secrets: Secrets
    max_seconds: float = _MAX_FLOOD_SECONDS


def _delta_cases() -> Iterator[DeltaCase]:
    """Yield prose, one character, and texts that consist of credentials or of parts of them."""
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *_key_lines(), "-----END PRIVATE KEY-----"])
    secrets = Secrets([*known_values(), _long_value(), pem, f"{_PERIOD * 8}Q{_PERIOD * 8}"])
    size = _MEGABYTES * 1_000_000
    yield DeltaCase("prose, 10 MB", _prose(10_000_000), secrets, _MAX_SECONDS)
    yield DeltaCase(f"one character, {_MEGABYTES} MB", "a" * size, secrets, _MAX_SECONDS)
    for name, word in _floods().items():
        yield DeltaCase(f"{name}, {_MEGABYTES} MB", word * (size // len(word)), secrets)
    nested = "a9X" * 333_333
    values = [nested[:length] for length in range(8, 64)]
    yield DeltaCase("values that begin each other, 1 MB", nested, Secrets(values))


def measure_texts() -> Section:
    """Redact large texts in one delta."""
    measured = [(case, _redact_delta(case.secrets, case.text)) for case in _delta_cases()]
    return Section(
        title="One delta",
        how="CPU time of one delta and the end of its message.",
        columns=("text", "s", "MB/s"),
        rows=[[case.name, f"{spent:.2f}", f"{len(case.text) / spent / 1e6:.0f}"] for case, spent in measured],
        goals=[
            Goal(
                what=f"one delta of {case.name}",
                wanted=f"under {case.max_seconds:g} s",
                measured=f"{spent:.2f} s",
                met=spent < case.max_seconds,
            )
            for case, spent in measured
        ],
    )


def _prose(size: int) -> str:
    rng = random.Random(2)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(2000)]
    return " ".join(rng.choices(words, k=size // 5))[:size]


def _redact_delta(secrets: Secrets, text: str) -> float:
    redactor = Redactor(secrets)
    start = time.process_time()
    redactor.feed(TextMessageContent(message_id="m", delta=text))
    redactor.feed(TextMessageEnd(message_id="m"))
    return time.process_time() - start


def _large_credentials() -> dict[str, str]:
    """Return credentials of 100 KB by their form."""
    rng = random.Random(3)
    lines = ["".join(rng.choices(_ALNUM + "+/", k=64)) for _ in range(1550)]
    return {
        "one line": "".join(lines),
        "lines": "\n".join(lines),
        "key in PEM": "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"]),
        "words": _prose(100_000),
    }


def measure_learning() -> Section:
    """Learn credentials of 100 KB in a worker thread, while a task on the event loop ticks."""
    found = {name: asyncio.run(_learn_while_ticking(credential)) for name, credential in _large_credentials().items()}
    goals = [
        Goal(
            what=f"longest pause of the event loop, 100 KB, {name}",
            wanted=f"under {_MAX_PAUSE_SECONDS * 1000:g} ms",
            measured=f"{pause * 1000:.0f} ms",
            met=pause < _MAX_PAUSE_SECONDS,
        )
        for name, (_, pause) in found.items()
    ]
    return Section(
        title="Learning a credential of 100 KB",
        how="In a worker thread, while a task on the event loop ticks every millisecond.",
        columns=("credential", "ms", "longest pause, ms"),
        rows=[[name, f"{spent * 1000:.0f}", f"{pause * 1000:.0f}"] for name, (spent, pause) in found.items()],
        goals=goals,
    )


async def _learn_while_ticking(credential: str) -> tuple[float, float]:
    """Return the seconds of learning, and the longest time between two ticks beyond the tick itself."""
    secrets = Secrets(known_values())
    await asyncio.to_thread(time.sleep, 0)  # The thread exists.
    pauses: list[float] = []
    ticking = asyncio.create_task(_tick(pauses))
    await asyncio.sleep(5 * _TICK_SECONDS)
    pauses.clear()
    start = time.perf_counter()
    await asyncio.to_thread(secrets.add, [credential])
    spent = time.perf_counter() - start
    await asyncio.sleep(5 * _TICK_SECONDS)
    ticking.cancel()
    return spent, max(pauses)


async def _tick(pauses: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        now = time.perf_counter()
        pauses.append(now - last - _TICK_SECONDS)
        last = now


def main() -> None:
    """Measure redaction alone."""
    sections = [measure_texts(), measure_learning()]
    print_sections(Console(), sections, [])
    sys.exit(0 if all(goal.met for section in sections for goal in section.goals) else 1)


if __name__ == "__main__":
    main()
