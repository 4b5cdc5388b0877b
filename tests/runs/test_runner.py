from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import msgspec
import pytest

from ambient_runner.config import Timeouts
from ambient_runner.errors import (
    AgentMismatch,
    BridgeUnavailable,
    ConfigError,
    Draining,
    IdempotencyConflict,
    NoActiveRun,
    PendingInterrupts,
    RunInterrupted,
    ServiceError,
    ThreadBusy,
    UnknownAgent,
    UnknownThread,
)
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Fact, IdempotencyClaim, ThreadKey
from ambient_runner.protocol.events import (
    BaseEvent,
    Cancelled,
    Custom,
    Event,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    ResumeEntry,
    RunError,
    RunFinished,
    RunStarted,
    StateSnapshot,
    Success,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Tool,
    ToolCallEnd,
    ToolCallStart,
    ToolMessage,
    UserMessage,
    encode_event,
    type_of,
)
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.run import ResumedRun, Run, RunHandler, SpanRef, Started, current_run
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, said, user

SNAPSHOT = MessagesSnapshot(messages=[])
INTERRUPT = Interrupt(id="i1", reason="confirmation")


def bare(events: list[Event]) -> list[Event]:
    """Without what differs from run to run: the times."""
    return [msgspec.structs.replace(event, timestamp=None) for event in events]


def types(events: list[Event]) -> list[str]:
    return [type_of(event) for event in events]


def verified(events: list[Event]) -> list[Event]:
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()
    return events


async def hello(run: Run) -> AsyncGenerator[Any, None]:
    for event in said("m-" + run.key, "hel", "lo"):
        yield event


async def forever(run: Run) -> AsyncGenerator[Any, None]:
    yield TextMessageStart(message_id="m-" + run.key)
    yield TextMessageContent(message_id="m-" + run.key, delta="…")
    await anyio.sleep_forever()


async def started_talking(runner: Runner, **options: Any) -> Any:
    """A run of `forever` whose first delta has been written."""
    started = await runner.start(request(user(options.pop("message", "u1")), **options))
    async with runner.ledger.tail(started.thread, started.after) as tail:
        with unless_hung():
            while not any(b"CONTENT" in line for batch in await tail.next_batches() for line in batch.lines):
                pass
    return started


