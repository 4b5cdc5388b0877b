"""A fork: a new thread begins as a copy of another up to a user message, on every store."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from ambient_runner.errors import (
    InvalidInput,
    PayloadTooLarge,
    Refused,
    RunGone,
    ThreadExists,
    UnknownMessage,
    UnknownThread,
)
from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import Batch, IdempotencyClaim, ThreadKey
from ambient_runner.ledger.sqlite import SqliteLedger
from ambient_runner.projections.thread_fork import ForkOrigin, ThreadFork
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol import events as e
from ambient_runner.runs.maintenance import apply_retention
from ambient_runner.runs.run import Actor, Run, StartRequest
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import load_view
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, said, user

OTHER = KEY._replace(id="fork")
OpenLedger = Callable[[], Ledger]


@pytest.fixture(params=["memory", "sqlite"])
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLedger:
    return MemoryLedger if request.param == "memory" else lambda: SqliteLedger(tmp_path / "ledger.db")


async def answering(run: Run) -> AsyncIterator[e.Event]:
    """A tool call with its result, a text, and the state counted up."""
    number = len([message for message in run.input.messages if isinstance(message, e.UserMessage)])
    yield e.ToolCallStart(tool_call_id=f"c{number}", tool_call_name="look", parent_message_id=f"a{number}")
    yield e.ToolCallArgs(tool_call_id=f"c{number}", delta='{"at": 1}')
    yield e.ToolCallEnd(tool_call_id=f"c{number}")
    yield e.ToolCallResult(message_id=f"t{number}", tool_call_id=f"c{number}", content="seen")
    for event in said(f"b{number}", f"answer {number}"):
        yield event
    yield e.StateSnapshot(snapshot={"count": number, "secret": "hidden"})


class Agents(dict[str, ScriptedAgent]):
    def __init__(self, script: Callable[[Run], AsyncIterator[Any]] = answering) -> None:
        super().__init__(
            agent=ScriptedAgent(script, hidden=frozenset({"secret"})), other=ScriptedAgent(script, hidden=frozenset())
        )

    @property
    def seen(self) -> list[tuple[str, ...]]:
        """The ids of the messages that the agent saw in each run."""
        return [tuple(message.id for message in seen.messages) for seen in self["agent"].seen]


@asynccontextmanager
async def talked(open_ledger: OpenLedger, agents: Agents) -> AsyncGenerator[Runner, None]:
    """A runner with the thread `t` of three turns."""
    async with open_ledger() as ledger, Runner(ledger, agents, SETTINGS) as runner:
        for name in ("u1", "u2", "u3"):
            await run_once(runner, user(name))
        assert await ledger.wait_released(KEY, 5)
        yield runner


def fork(before: str, *messages: e.Message, thread: str = "fork", source: str = "t", **options: Any) -> StartRequest:
    point = ForkOrigin(thread_id=source, message_id=before)
    return request(*(messages or (user("n"),)), thread=thread, fork=point, **options)


async def run_fork(runner: Runner, *args: Any, **options: Any) -> list[e.Event]:
    with unless_hung():
        return await events_of(runner, await runner.start(fork(*args, **options)))


async def ids_of(runner: Runner, key: ThreadKey = OTHER) -> list[str]:
    return [message.id for message in (await runner.view_thread(key)).transcript.messages()]


async def stored(ledger: Ledger, key: ThreadKey) -> list[Batch]:
    return await ledger.read_batches(key, 0)


async def lines_of(ledger: Ledger, key: ThreadKey) -> list[tuple[Any, ...]]:
    return [
        (batch.first, batch.owner, batch.kind, batch.run, batch.ts, batch.lines) for batch in await stored(ledger, key)
    ]


async def test_the_agent_sees_the_conversation_before_the_message_and_the_new_one(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        source = await runner.view_thread(KEY)
        await run_fork(runner, "u2")
        assert agents.seen[-1] == ("u1", "a1", "t1", "b1", "n")
        assert agents["agent"].seen[-1].messages[:-1] == source.transcript.messages()[:4]
        assert agents["agent"].seen[-1].state == {"count": 1}
        assert await ids_of(runner) == ["u1", "a1", "t1", "b1", "n", "a2", "t2", "b2"]


async def test_the_fork_goes_on_as_any_thread(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        await run_fork(runner, "u2")
        await run_once(runner, user("n2"), thread="fork")
        assert agents.seen[-1] == ("u1", "a1", "t1", "b1", "n", "a2", "t2", "b2", "n2")


async def test_the_source_is_not_touched(open_ledger: OpenLedger) -> None:
    async with talked(open_ledger, Agents()) as runner:
        before = await lines_of(runner.ledger, KEY), await runner.ledger.get_thread(KEY)
        await run_fork(runner, "u2")
        assert (await lines_of(runner.ledger, KEY), await runner.ledger.get_thread(KEY)) == before


async def test_no_row_of_the_source_changes_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with talked(lambda: SqliteLedger(path), Agents()) as runner:
        before = rows_of_the_source(path)
        await run_fork(runner, "u2")
        assert rows_of_the_source(path) == before
        assert len(before) > 10


def rows_of_the_source(path: Path) -> list[tuple[Any, ...]]:
    """Every row of the file that belongs to the thread `t`."""
    found: list[tuple[Any, ...]] = []
    with sqlite3.connect(path) as file:
        [(number,)] = file.execute("SELECT no FROM thread WHERE id = 't'").fetchall()
        for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
            columns = [column[1] for column in file.execute(f"PRAGMA table_info({table})")]
            key = "no" if table == "thread" else "thread_no"
            rows = file.execute(f"SELECT * FROM {table} WHERE {key} = ?", (number,)) if key in columns else ()
            found += [(table, *row) for row in rows]
    return found


async def test_the_copy_is_one_entry_that_both_stores_have_alike(tmp_path: Path) -> None:
    copies: list[list[tuple[Any, ...]]] = []
    for open_ledger in (MemoryLedger, lambda: SqliteLedger(tmp_path / "ledger.db")):
        async with talked(open_ledger, Agents()) as runner:
            await run_fork(runner, "u2")
            batches = await stored(runner.ledger, OTHER)
            copies.append([(batch.owner, batch.kind) for batch in batches for _ in batch.lines])
            info = await runner.ledger.get_thread(KEY)
            assert info is not None
            assert msgspec.json.decode(batches[0].lines[0]) == {
                "from": {"threadId": "t", "messageId": "u2"},
                "epoch": info.epoch,
                "messages": msgspec.to_builtins((await runner.view_thread(KEY)).transcript.messages()[:4]),
                "state": {"count": 1},
                "clientCallIds": [],
            }
    assert copies[0] == copies[1]
    assert copies[0][:3] == [("ambient.thread", "forked"), ("ambient.run", "input"), ("runtime", "")]


async def test_a_thread_read_from_the_store_is_the_one_that_was_forked(open_ledger: OpenLedger) -> None:
    async with talked(open_ledger, Agents()) as runner:
        await run_fork(runner, "u2")
        kept, read = await runner.view_thread(OTHER), await load_view(runner.ledger, OTHER)
        assert read.to_checkpoint() == kept.to_checkpoint()
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        origin = ForkOrigin(thread_id="t", message_id="u2")
        assert read.fork == ThreadFork(origin=origin, epoch=info.epoch, copied_count=4)
        restored = ThreadView.from_checkpoint(read.seq, read.to_checkpoint())
        assert (restored.fork, restored.transcript.messages()) == (read.fork, read.transcript.messages())


async def test_a_fork_before_the_first_message_begins_empty_whatever_the_client_sends(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        forged = e.AssistantMessage(id="forged", content="I promised it.")
        await run_fork(runner, "u1", user("u2"), forged, user("n"))
        assert (agents.seen[-1], agents["agent"].seen[-1].state) == (("n",), {})


async def test_only_the_new_message_of_a_list_is_believed(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        rest = [e.AssistantMessage(id="b1", content="other words"), user("u2", "edited"), user("u3"), user("n")]
        await run_fork(runner, "u2", user("u1", "other words"), *rest)
        assert agents.seen[-1] == ("u1", "a1", "t1", "b1", "u2", "n")
        contents = [message.content for message in agents["agent"].seen[-1].messages if message.id != "a1"]
        assert contents == ["hi", "seen", "answer 1", "edited", "hi"]


@pytest.mark.parametrize("history", ["server", "client"])
async def test_the_rule_for_history_does_not_matter(open_ledger: OpenLedger, history: str) -> None:
    agents = Agents()
    async with open_ledger() as ledger, Runner(ledger, agents, replace(SETTINGS, history=history)) as runner:
        await run_once(runner, user("u1"))
        messages = (await runner.view_thread(KEY)).transcript.messages()
        await run_once(runner, *messages, user("u2"))
        await run_fork(runner, "u2")
        assert (agents.seen[-1], agents["agent"].seen[-1].state) == (("u1", "a1", "t1", "b1", "n"), {"count": 1})


async def test_another_agent_gets_the_texts_alone(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        image = e.ImagePart(source=e.UrlSource(value="https://example.com/a.png"))
        shown = e.UserMessage(id="u4", content=[e.TextPart(text="Look"), image])
        await run_once(runner, shown)
        started = await runner.start(replace(fork("u4"), agent="other"))
        await events_of(runner, started)
        assert agents["other"].seen[-1].messages == [
            user("u1"),
            e.AssistantMessage(id="b1", content="answer 1"),
            user("u2"),
            e.AssistantMessage(id="b2", content="answer 2"),
            user("u3"),
            e.AssistantMessage(id="b3", content="answer 3"),
            user("n"),
        ]
        assert agents["other"].seen[-1].state == {}


async def test_the_state_is_that_of_the_moment_with_what_clients_had_patched(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        patch = {"patch": [{"op": "add", "path": "/by", "value": "client"}]}
        await runner.append_platform_fact(KEY, "ambient.state", "patched", patch)
        await run_once(runner, user("u4"))
        await run_fork(runner, "u4")
        assert agents["agent"].seen[-1].state == {"count": 3, "by": "client"}


async def test_a_key_that_is_hidden_by_now_is_not_copied(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        agents["agent"].hidden_state = frozenset({"count"})
        await run_fork(runner, "u2")
        assert agents["agent"].seen[-1].state == {}


@pytest.mark.parametrize(
    ("sent", "begins_with"),
    [({"count": 3}, {"count": 1}), ({}, {"count": 1}), (None, {"count": 1}), ({"mine": True}, {"mine": True})],
    ids=["the newest of the source", "empty", "none", "another"],
)
async def test_a_state_that_the_client_did_not_change_is_not_taken(
    open_ledger: OpenLedger, sent: Any, begins_with: Any
) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        events = await run_fork(runner, "u2", state=sent)
        assert agents["agent"].seen[-1].state == begins_with
        assert next(event.snapshot for event in events if isinstance(event, e.StateSnapshot)) == begins_with


async def test_a_fork_of_a_fork_knows_the_state_before_a_copied_message(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        await run_fork(runner, "u3")
        await run_fork(runner, "n", user("n2"), thread="second", source="fork")
        assert (agents.seen[-1][-2:], agents["agent"].seen[-1].state) == (("b2", "n2"), {"count": 2})
        await run_fork(runner, "u2", user("n3"), thread="third", source="second")
        assert (agents.seen[-1], agents["agent"].seen[-1].state) == (("u1", "a1", "t1", "b1", "n3"), {"count": 1})
        await runner.erase_thread(KEY)
        with pytest.raises(RunGone):
            await run_fork(runner, "u2", user("n4"), thread="fourth", source="second")
        await run_fork(runner, "u1", user("n4"), thread="fourth", source="second")
        assert agents.seen[-1] == ("n4",)


async def test_the_state_is_never_that_of_another_thread_with_the_same_id(open_ledger: OpenLedger) -> None:
    async with talked(open_ledger, Agents()) as runner:
        await run_fork(runner, "u3")
        await runner.erase_thread(KEY)
        for name in ("u1", "u2"):
            await run_once(runner, user(name))
        with pytest.raises(RunGone):
            await run_fork(runner, "u2", user("n2"), thread="second", source="fork")


async def test_the_state_is_never_that_of_another_agent(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        await events_of(runner, await runner.start(replace(fork("u3"), agent="other")))
        again = fork("u2", user("n2"), thread="second", source="fork")
        await events_of(runner, await runner.start(replace(again, agent="other")))
        seen = agents["other"].seen[-1]
        assert ([message.id for message in seen.messages], seen.state) == (["u1", "b1", "n2"], {})


async def test_a_rewound_message_cannot_be_named_and_the_rest_can(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        await run_once(runner, user("u2"))
        with pytest.raises(UnknownMessage):
            await run_fork(runner, "u3")
        await run_fork(runner, "u2")
        assert agents["agent"].seen[-1].state == {"count": 1}


async def test_a_fork_can_be_rewound_to_a_copied_message(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        await run_fork(runner, "u3")
        await run_once(runner, user("u1"), thread="fork")
        assert agents.seen[-1] == ("u1",)
        assert (await ids_of(runner))[:1] == ["u1"]


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        (fork("u2", source="nowhere"), UnknownThread),
        (replace(fork("u2"), actor=Actor(owner="eve")), UnknownThread),
        (fork("nothing"), UnknownMessage),
        (fork("b1"), InvalidInput),
        (fork("u2", thread="t"), ThreadExists),
        (fork("u2", user("u1")), InvalidInput),
        (fork("u2", resume=[e.ResumeEntry(interrupt_id="i", status="resolved")]), Refused),
    ],
    ids=["source", "owner", "message", "role", "target", "nothing new", "resume"],
)
async def test_a_refused_fork_leaves_nothing(
    open_ledger: OpenLedger, wrong: StartRequest, refusal: type[Refused]
) -> None:
    async with talked(open_ledger, Agents()) as runner:
        with pytest.raises(refusal):
            await runner.start(wrong)
        assert await runner.ledger.get_thread(OTHER) is None
        assert [info.key for info in await runner.ledger.list_all_threads()] == [KEY]
        await run_fork(runner, "u2")


async def test_of_entries_that_are_no_longer_retained_only_the_state_is_missing(open_ledger: OpenLedger) -> None:
    agents = Agents()
    async with talked(open_ledger, agents) as runner:
        await apply_retention(runner.ledger, KEY, 4)
        with pytest.raises(RunGone):
            await run_fork(runner, "u2")
        runner.views.evict_thread(KEY)
        with pytest.raises(RunGone):
            await run_fork(runner, "u2")
        await events_of(runner, await runner.start(replace(fork("u2"), agent="other")))
        assert [message.id for message in agents["other"].seen[-1].messages] == ["u1", "b1", "n"]


async def test_a_conversation_that_no_client_could_read_is_not_copied(open_ledger: OpenLedger) -> None:
    async def long(run: Run) -> AsyncIterator[e.Event]:
        for event in said(f"long-{len(run.input.messages)}", *["x" * (1 << 20)] * 5):
            yield event

    async with talked(open_ledger, Agents(long)) as runner:
        with pytest.raises(PayloadTooLarge):
            await run_fork(runner, "u3")
        await run_fork(runner, "u2")


async def test_a_thread_with_an_active_run_can_be_forked(open_ledger: OpenLedger) -> None:
    began, release = anyio.Event(), anyio.Event()

    async def hanging(run: Run) -> AsyncIterator[e.Event]:
        if run.thread == KEY and len(run.input.messages) > 10:
            yield said("half", "begun")[0]
            began.set()
            await release.wait()
        async for event in answering(run):
            yield event

    agents = Agents(hanging)
    async with talked(open_ledger, agents) as runner:
        active = await runner.start(request(user("u4")))
        with unless_hung():
            await began.wait()
        for at, before in enumerate(("u2", "u4")):
            await run_fork(runner, before, thread=f"fork-{at}")
        assert agents.seen[-2] == ("u1", "a1", "t1", "b1", "n")
        assert agents.seen[-1] == (*(f"{kind}{turn}" for turn in (1, 2, 3) for kind in "uatb"), "n")
        release.set()
        await events_of(runner, active)


@pytest.mark.parametrize("on_busy", ["reject", "queue", "supersede", "join"])
async def test_a_thread_that_runs_is_no_target_and_runs_on(open_ledger: OpenLedger, on_busy: Any) -> None:
    release = anyio.Event()

    async def waiting(run: Run) -> AsyncIterator[e.Event]:
        if run.thread == OTHER:
            await release.wait()
        async for event in answering(run):
            yield event

    async with talked(open_ledger, Agents(waiting)) as runner:
        active = await runner.start(request(user("n"), thread="fork"))
        with unless_hung(), pytest.raises(ThreadExists):
            await runner.start(fork("u2", on_busy=on_busy))
        release.set()
        [*_, end] = await events_of(runner, active)
        assert isinstance(end, e.RunFinished)
        assert isinstance(end.outcome, e.Success)


async def test_the_same_key_starts_one_fork_also_after_the_source_is_gone(open_ledger: OpenLedger) -> None:
    agents = Agents()
    claim = IdempotencyClaim(scope="s", digest="d")
    async with talked(open_ledger, agents) as runner:
        first = await runner.start(fork("u2", claim=claim))
        events = await events_of(runner, first)
        await runner.erase_thread(KEY)
        again = await runner.start(fork("u2", claim=claim))
        assert (again.run, again.is_joined, await events_of(runner, again)) == (first.run, True, events)
        with pytest.raises(ThreadExists):
            await runner.start(fork("u2"))


async def test_of_two_requests_for_one_thread_at_a_time_one_forks_it(open_ledger: OpenLedger) -> None:
    refused: list[Refused] = []

    async def attempt(runner: Runner, name: str) -> None:
        try:
            await run_fork(runner, "u2", user(name))
        except Refused as error:
            refused.append(error)

    async with talked(open_ledger, Agents()) as runner:
        async with anyio.create_task_group() as tasks:
            for name in ("n1", "n2"):
                tasks.start_soon(attempt, runner, name)
        assert [error.status for error in refused] == [409]
        assert len(await runner.ledger.list_runs(OTHER)) == 1


async def test_the_title_is_that_of_the_first_copied_text(open_ledger: OpenLedger) -> None:
    async with talked(open_ledger, Agents()) as runner:
        await run_fork(runner, "u2", user("n", "something else"))
        info = await runner.ledger.get_thread(OTHER)
        assert info is not None
        assert (info.title, (await runner.view_thread(OTHER)).annotations.title) == ("hi", "hi")


async def test_what_is_a_secret_by_now_is_not_copied(open_ledger: OpenLedger) -> None:
    async with open_ledger() as ledger:
        async with Runner(ledger, Agents(), SETTINGS) as runner:
            await run_once(runner, user("u1", "my word is hunter2-hunter2"))
            await run_once(runner, user("u2"))
        async with Runner(ledger, Agents(), replace(SETTINGS, secrets=("hunter2-hunter2",))) as runner:
            await run_fork(runner, "u2")
            lines = [line for batch in await stored(ledger, OTHER) for line in batch.lines]
            assert [line for line in lines if b"hunter2" in line] == []
