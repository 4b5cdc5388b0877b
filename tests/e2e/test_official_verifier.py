"""The official clients judge what our grammar lets through: composed, repaired, cut short and resumed streams."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest
from hypothesis import strategies as st

from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.protocol import events as e
from ambient_runner.protocol.profiles import Downgrader, Profile
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.verify import Verifier, Violation
from tests.e2e.page_streams import PROTOCOLS, fork_streams, page_streams
from tests.machine_speed import HANG_SECONDS
from tests.protocol.strategies import (
    CONVERSATION,
    GARBAGE,
    KNOWN_IDS,
    REMARKS,
    RUN,
    TERMINALS,
    THREAD,
    collect,
    compose,
    numbered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

CLIENTS = Path(__file__).with_name("clients")
NEW, OLD = "ag-ui-client-1.0", "ag-ui-client-0.0.59"
STARTED = e.RunStarted(thread_id=THREAD, run_id=RUN)
EXAMPLES = 300

Streams = list[list[e.Event]]

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed, so no official client can judge"),
    pytest.mark.skipif(
        not all((CLIENTS / "node_modules" / name).is_dir() for name in (NEW, OLD)),
        reason="run `npm install` in tests/e2e/clients for the official clients",
    ),
]


def objections(streams: Streams) -> list[tuple[str, str, list[e.Event]]]:
    """Who refuses which stream, and why. The older client hears the pre-1.0 profile, as it would from a server."""
    return [*_objections(NEW, streams), *_objections(OLD, [_downgraded(stream) for stream in streams])]


def _objections(client: str, streams: Streams) -> list[tuple[str, str, list[e.Event]]]:
    paired = zip(_verdicts(client, [_encoded(stream) for stream in streams]), streams, strict=True)
    return [(client, verdict["error"], stream) for verdict, stream in paired if not verdict["ok"]]


def _verdicts(client: str, streams: list[bytes]) -> list[dict[str, Any]]:
    """What a client says about streams, each a JSON array of events."""
    lines = b"".join(stream + b"\n" for stream in streams)
    done = subprocess.run(
        ["node", "verify.mjs", client], cwd=CLIENTS, input=lines, capture_output=True, check=True, timeout=HANG_SECONDS
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _downgraded(stream: list[e.Event]) -> list[e.Event]:
    downgrader = Downgrader(Profile.V0_49)
    return [told for event in stream for told in downgrader.feed(event)]


@cache
def conversations() -> list[tuple[list[e.Event], e.Event]]:
    """Runs as an unruly adapter would have them, each with an end."""
    return collect(st.tuples(CONVERSATION, TERMINALS), 100)


def _repaired(repairer: Repairer, events: Iterable[e.Event]) -> list[e.Event]:
    return [emitted for event in events for emitted in repairer.feed(event)]


def test_they_refuse_what_is_illegal() -> None:
    """The oracle itself: without this, a script that accepts everything would pass for two content clients."""
    illegal: Streams = [
        [e.TextMessageEnd(message_id="m")],
        [STARTED, e.TextMessageEnd(message_id="m"), e.RunFinished(thread_id=THREAD, run_id=RUN)],
        [STARTED, e.ToolCallStart(tool_call_id="c", tool_call_name="n"), e.RunFinished(thread_id=THREAD, run_id=RUN)],
    ]
    refused = objections(illegal)
    assert [(client, stream) for client, _, stream in refused] == [
        (client, stream) for client in (NEW, OLD) for stream in illegal
    ]


def test_composed_streams_are_accepted_wherever_they_end() -> None:
    streams: Streams = []
    for remarks, terminal in collect(st.tuples(REMARKS, TERMINALS), EXAMPLES):
        composer = Composer(numbered())
        said = compose(composer, remarks)
        streams.append([STARTED, *said, *composer.close(_terminal(terminal)), terminal])
    assert objections(streams) == []


def test_repaired_garbage_is_accepted() -> None:
    examples = collect(st.tuples(GARBAGE, KNOWN_IDS, TERMINALS), EXAMPLES)
    streams = [_repaired(Repairer(THREAD, RUN, known), [*garbage, terminal]) for garbage, known, terminal in examples]
    assert objections(streams) == []


def test_a_run_that_is_cut_short_is_accepted() -> None:
    streams: Streams = []
    for garbage, terminal in conversations():
        repairer = Repairer(THREAD, RUN)
        emitted = _repaired(repairer, [STARTED, *garbage])
        streams.append([*emitted, *repairer.close(), terminal])
    assert objections(streams) == []


def test_a_stream_resumed_in_its_middle_is_accepted() -> None:
    streams: Streams = []
    for garbage, terminal in conversations():
        stored = _repaired(Repairer(THREAD, RUN), [STARTED, *garbage, terminal])
        reader = Repairer(THREAD, RUN)
        middle = len(stored) // 2
        _repaired(reader, stored[:middle])
        streams.append([STARTED, *reader.reopening_events(), *stored[max(middle, 1) :]])
    assert objections(streams) == []


@pytest.mark.parametrize("version", ["1.0", "0.0.59"])
async def test_what_a_page_reads_of_a_thread_is_accepted(version: str) -> None:
    """A connect, also during a run, with a waiting call and with a question; single runs; and a thread without snapshots."""
    streams = await page_streams(PROTOCOLS[version])
    named = [(stream.name, run) for stream in streams for run in stream.runs]
    verdicts = _verdicts(f"ag-ui-client-{version}", [msgspec.json.encode(run) for _, run in named])
    assert len({name for name, _ in named}) == 6
    assert [(name, verdict["error"]) for (name, _), verdict in zip(named, verdicts, strict=True)] == [
        (name, None) for name, _ in named
    ]


@pytest.mark.parametrize("audience", ["open", "safe"])
@pytest.mark.parametrize("version", ["1.0", "0.0.59"])
async def test_what_a_page_reads_of_a_fork_is_accepted(version: str, audience: Literal["open", "safe"]) -> None:
    streams = await fork_streams(PROTOCOLS[version], audience)
    verdicts = _verdicts(f"ag-ui-client-{version}", [msgspec.json.encode(stream.run) for stream in streams])
    assert [verdict["error"] for verdict in verdicts] == [None] * 4


def test_our_verifier_and_the_current_client_agree_about_almost_legal_streams() -> None:
    """One event of a legal stream taken out, said twice or moved: both must notice, or neither."""
    random = Random(1)
    streams = [
        _disturbed(_repaired(Repairer(THREAD, RUN), [STARTED, *garbage, terminal]), random)
        for garbage, terminal in conversations()
        for _ in range(4)
    ]
    refused = [_encoded(stream) for _, _, stream in _objections(NEW, streams)]
    assert refused == [_encoded(stream) for stream in streams if not _is_legal(stream)]
    assert 0.2 < len(refused) / len(streams) < 0.8


def _disturbed(stream: list[e.Event], random: Random) -> list[e.Event]:
    *body, terminal = stream
    at, to = random.randrange(len(body)), random.randrange(len(body))
    match random.choice(["drop", "repeat", "move"]):
        case "drop":
            del body[at]
        case "repeat":
            body.insert(to, body[at])
        case _:
            body.insert(to, body.pop(at))
    return [*body, terminal]


def _is_legal(stream: list[e.Event]) -> bool:
    verifier = Verifier()
    try:
        for event in stream:
            verifier.check(event)
        verifier.finish()
    except Violation:
        return False
    return True


def _encoded(stream: list[e.Event]) -> bytes:
    return msgspec.json.encode(stream)


def _terminal(event: e.Event) -> e.Terminal:
    assert isinstance(event, e.RunFinished | e.RunError)
    return event