async def test_a_run_is_framed_whatever_the_agent_yields() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert types(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert bare(events)[-2:] == [SNAPSHOT, RunFinished(thread_id="t", run_id="r", outcome=Success())]


async def test_an_agents_own_frame_is_absorbed_and_its_result_used() -> None:
    async def talkative(run: Run) -> AsyncGenerator[Any, None]:
        yield RunStarted(thread_id="other", run_id="other")
        yield MessagesSnapshot(messages=[user("forged")])
        yield RunFinished(thread_id="other", run_id="other", result={"answer": 42})

    async with runner_of(ScriptedAgent(talkative)) as runner:
        events = await run_once(runner, user("u1"))
    assert types(events) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert bare(events)[1:] == [
        SNAPSHOT,
        RunFinished(thread_id="t", run_id="r", outcome=Success(), result={"answer": 42}),
    ]


async def test_run_started_comes_first_even_when_set_up_fails_and_the_client_learns_nothing_secret() -> None:
    async def broken(run: Run) -> AsyncGenerator[Any, None]:
        raise RuntimeError("password hunter2 in /etc/secret")
        yield

    async with runner_of(ScriptedAgent(broken)) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert types(events) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_ERROR"]
    assert b"hunter2" not in b"".join(encode_event(event) for event in events)


async def test_our_own_errors_reach_the_client_by_name() -> None:
    async def missing(run: Run) -> AsyncGenerator[Any, None]:
        raise BridgeUnavailable('pip install "thing"')
        yield

    async with runner_of(ScriptedAgent(missing)) as runner:
        events = await run_once(runner, user("u1"))
    assert bare(events)[-1] == RunError(message='pip install "thing"', code="agent_unavailable")


async def test_a_crash_in_the_middle_closes_open_items() -> None:
    async def crashing(run: Run) -> AsyncGenerator[Any, None]:
        yield TextMessageStart(message_id="m1")
        yield ToolCallStart(tool_call_id="c1", tool_call_name="f")
        raise ValueError

    async with runner_of(ScriptedAgent(crashing)) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert bare(events)[-4:-1] == [ToolCallEnd(tool_call_id="c1"), TextMessageEnd(message_id="m1"), SNAPSHOT]


async def test_a_stop_ends_the_run_as_cancelled() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        started = await started_talking(runner)
        with unless_hung():
            await runner.stop(KEY)
            events = verified(await events_of(runner, started))
    assert bare(events)[-1] == RunFinished(thread_id="t", run_id="r", outcome=Cancelled())


async def test_stopping_twice_or_after_the_end_is_answered_plainly() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        with pytest.raises(UnknownThread):
            await runner.stop(KEY)
        await run_once(runner, user("u1"))
        with unless_hung():
            await runner.ledger.wait_released(KEY, 5)
        with pytest.raises(NoActiveRun):
            await runner.stop(KEY)


async def test_a_stop_that_the_agent_obeys_by_itself_is_still_a_cancellation() -> None:
    async def polite(run: Run) -> AsyncGenerator[Any, None]:
        yield TextMessageStart(message_id="m1")
        yield TextMessageContent(message_id="m1", delta="…")
        await run.stopping.wait()
        yield TextMessageContent(message_id="m1", delta="bye")

    class Polite(ScriptedAgent):
        async def interrupt(self, run: Run) -> bool:
            return True

    async with runner_of(Polite(polite)) as runner:
        started = await started_talking(runner)
        with unless_hung():
            await runner.stop(KEY)
            events = verified(await events_of(runner, started))
    assert TextMessageContent(message_id="m1", delta="bye") in bare(events)
    assert bare(events)[-1] == RunFinished(thread_id="t", run_id="r", outcome=Cancelled())


@pytest.mark.parametrize("limits", [Timeouts(idle=0.05), Timeouts(total=0.05)], ids=["idle", "total"])
async def test_an_agent_that_takes_too_long_is_a_timeout(limits: Timeouts) -> None:
    async with runner_of(ScriptedAgent(forever), dataclasses.replace(SETTINGS, timeouts=limits)) as runner:
        with unless_hung():
            events = verified(await run_once(runner, user("u1")))
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "agent_timeout"


async def test_a_busy_thread_is_refused_and_the_run_continues() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        started = await started_talking(runner)
        with runner.track_reader(KEY, started.run), pytest.raises(ThreadBusy):
            await runner.start(request(user("u2")))
        await runner.stop(KEY)
        assert types(await events_of(runner, started))[-1] == "RUN_FINISHED"


async def test_a_post_whose_message_the_run_already_has_joins_it() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        first = await started_talking(runner)
        again = await runner.start(request(user("u1")))
    assert (again.run, again.after, again.is_joined) == (first.run, first.after, True)


async def test_a_newer_message_supersedes_a_run_without_readers() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        first = await started_talking(runner)
        with runner.track_reader(KEY, first.run):
            pass
        with unless_hung():
            second = await runner.start(request(user("u2")))
            assert bare(await events_of(runner, first))[-1] == RunFinished(
                thread_id="t", run_id="r", outcome=Cancelled()
            )
    assert second.run != first.run


async def test_a_reader_of_an_earlier_run_that_leaves_does_not_expose_the_new_run() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        first = await started_talking(runner)
        with runner.track_reader(KEY, first.run):
            await runner.stop(KEY)
            await events_of(runner, first)
            second = await runner.start(request(user("u2")))
        with runner.track_reader(KEY, second.run), pytest.raises(ThreadBusy):
            await runner.start(request(user("u3")))
        await runner.stop(KEY)


async def test_a_run_is_not_superseded_while_someone_follows_the_thread() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        first = await started_talking(runner)
        with runner.track_reader(KEY, first.run):
            pass
        with runner.track_reader(KEY), pytest.raises(ThreadBusy):
            await runner.start(request(user("u2")))
        await runner.stop(KEY)


async def test_a_message_that_supersedes_a_run_does_not_stop_the_run_after_it() -> None:
    """Two newer messages wait for the run without readers to end: one gets the thread, the other is refused."""
    results: list[Started | ThreadBusy] = []

    async with runner_of(ScriptedAgent(forever)) as runner:
        first = await started_talking(runner)
        with runner.track_reader(KEY, first.run):
            pass

        async def start(message: UserMessage) -> None:
            try:
                results.append(await runner.start(request(message)))
            except ThreadBusy as refusal:
                results.append(refusal)

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start, user("u2"))
                tasks.start_soon(start, user("u3"))
        info = await runner.ledger.get_thread(KEY)
        started = [result.run for result in results if isinstance(result, Started)]
        assert info is not None
        assert [info.active] == started
        await runner.stop(KEY)


