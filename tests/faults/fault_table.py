"""The table of faults in docs/reliability.md: what is injected, what must hold, and the tests that are named after each fault.

`python -m tests.faults.fault_table` writes it. A test fails while the page has another one.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.tables import markdown_table, replace_table

__all__ = ["FAULTS", "PAGE", "find_named_tests", "render_table"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
_OWED = "owed: it needs PostgreSQL and Redis"
_NUMBERS = re.compile(r"(?<=_)([fm])0?(\d+)(?=_)")


class Fault(NamedTuple):
    """A row of the table. `elsewhere` names tests outside of this directory, or says why there are none."""

    fault: str
    must_hold: str
    elsewhere: str = ""


_SAME_FAULTS = {"F7": "M6", "F11": "M5", "F18": "M7", "F24": "M4", "F28": "M1", "F30": "M2"}
"""Faults of durable streams by which one client or one agent could stop a whole server: their tests have both numbers."""


FAULTS = {
    "F1": Fault(
        "kill -9 of the owner of a run, at random moments",
        "ledger intact; the run closed within two leases; thread usable",
    ),
    "F2": Fault("kill -9 while an interrupt is open", "answerable after the restart, once"),
    "F3": Fault("200 clients join a live run, as fast as it can be and paced", "lost 0, twice 0"),
    "F4": Fault("a connection is cut at every byte, or closed in one direction", "the resume is exact"),
    "F5": Fault(
        "a resumed stream is cut and resumed before anything new is stored", "the same cursor gives the same frames"
    ),
    "F6": Fault(
        "a cursor that is ahead, of another thread, garbage, expired, negative, 10 kB",
        "4xx, or a gap that is announced",
    ),
    "F7": Fault(
        "the store cannot be written for seconds, or for good",
        "nothing is sent that is not stored; runs wait, then end",
    ),
    "F8": Fault(
        "a slow disk, one that fails for a moment, more readers than connections",
        "agents wait; memory is flat; all are answered",
    ),
    "F9": Fault("Redis is down, or restarted empty", "the ledger is the truth", _OWED),
    "F10": Fault("Redis acknowledges a write, then times out", "nothing twice in a replay", _OWED),
    "F11": Fault(
        "100 clients that do not read",
        "at most 1 MiB each, besides the body of a plain response; others are hardly slower; the slow ones are disconnected and can resume",
    ),
    "F12": Fault(
        "many idle streams beside active runs; no file descriptors left", "a bound per stream; the server recovers"
    ),
    "F13": Fault("all clients reconnect at once", "all exact; p99 is bounded"),
    "F14": Fault("the disk is full, then has space again", "nothing torn; one terminal event; thread usable"),
    "F15": Fault(
        "a WAL that is cut, has a flipped bit or garbage at its end; a damaged database",
        "only the tail is lost; or a clear refusal",
    ),
    "F16": Fault(
        "a clock an hour off, one that jumps in the middle of a run",
        "leases use time that no one can set; cursors stay in order",
    ),
    "F17": Fault("SIGSTOP past the lease, then SIGCONT", "nothing of the late writer is stored"),
    "F18": Fault("an agent blocks the event loop", "leases are kept; the log says what blocks"),
    "F19": Fault(
        "a request is repeated: at once, elsewhere, after a restart or a kill", "one run; another body is refused"
    ),
    "F20": Fault("many requests for one thread at two servers, with each policy", "the policy holds across processes"),
    "F21": Fault(
        "a stop before the start, twice, after the end, elsewhere, while the owner is dead or paused",
        "one terminal event",
    ),
    "F22": Fault(
        "poison events: lone surrogates, NUL, NaN, cycles, depth 10,000, 50 MB, no event at all; snapshots and open items by the thousand",
        "dropped, or the run ends cleanly; no long pause",
    ),
    "F23": Fault(
        "requests of 300 MB, declared or in chunks, a million messages, a gzip bomb", "refused early; memory is flat"
    ),
    "F24": Fault(
        "JSON Patches that do not fit, and of 100,000 operations",
        "the state does not change; the server does not stand still",
    ),
    "F25": Fault("an agent's events in a wrong order, twice, or none", "repaired to a valid stream"),
    "F26": Fault(
        "a command-line agent exits, hangs, floods, ignores SIGTERM, forks",
        "ended with its processes; bounded buffers",
        "[test_child.py](../tests/processes/test_child.py), [test_child_faults.py](../tests/bridges/acp/test_child_faults.py)",
    ),
    "F27": Fault("a rolling restart under load", "no message and no event is lost"),
    "F28": Fault(
        "a newer program migrates the store while an older one runs; a thread whose record and entries disagree or cannot be decoded",
        "refused; nothing is written with an unknown schema; the thread is 503 `thread_damaged`",
    ),
    "F29": Fault("random faults for MINUTES minutes", "nothing lost; growth is measured", "`make soak`"),
    "F30": Fault("retention trims a thread while it is read", "the gap is announced"),
    "M3": Fault(
        "a client reconnects at another server, then a newer message comes to the first one",
        "a reader anywhere counts: its run is not superseded",
    ),
    "M8": Fault(
        "the store's file, its log or its index is deleted, replaced, overwritten or truncated under a running server",
        "503, and a log line that says so; no second server beside it; a damaged store is not used again",
    ),
    "M9": Fault("a request, or an agent, with a state of 700,000 keys", "refused before it is built; no long pause"),
    "M10": Fault("150 MB of headers; a request that never ends", "refused, or closed after a timeout"),
    "M11": Fault("an agent writes the manifest of its workspace", "what it wrote does not count"),
    "M12": Fault(
        "an agent forges events of the server and messages of users", "dropped, under load and after a restart"
    ),
    "M13": Fault("an id with a line feed at its end; another Host", "refused"),
    "M14": Fault("a backup is restored under clients that have cursors", "409, never other events"),
    "M15": Fault(
        "requests with trailers, an offer to upgrade, an absolute target, or bytes that are no HTTP",
        "the app gets one valid request, or the client a 400",
    ),
}
"""F: the list of faults of durable streams. M: what one client, one agent or an operator could do to a whole server."""


def find_named_tests() -> dict[str, dict[str, list[str]]]:
    """Return the tests of this directory by the number of their fault and by file."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in _find_numbers(node.name):
                    found[number][path.name].append(node.name)
    return found


def _find_numbers(test: str) -> list[str]:
    numbers = [f"{letter.upper()}{number}" for letter, number in _NUMBERS.findall(test)]
    return [number for number in numbers if number not in _SAME_FAULTS.values()]


def render_table() -> str:
    tests = find_named_tests()
    rows = [
        (_numbers(number), fault.fault, fault.must_hold, _links(tests.get(number, {}), fault.elsewhere))
        for number, fault in FAULTS.items()
    ]
    return markdown_table(("", "fault", "must hold", "tests"), rows)


def _numbers(number: str) -> str:
    return f"{number}, {_SAME_FAULTS[number]}" if number in _SAME_FAULTS else number


def _links(files: dict[str, list[str]], elsewhere: str) -> str:
    links = [f"[{name}](../tests/faults/{name}) ({len(tests)})" for name, tests in files.items()]
    return ", ".join([*links, elsewhere] if elsewhere else links)


if __name__ == "__main__":
    replace_table(PAGE, "faults", render_table())
