"""Three reducers, one thread: our Python fold, `reduce` of `@ambient-runner/core` and the reducer of the official `@ag-ui/client` 1.0.0.

They get every recording in `tests/recordings` and every command of the demo agent: as one stream, and as two that are cut and resumed,
after some frames by default and after every frame with `--long`. `activities` is compared with its Python twin. `spans` has none: it is
compared with itself over cuts.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ambient_runner.bridges.demo import COMMANDS
from ambient_runner.protocol.events import Event, RunFinished, RunStarted, StateSnapshot
from ambient_runner.protocol.repair import Repairer
from ambient_runner.testing import fold_activities, fold_frames
from tests.bridges.acp.test_translate_recordings import FILES, translate_recording
from tests.bridges.lines.test_translate import RECORDINGS as LINES
from tests.bridges.lines.test_translate import _translate
from tests.recordings import AUDIENCES, FRAMEWORKS, HERE, read_frames

from .demo_threads import TEXTS, read_demo_threads
from .page_streams import fork_streams, page_streams
from .test_official_reducer import Improviser, official, ours, script
from .web_packages import WEB, build_packages, run_node

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDED = ("messages", "state", "calls", "interrupts", "run")
"""The members of `fold_frames`."""
SOME = 7
"""Without `--long` every so manyth frame is a cut."""

Frame = dict[str, Any]
Connection = list[Frame]
Reading = list[Connection]
"""The frames of a thread as a page received them, by connection."""


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    build_packages()


def plain(events: Iterable[Event]) -> list[Frame]:
    return [json.loads(msgspec.json.encode(event)) for event in events]


def fold_with_web(threads: list[Connection], *options: str) -> list[Frame]:
    """What `fold` of the web packages makes of each thread, or `reduce` with the option `--reduce`."""
    lines = b"".join(msgspec.json.encode({"frames": frames}) + b"\n" for frames in threads)
    printed = run_node(WEB / "tools" / "fold.mjs", *options, stdin=lines)
    return [json.loads(line) for line in printed.splitlines()]


def split_runs(reading: Reading) -> list[Connection]:
    """The runs as the official client gets them: one for each RUN_STARTED."""
    runs: list[Connection] = []
    for frame in (frame for connection in reading for frame in connection):
        if frame["type"] == "RUN_STARTED":
            runs.append([])
        runs[-1].append(frame)
    return runs


def fold_officially(readings: list[Reading]) -> list[Frame]:
    """The messages and the state that the official client ends with."""
    scripts = [{"runs": [{"add": [], "events": run} for run in split_runs(reading)]} for reading in readings]
    return [folded["1.0"][-1] for folded in official([msgspec.json.encode(each) for each in scripts])]


def check(threads: dict[str, list[Reading]]) -> None:
    """Compare the reducers on readings of threads. All readings of one thread, the first of them without cuts, lead to the same."""
    named = [(f"{name}, reading {at}", reading) for name, found in threads.items() for at, reading in enumerate(found)]
    streams = [[frame for connection in reading for frame in connection] for _, reading in named]
    folded = fold_with_web(streams)
    assert fold_with_web(streams, "--reduce") == folded
    judged = fold_officially([reading for _, reading in named])
    for (name, _), frames, web, client in zip(named, streams, folded, judged, strict=True):
        expected = fold_frames(frames)
        assert {member: web[member] for member in FOLDED} == expected, f"{name}: reduce and Python"
        assert client == {"messages": expected["messages"], "state": expected["state"], "error": None}, (
            f"{name}: the official client and Python"
        )
        assert web["activities"] == fold_activities(frames), f"{name}: activities"
        assert (web["raw"], web["failedPatches"]) == ([], 0), name
    results = iter(folded)
    for name, readings in threads.items():
        whole, *cuts = [next(results) for _ in readings]
        assert [at for at, cut in enumerate(cuts, 1) if cut != whole] == [], (
            f"{name}: these readings differ from the first"
        )


def resume(frames: Connection, count: int) -> Connection:
    """What the server sends to a reader that has had so many frames: what is open is opened again."""
    start = max((at for at in range(count) if frames[at]["type"] == "RUN_STARTED"), default=count)
    reader = Repairer("thread", "run")
    for frame in frames[start:count]:
        reader.feed(msgspec.convert(frame, Event))
    is_open = start < count and frames[count - 1]["type"] not in ("RUN_FINISHED", "RUN_ERROR")
    opened = [frames[start], *plain(reader.reopening_events())] if is_open else []
    return [*opened, *frames[count:]]


def check_recordings(recordings: dict[str, Connection], long: bool) -> None:
    def cut(frames: Connection) -> list[Reading]:
        counts = range(1, len(frames) + 1, 1 if long else SOME)
        return [[frames[:count], resume(frames, count)] for count in counts]

    check({name: [[frames], *cut(frames)] for name, frames in recordings.items()})


def test_recorded_frames_of_every_framework_and_audience(long: bool) -> None:
    names = [(framework, audience) for framework in FRAMEWORKS for audience in AUDIENCES]
    recordings = {
        f"{framework}-{audience}": read_frames(framework, audience)["frames"] for framework, audience in names
    }
    assert {f"{name}.json" for name in recordings} == {path.name for path in (HERE / "frames").iterdir()}
    check_recordings(recordings, long)


def test_recorded_sessions_of_command_line_agents(long: bool) -> None:
    given = StateSnapshot(snapshot={"acp": {}})
    recorded = {f"{path.parent.name}/{path.stem}": translate_recording(path).events for path in FILES}
    sessions = {name: plain([started, given, *rest]) for name, (started, *rest) in recorded.items()}
    assert len(sessions) == len(list((HERE / "acp").glob("*/*"))) > 20
    check_recordings(sessions, long)


def test_recorded_output_of_commands(long: bool) -> None:
    started, finished = RunStarted(thread_id="t", run_id="r"), RunFinished(thread_id="t", run_id="r")
    outputs = {path.name: [started, *_translate(path.read_bytes()), finished] for path in sorted(LINES.iterdir())}
    assert len(outputs) >= 4
    check_recordings({name: plain(events) for name, events in outputs.items()}, long)


async def test_every_command_of_the_demo_agent_also_resumed(long: bool) -> None:
    assert set(TEXTS) == set(COMMANDS)
    threads = await read_demo_threads(1 if long else SOME)
    check({thread.name: [[thread.frames], *thread.readings()] for thread in threads})


async def test_facts_between_runs() -> None:
    """The official client takes events of runs only, so two reducers agree about the rest."""
    threads = {thread.name: thread.with_facts for thread in await read_demo_threads(1000)}
    for (name, frames), web in zip(threads.items(), fold_with_web(list(threads.values())), strict=True):
        assert {member: web[member] for member in FOLDED} == fold_frames(frames), name
        assert web["activities"] == fold_activities(frames), name
        assert web["state"]["patched"] is True, name


async def test_connects_single_runs_and_streams_without_snapshots() -> None:
    streams = await page_streams("1.0")
    frames = [[frame for run in stream.runs for frame in run] for stream in streams]
    for stream, thread, web in zip(streams, frames, fold_with_web(frames), strict=True):
        folded = fold_frames(thread)
        assert (web["messages"], web["state"]) == (stream.messages, stream.state), stream.name
        assert (folded["messages"], folded["state"]) == (stream.messages, stream.state), stream.name
        assert web["interrupts"] == folded["interrupts"], stream.name


async def test_streams_of_a_fork() -> None:
    streams = await fork_streams("1.0", "open")
    for stream, web in zip(streams, fold_with_web([stream.run for stream in streams]), strict=True):
        folded = fold_frames(stream.run)
        assert (web["messages"], web["state"]) == (stream.messages, stream.state), stream.name
        assert (folded["messages"], folded["state"]) == (stream.messages, stream.state), stream.name


@pytest.mark.parametrize("has_snapshots", [False, True])
def test_random_threads(long: bool, has_snapshots: bool) -> None:
    """Streams with everything open at once, some ended by errors. `test_official_reducer` shows them to the official client."""
    improvisers = [Improviser(random.Random(seed)) for seed in range(1000 if long else 100)]
    threads = [[one.turn() for _ in range(one.rng.randint(1, 3))] for one in improvisers]
    expected = [ours(turns) for turns in threads]
    scripts = [
        msgspec.json.decode(script(turns, snapshots if has_snapshots else None))
        for turns, snapshots in zip(threads, expected, strict=True)
    ]
    frames = [[event for run in each["runs"] for event in run["events"]] for each in scripts]
    for want, web in zip(expected, fold_with_web(frames), strict=True):
        assert (web["messages"], web["state"]) == (want[-1]["messages"], want[-1]["state"])