@pytest.mark.parametrize("policy", ["queue", "supersede"])
async def test_a_request_that_waits_gets_the_thread_when_it_is_free(policy: Any) -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        first = await started_talking(runner)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_start_quietly, runner, policy)
            if policy == "queue":
                await _until_queued(runner)
                await runner.stop(KEY)
            with unless_hung():
                assert types(await events_of(runner, first))[-1] == "RUN_FINISHED"
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        assert info.active not in {"", first.run}


async def _start_quietly(runner: Runner, policy: Any) -> None:
    await runner.start(request(user("u2"), on_busy=policy))


async def _until_queued(runner: Runner) -> None:
    with unless_hung():
        while (info := await runner.ledger.get_thread(KEY)) is None or not info.queued:
            await anyio.lowlevel.checkpoint()


async def test_join_streams_the_run_that_is_there() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        first = await started_talking(runner)
        joined = await runner.start(request(user("u2"), on_busy="join"))
    assert joined.run == first.run


async def test_the_same_key_and_body_is_one_run_and_another_body_is_refused() -> None:
    claim = IdempotencyClaim(scope="me", digest="a")
    async with runner_of(ScriptedAgent(hello)) as runner:
        first = await runner.start(request(user("u1"), claim=claim))
        await events_of(runner, first)
        again = await runner.start(request(user("u1"), claim=claim))
        with pytest.raises(IdempotencyConflict):
            await runner.start(request(user("u1"), claim=IdempotencyClaim(scope="me", digest="b")))
    assert (again.run, again.is_joined) == (first.run, True)


async def test_two_requests_with_one_key_at_once_are_one_run() -> None:
    claim = IdempotencyClaim(scope="me", digest="a")
    runs: list[str] = []

    async def post(runner: Runner) -> None:
        runs.append((await runner.start(request(user("u1"), claim=claim))).run)

    async with runner_of(ScriptedAgent(hello)) as runner:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(post, runner)
    assert len(runs) == 8
    assert len(set(runs)) == 1


async def test_an_interrupt_ends_the_run_and_the_answer_resumes_it() -> None:
    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        if run.input.resume is None:
            raise RunInterrupted([INTERRUPT])
        for event in said("m1", "thanks"):
            yield event

    agent = ScriptedAgent(asking)
    async with runner_of(agent) as runner:
        interrupted = await run_once(runner, user("u1"))
        with pytest.raises(PendingInterrupts):
            await run_once(runner, user("u2"))
        answer = ResumeEntry(interrupt_id="i1", status="resolved", payload={"approved": True})
        resumed = await run_once(runner, resume=[answer])
        view = await runner.view_thread(KEY)
    assert bare(interrupted)[-1] == RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[INTERRUPT]))
    assert types(resumed)[-1] == "RUN_FINISHED"
    assert agent.seen[-1].resume == [answer]
    assert view.open_interrupts == {}


async def test_a_run_knows_which_one_it_resumes_and_under_which_trace() -> None:
    runs: list[Run] = []

    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        runs.append(run)
        if run.input.resume is None and len(runs) == 1:
            raise RunInterrupted([INTERRUPT])
        for event in said(f"m{len(runs)}", "thanks"):
            yield event

    async with runner_of(ScriptedAgent(asking)) as runner:
        await run_once(runner, user("u1"), caller=SpanRef(trace_id="a" * 32, span_id="b" * 16))
        await run_once(runner, resume=[ResumeEntry(interrupt_id="i1", status="resolved")])
        await run_once(runner, user("u2"))
    assert [run.resumes for run in runs] == [None, ResumedRun(run=runs[0].key, trace_id="a" * 32), None]


