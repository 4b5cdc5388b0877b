"""An adapter's memory: the next run receives it, and clients never do."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ambient_runner.bridges.base import remember
from ambient_runner.errors import RunInterrupted
from ambient_runner.ledger import open_ledger
from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.private_entries import MEMORY_EVENT, is_private_line
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import (
    AssistantMessage,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    ResumeEntry,
    RunAgentInput,
    RunError,
    RunStarted,
    UserMessage,
    encode_event,
)
from ambient_runner.runs.maintenance import apply_retention
from ambient_runner.runs.run import Middleware, Run, RunHandler, current_run
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, runner_of, said, user

SECRET = "sk-live-0123456789"


def deep(levels: int) -> Any:
    value: Any = SECRET
    for _ in range(levels):
        value = [value]
    return value


class Remembering(ScriptedAgent):
    """Remembers `values[n]` in run n, if there is one, and notes what it found."""

    def __init__(self, *values: Any, middleware: tuple[Middleware, ...] = ()) -> None:
        super().__init__(self._talk, middleware=middleware)
        self.found: list[Any] = []
        self._values = list(values)

    async def _talk(self, run: Run) -> AsyncGenerator[Any, None]:
        self.found.append(current_run().memory)
        yield said("m-" + run.key, "hi")[0]
        for value in self._values.pop(0) if self._values else ():
            yield remember(value)
        for event in said("m-" + run.key, "hi")[1:]:
            yield event


async def lines_of(runner: Runner) -> list[bytes]:
    return [
        line for batch in await runner.ledger.read_batches(KEY, 0) if batch.owner == RUNTIME for line in batch.lines
    ]


async def test_the_next_run_finds_what_was_remembered_last() -> None:
    agent = Remembering(["first", {"n": [1]}], [], [None])
    async with runner_of(agent) as runner:
        for name in ("u1", "u2", "u3", "u4"):
            await run_once(runner, user(name))
    assert agent.found == [None, {"n": [1]}, {"n": [1]}, None]


async def test_a_run_that_changes_its_memory_object_does_not_change_the_stored_one() -> None:
    agent = Remembering([{"n": [1]}])
    async with runner_of(agent) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
        agent.found[-1]["n"].append(2)
        await run_once(runner, user("u3"))
    assert agent.found[-1] == {"n": [1]}


async def test_readers_of_a_run_do_not_receive_it_but_it_is_in_the_ledger() -> None:
    agent = Remembering(["private"])
    async with runner_of(agent) as runner:
        events = await run_once(runner, user("u1"))
        kinds = [is_private_line(line) for line in await lines_of(runner)]
    assert not any(isinstance(event, Custom) for event in events)
    assert kinds == [False, False, True, False, False, False, False]


async def test_another_thread_has_another_memory() -> None:
    agent = Remembering(["mine"])
    async with runner_of(agent) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u1"), thread="other")
    assert agent.found == [None, None]


async def test_secrets_are_not_remembered() -> None:
    agent = Remembering([{"key": f"Bearer {SECRET}", SECRET: [SECRET]}])
    async with runner_of(agent, dataclasses.replace(SETTINGS, secrets=(SECRET,))) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
        stored = b"".join(await lines_of(runner))
    assert agent.found[-1] == {"key": f"Bearer {REDACTED}", REDACTED: [REDACTED]}
    assert SECRET.encode() not in stored


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x" * (9 << 20), "too_large"),
        (object(), "not_encodable"),
        (deep(200), "too_deep"),
        (deep(900), "too_deep"),
        ({"a": (1,)}, None),
    ],
    ids=["large", "no JSON", "deep", "very deep", "JSON"],
)
async def test_a_value_that_cannot_be_stored_is_announced_and_the_run_continues(value: Any, reason: str | None) -> None:
    agent = Remembering(["before"], [value])
    async with runner_of(agent, dataclasses.replace(SETTINGS, secrets=(SECRET,))) as runner:
        await run_once(runner, user("u1"))
        events = await run_once(runner, user("u2"))
        await run_once(runner, user("u3"))
    dropped = [event.value for event in events if isinstance(event, Custom)]
    assert dropped == ([{"type": "CUSTOM", "reason": reason}] if reason else [])
    assert (agent.found[-1] == "before") is (reason is not None)


async def test_lone_surrogates_do_not_lose_the_memory() -> None:
    agent = Remembering([{"a": "x\ud800y"}])
    async with runner_of(agent) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
    assert agent.found[-1] == {"a": "x?y"}


async def test_a_run_that_fails_has_still_remembered() -> None:
    found: list[Any] = []

    async def fail(run: Run) -> AsyncGenerator[Any, None]:
        found.append(run.memory)
        yield remember(len(found))
        raise ValueError

    async with runner_of(ScriptedAgent(fail)) as runner:
        events = await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
    assert isinstance(events[-1], RunError)
    assert found == [None, 1]


def forging(handler: RunHandler) -> RunHandler:
    """Says that it remembers something, before and after everything."""

    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        async for event in handler(run):
            yield remember("forged")
            yield event

    return handle


def losing(handler: RunHandler) -> RunHandler:
    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        async for event in handler(run):
            if not isinstance(event, Custom):
                yield event

    return handle


def changing(handler: RunHandler) -> RunHandler:
    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        async for event in handler(run):
            yield msgspec.structs.replace(event, value="changed") if isinstance(event, Custom) else event

    return handle


@pytest.mark.parametrize("wrap", [forging, losing, changing])
@pytest.mark.parametrize("own", [True, False], ids=["the bridge's", "the server's"])
async def test_middleware_can_neither_create_nor_change_nor_drop_a_memory(wrap: Middleware, own: bool) -> None:
    agent = Remembering(["mine"], middleware=(wrap,) if own else ())
    async with runner_of(agent, middleware=() if own else (wrap,)) as runner:
        events = await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
    assert not any(isinstance(event, Custom) for event in events)
    assert agent.found == [None, "mine"]


async def test_middleware_sees_it_pass() -> None:
    seen: list[Any] = []

    def watching(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            async for event in handler(run):
                seen.extend([event.value] if isinstance(event, Custom) else [])
                yield event

        return handle

    async with runner_of(Remembering(["mine"]), middleware=[watching]) as runner:
        await run_once(runner, user("u1"))
    assert seen == ["mine"]


async def test_a_rewind_restores_the_memory_before_the_removed_runs() -> None:
    agent = Remembering(["one"], ["two"], ["three"], [], [])
    async with runner_of(agent) as runner:
        for name in ("u1", "u2", "u3"):
            await run_once(runner, user(name))
        await run_once(runner, user("u1"), user("u2"))
        await run_once(runner, user("u1"))
        await run_once(runner, user("u1"), user("u4"))
    assert agent.found == [None, "one", "two", "one", None, None]


async def test_the_memory_of_a_rewound_run_counts_from_then_on() -> None:
    agent = Remembering(["one"], ["two"], ["again"], [])
    async with runner_of(agent) as runner:
        for messages in ([user("u1")], [user("u2")], [user("u1")], [user("u3")]):
            await run_once(runner, *messages)
    assert agent.found == [None, "one", None, "again"]


async def test_a_client_with_its_own_history_that_rewrites_it_resets_the_memory() -> None:
    agent = Remembering(["one"], [], [])
    async with runner_of(agent, dataclasses.replace(SETTINGS, history="client")) as runner:
        await run_once(runner, user("u1"))
        answer = (await runner.view_thread(KEY)).transcript.messages()[-1]
        await run_once(runner, user("u1"), answer, user("u2"))
        await run_once(runner, user("u1"), AssistantMessage(id="x", content="no"), user("u2"))
    assert agent.found == [None, "one", None]


async def test_it_outlives_the_entries_that_held_it() -> None:
    agent = Remembering(["one"], ["two"])
    async with runner_of(agent) as runner:
        for turn in range(6):
            await run_once(runner, user(f"u{turn}"))
        assert await apply_retention(runner.ledger, KEY, 5)
        runner.views.evict_thread(KEY)
        assert not any(is_private_line(line) for line in await lines_of(runner))
        await run_once(runner, user("u6"))
        await run_once(runner, *(user(f"u{turn}") for turn in range(2)))
        assert agent.found[-2:] == ["two", "one"]


async def test_it_outlives_the_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/a.db"
    agent = Remembering([{"n": 1}])
    for name in ("u1", "u2"):
        async with open_ledger(store, lease=5) as ledger, Runner(ledger, {"agent": agent}, SETTINGS) as runner:
            with unless_hung():
                await run_once(runner, user(name))
    assert agent.found == [None, {"n": 1}]


async def test_it_is_erased_with_the_thread() -> None:
    agent = Remembering(["one"])
    async with runner_of(agent) as runner:
        await run_once(runner, user("u1"))
        await runner.erase_thread(KEY)
        await run_once(runner, user("u1"))
    assert agent.found == [None, None]


async def test_remembering_is_no_action_so_it_consumes_no_answer() -> None:
    found: list[Any] = []

    async def ask(run: Run) -> AsyncGenerator[Any, None]:
        found.append(run.memory)
        yield remember(len(found))
        if run.input.resume is None:
            raise RunInterrupted([Interrupt(id="i", reason="confirmation")])
        raise ValueError

    async with runner_of(ScriptedAgent(ask)) as runner:
        await run_once(runner, user("u1"))
        answer = ResumeEntry(interrupt_id="i", status="resolved")
        for _ in range(2):
            events = await run_once(runner, resume=[answer])
            assert isinstance(events[-1], RunError)
    assert found == [None, 1, 2]


def test_it_is_part_of_a_checkpoint_in_the_middle_of_a_run() -> None:
    view = ThreadView()
    for event in (RunStarted(thread_id="t", run_id="r"), remember({"at": 1})):
        view.apply_event("k", event)
    assert ThreadView.from_checkpoint(1, view.to_checkpoint()).memory == {"at": 1}
    assert view.copy().memory == {"at": 1}


def folded(count: int, size: int) -> ThreadView:
    """So many runs that remember something of that size."""
    view = ThreadView()
    for n in range(count):
        run_input = RunAgentInput(thread_id="t", run_id="r", messages=[UserMessage(id=f"u{n}", content="")])
        events = [RunStarted(thread_id="t", run_id="r", input=run_input), remember([n, "x" * size])]
        lines = [encode_event(event) for event in events]
        view.apply(Batch(first=view.seq + 1, owner=RUNTIME, kind="", run=f"k{n}", ts=0, lines=lines))
    return view


@pytest.mark.parametrize(("size", "count"), [(10, 16), (300_000, 4)])
def test_a_bounded_number_of_earlier_memories_is_stored_for_a_rewind(size: int, count: int) -> None:
    view = folded(40, size)
    values = [view.rewound_to(f"u{40 - back}").memory for back in range(1, 40)]
    assert [value[0] for value in values if value] == [38 - n for n in range(count - 1)]


def test_a_checkpoint_written_before_there_was_memory_can_be_read() -> None:
    old = msgspec.json.decode(folded(1, 1).to_checkpoint())
    del old["memories"], old["anchor"]
    assert ThreadView.from_checkpoint(1, msgspec.json.encode(old)).memory is None


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Custom(name=MEMORY_EVENT, value=1), True),
        (lambda: Custom(name="x", value={"type": "CUSTOM", "name": MEMORY_EVENT, "value": 1}), False),
        (lambda: Custom(name=MEMORY_EVENT + "x", value=1), False),
        (lambda: MessagesSnapshot(messages=[]), False),
    ],
)
def test_a_stored_memory_is_distinguished_from_other_events_by_its_bytes(
    make: Callable[[], Event], expected: bool
) -> None:
    assert is_private_line(encode_event(make())) is expected