async def test_a_secret_added_during_a_run_is_not_written_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    async def leaking(run: Run) -> AsyncGenerator[Any, None]:
        run.secrets.add(["fetched-token"])
        for event in said("m1", "it is fetched-", "token"):
            yield event
        raise ConnectionError("fetched-token")

    async with runner_of(ScriptedAgent(leaking)) as runner:
        await run_once(runner, user("u1"))
        stored = b"".join(line for batch in await runner.ledger.read_batches(KEY, 0) for line in batch.lines)
    assert b"fetched-token" not in stored
    assert b"[redacted]" in stored
    assert "fetched-token" not in caplog.text


async def test_announced_events_come_right_after_the_start() -> None:
    def announce(run: Run) -> list[Custom]:
        return [Custom(name="ambient:trace_id", value={"traceId": run.trace_id})]

    async with (
        MemoryLedger() as ledger,
        Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS, announce=announce) as runner,
    ):
        events = await run_once(runner, user("u1"), caller=SpanRef(trace_id="a" * 32, span_id="b" * 16))
    assert bare(events)[1] == Custom(name="ambient:trace_id", value={"traceId": "a" * 32})
    assert types(events)[:3] == ["RUN_STARTED", "CUSTOM", "TEXT_MESSAGE_START"]


async def test_on_erase_is_called_for_an_erased_thread() -> None:
    erased: list[ThreadKey] = []

    async def erase(key: ThreadKey) -> None:
        erased.append(key)

    async with (
        MemoryLedger() as ledger,
        Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS, on_erase=[erase]) as runner,
    ):
        await run_once(runner, user("u1"))
        await runner.erase_thread(KEY)
    assert erased == [KEY]


async def test_an_error_of_ours_from_on_erase_is_raised_after_everything_else_is_erased() -> None:
    erased: list[ThreadKey] = []

    async def fail(key: ThreadKey) -> None:
        raise ServiceError("The files are still there.")

    async def crash(key: ThreadKey) -> None:
        raise ValueError("a bug")

    async def erase(key: ThreadKey) -> None:
        erased.append(key)

    async with (
        MemoryLedger() as ledger,
        Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS, on_erase=[crash, fail, erase]) as runner,
    ):
        await run_once(runner, user("u1"))
        with pytest.raises(ServiceError):
            await runner.erase_thread(KEY)
        assert await ledger.get_thread(KEY) is None
    assert erased == [KEY]


async def test_a_resumed_run_that_fails_before_it_acts_leaves_the_interrupt_open() -> None:
    tries: list[str] = []

    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        if run.input.resume is None:
            raise RunInterrupted([INTERRUPT])
        tries.append(run.key)
        if len(tries) == 1:
            raise ConnectionError
        for event in said("m1", "done"):
            yield event

    answer = ResumeEntry(interrupt_id="i1", status="resolved")
    async with runner_of(ScriptedAgent(asking)) as runner:
        await run_once(runner, user("u1"))
        failed = await run_once(runner, resume=[answer])
        again = await run_once(runner, resume=[answer])
    assert types(failed)[-1] == "RUN_ERROR"
    assert types(again)[-1] == "RUN_FINISHED"


async def test_a_client_tool_call_stays_pending_and_the_next_run_accepts_its_result() -> None:
    async def painting(run: Run) -> AsyncGenerator[Any, None]:
        if isinstance(run.input.messages[-1], ToolMessage):
            return
        yield ToolCallStart(tool_call_id="c1", tool_call_name="paint", parent_message_id="a1")
        yield ToolCallEnd(tool_call_id="c1")

    paint = Tool(name="paint", description="")
    result = ToolMessage(id="x1", tool_call_id="c1", content="red")
    agent = ScriptedAgent(painting)
    async with runner_of(agent) as runner:
        first = await run_once(runner, user("u1"), tools=[paint])
        await run_once(runner, result, tools=[paint])
    assert bare(first)[-1] == RunFinished(thread_id="t", run_id="r", outcome=Success(pending_tool_call_ids=["c1"]))
    assert agent.seen[1].messages[-1] == result


async def test_the_agent_sees_the_whole_conversation_although_the_client_sent_only_the_newest() -> None:
    agent = ScriptedAgent(hello)
    async with runner_of(agent) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
    assert [message.id[:1] for message in agent.seen[1].messages] == ["u", "m", "u"]


async def test_state_is_shared_and_hidden_keys_are_neither_sent_nor_accepted() -> None:
    async def stating(run: Run) -> AsyncGenerator[Any, None]:
        yield StateSnapshot(snapshot={"a": 1, "secret": 2, "messages": ["x"]})

    agent = ScriptedAgent(stating, hidden=frozenset({"secret"}))
    async with runner_of(agent) as runner:
        first = await run_once(runner, user("u1"))
        await run_once(runner, user("u2"), state={"a": 5, "secret": 6})
    assert StateSnapshot(snapshot={"a": 1}) in bare(first)
    assert agent.seen[1].state == {"a": 5}


async def test_secrets_are_redacted_before_anything_is_written_also_when_split() -> None:
    async def leaking(run: Run) -> AsyncGenerator[Any, None]:
        for event in said("m1", "the key is sk-12", "345678", "90 ok"):
            yield event

    settings = dataclasses.replace(SETTINGS, secrets=("sk-1234567890",))
    async with runner_of(ScriptedAgent(leaking), settings) as runner:
        await run_once(runner, user("u1", "my key is sk-1234567890"))
        stored = b"".join(line for batch in await runner.ledger.read_batches(KEY, 0) for line in batch.lines)
        view = await runner.view_thread(KEY)
    assert b"sk-1234567890" not in stored
    assert msgspec.to_builtins(view.transcript.messages())[-1]["content"] == "the key is [redacted] ok"


async def test_a_value_that_cannot_be_encoded_is_dropped_and_the_run_continues() -> None:
    async def poison(run: Run) -> AsyncGenerator[Any, None]:
        yield Custom(name="x", value=object())
        for event in said("m1", "fine \ud83d", " on"):
            yield event

    async with runner_of(ScriptedAgent(poison)) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert Custom(name="ambient:dropped", value={"type": "CUSTOM", "reason": "not_encodable"}) in bare(events)
    assert TextMessageContent(message_id="m1", delta="fine ?") in bare(events)
    assert types(events)[-1] == "RUN_FINISHED"


async def test_something_that_is_not_an_event_ends_the_run_as_a_violation() -> None:
    async def wrong(run: Run) -> AsyncGenerator[Any, None]:
        yield 42

    async with runner_of(ScriptedAgent(wrong)) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "protocol_violation"


async def test_middleware_sees_the_whole_frame_and_cannot_skip_redaction() -> None:
    seen: list[str] = []

    def watching(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            async for event in handler(run):
                seen.append(type_of(event))
                yield event
            yield Custom(name="late", value="sk-1234567890")

        return handle

    settings = dataclasses.replace(SETTINGS, secrets=("sk-1234567890",))
    async with runner_of(ScriptedAgent(hello), settings, middleware=[watching]) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert (seen[0], seen[-1]) == ("RUN_STARTED", "RUN_FINISHED")
    assert Custom(name="late", value="[redacted]") in bare(events)


async def test_a_terminal_event_that_middleware_swallowed_is_supplied_as_a_success() -> None:
    def swallowing(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            async for event in handler(run):
                if not isinstance(event, RunFinished):
                    yield event

        return handle

    async with runner_of(ScriptedAgent(hello), middleware=[swallowing]) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert bare(events)[-1] == RunFinished(thread_id="t", run_id="r", outcome=Success())


async def test_current_run_is_known_inside_an_agent() -> None:
    found: list[str] = []

    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        found.append(current_run().key)
        return
        yield BaseEvent()

    async with runner_of(ScriptedAgent(asking)) as runner:
        started = await runner.start(request(user("u1")))
        await events_of(runner, started)
    assert found == [started.run]


async def test_all_abandoned_runs_are_closed_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ambient_runner.runs.maintenance._RECOVERY_BATCH", 2)
    async with MemoryLedger() as ledger:
        for number in range(5):
            async with await ledger.acquire_lease(KEY._replace(id=f"t{number}"), f"dead-{number}") as writer:
                started = _fact(RunStarted(thread_id=f"t{number}", run_id="r"))
                await writer.begin_run([started], run_id="r", agent="agent", claim=None)
        async with Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS):
            assert await ledger.list_abandoned_runs() == []


async def test_an_abandoned_run_is_closed_by_the_next_server(caplog: pytest.LogCaptureFixture) -> None:
    ledger = MemoryLedger()
    async with ledger:
        writer = await ledger.acquire_lease(KEY, "dead")
        async with writer:
            await writer.begin_run(
                [_fact(RunStarted(thread_id="t", run_id="r")), _fact(TextMessageStart(message_id="m1"))],
                run_id="r",
                agent="agent",
                claim=None,
            )
        async with Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS) as runner:
            info = await ledger.get_run(KEY, "dead")
            assert info is not None
            batches = await ledger.read_batches(KEY, 2)
            events = await run_once(runner, user("u2"))
    lines = [line for batch in batches for line in batch.lines]
    assert [line.split(b'"')[3] for line in lines] == [b"TEXT_MESSAGE_END", b"MESSAGES_SNAPSHOT", b"RUN_ERROR"]
    assert b"run_abandoned" in lines[-1]
    assert types(events)[-1] == "RUN_FINISHED"
    (logged,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert logged.args == ("dead", "agent", "t", "local", "r")
    assert context_of(logged) == ("dead", "t", "agent")


def context_of(record: logging.LogRecord) -> tuple[str, ...]:
    return tuple(record.__dict__[f"ambient_{name}"] for name in ("run", "thread", "agent"))


async def test_the_log_has_the_start_and_the_end_of_a_run_with_the_clients_run_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "ambient_runner.runs")
    async with runner_of(ScriptedAgent(hello)) as runner:
        asked = request(user("u1"))
        run_input = msgspec.structs.replace(asked.input, run_id="client\u2028run")
        started = await runner.start(dataclasses.replace(asked, input=run_input))
        await events_of(runner, started)
    lines = [record for record in caplog.records if started.run in record.getMessage()]
    assert [record.levelno for record in lines] == [logging.DEBUG, logging.INFO]
    assert ["'client\\u2028run'" in record.getMessage() for record in lines] == [True, True]


async def test_a_repaired_event_is_logged_once_per_run_and_rule(caplog: pytest.LogCaptureFixture) -> None:
    async def sloppy(run: Run) -> AsyncGenerator[Any, None]:
        yield TextMessageStart(message_id="m1", role="assistant")
        for _ in range(3):
            yield ToolCallEnd(tool_call_id="never-started")
        yield ToolCallStart(tool_call_id="c1", tool_call_name="x")
        yield ToolCallStart(tool_call_id="c1", tool_call_name="x")

    async with runner_of(ScriptedAgent(sloppy)) as runner:
        started = await runner.start(request(user("u1")))
        await events_of(runner, started)
    warnings = [record.args for record in caplog.records if record.levelno == logging.WARNING]
    names = (started.run, "agent", "t")
    assert warnings == [
        (*names, "tool-not-open", 3, "TOOL_CALL_END"),
        (*names, "tool-already-open", 1, "TOOL_CALL_START"),
    ]


async def test_what_is_closed_for_a_failed_or_stopped_run_is_no_repair(caplog: pytest.LogCaptureFixture) -> None:
    async def crashing(run: Run) -> AsyncGenerator[Any, None]:
        yield TextMessageStart(message_id="m1", role="assistant")
        raise ValueError

    async with runner_of(ScriptedAgent(crashing)) as runner:
        await run_once(runner, user("u1"))
    async with runner_of(ScriptedAgent(forever)) as runner:
        started = await started_talking(runner)
        await runner.stop(KEY)
        await events_of(runner, started)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == []


async def test_the_traceback_of_a_failed_run_is_the_records_exception(caplog: pytest.LogCaptureFixture) -> None:
    async def crashing(run: Run) -> AsyncGenerator[Any, None]:
        raise ConnectionError("no route")
        yield

    async with runner_of(ScriptedAgent(crashing)) as runner:
        await run_once(runner, user("u1"))
    (failed,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "no route" not in failed.getMessage()
    assert (failed.exc_text or "").startswith("Traceback")
    assert (failed.exc_text or "").endswith("ConnectionError: no route")


async def test_the_text_of_a_config_error_is_for_the_log() -> None:
    """It names files, modules and settings of the server."""

    async def misconfigured(run: Run) -> AsyncGenerator[Any, None]:
        raise ConfigError("my_project/agent.py returned no graph")
        yield

    async with runner_of(ScriptedAgent(misconfigured)) as runner:
        last = (await run_once(runner, user("u1")))[-1]
    assert isinstance(last, RunError)
    assert (last.code, "my_project" in last.message) == ("agent_error", False)


async def test_a_draining_server_says_once_for_which_runs_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ambient_runner.runs.runner")
    async with runner_of(ScriptedAgent(forever)) as runner:
        started = await started_talking(runner)
        with unless_hung():
            await runner.drain()
            await runner.drain()
    waits = [record.args for record in caplog.records if record.name == "ambient_runner.runs.runner"]
    assert waits == [(SETTINGS.timeouts.grace, "1 run", f"run {started.run} of agent agent on thread t")]


def _fact(event: Event) -> Any:
    return Fact(owner=RUNTIME, kind="", body=encode_event(event))


async def test_draining_refuses_new_work_and_ends_what_runs_with_a_terminal_event() -> None:
    async with MemoryLedger() as ledger:
        async with Runner(ledger, {"agent": ScriptedAgent(forever)}, SETTINGS) as runner:
            started = await started_talking(runner)
            with unless_hung():
                await runner.drain()
            with pytest.raises(Draining):
                await runner.start(request(user("u2")))
            events = verified(await events_of(runner, started))
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "shutdown"


async def test_an_unknown_agent_and_another_agents_thread_are_refused() -> None:
    async with MemoryLedger() as ledger:
        agents = {"agent": ScriptedAgent(hello), "other": ScriptedAgent(hello)}
        async with Runner(ledger, agents, SETTINGS) as runner:
            await run_once(runner, user("u1"))
            with pytest.raises(AgentMismatch):
                await runner.start(dataclasses.replace(request(user("u2")), agent="other"))
            with pytest.raises(UnknownAgent):
                await runner.start(dataclasses.replace(request(user("u2")), agent="unknown"))


async def test_erasing_a_thread_stops_its_run_and_erases_it() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        await started_talking(runner)
        with unless_hung():
            await runner.erase_thread(KEY)
        assert await runner.ledger.get_thread(KEY) is None
        with pytest.raises(UnknownThread):
            await runner.view_thread(KEY)


async def test_message_ids_an_agent_repeats_are_made_unique_per_thread() -> None:
    async def same_id(run: Run) -> AsyncGenerator[Any, None]:
        for event in said("m1", "x"):
            yield event

    async with runner_of(ScriptedAgent(same_id)) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
        ids = [message.id for message in (await runner.view_thread(KEY)).transcript.messages()]
    assert ids == ["u1", "m1", "u2", "m1~2"]


@pytest.mark.parametrize("how", ["ends", "fails", "is stopped"])
async def test_on_end_is_called_once_before_the_end_of_a_run_can_be_read(how: str) -> None:
    running: list[bool] = []

    async def fails(run: Run) -> AsyncGenerator[Any, None]:
        raise ValueError("no")
        yield

    script = {"ends": hello, "fails": fails, "is stopped": forever}[how]
    async with runner_of(ScriptedAgent(script)) as runner:

        async def on_end() -> None:
            last = (await runner.view_thread(KEY)).last_run
            running.append(last is not None and last.status == "running")
            raise ValueError("an on_end that fails harms no run")

        with unless_hung():
            started = await runner.start(dataclasses.replace(request(user("u1")), on_end=on_end))
            if how == "is stopped":
                await runner.stop(KEY)
            events = verified(await events_of(runner, started))
        assert running == [True]
        assert isinstance(events[-1], RunFinished | RunError)


async def test_the_run_error_of_middleware_takes_precedence_over_the_failure_it_passes() -> None:
    async def fails(run: Run) -> AsyncGenerator[Any, None]:
        raise ValueError("no")
        yield

    def wording(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            try:
                async for event in handler(run):
                    yield event
            except ValueError:
                yield RunError(message="It rains.", code="E42")
                raise

        return handle

    async with runner_of(ScriptedAgent(fails), middleware=[wording]) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert events[-1] == msgspec.structs.replace(
        RunError(message="It rains.", code="E42"), timestamp=events[-1].timestamp
    )
