from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sized
from typing import Any, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import PayloadTooLarge, ProtocolViolation
from ambient_runner.ledger.base import Writer
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Encoded, Fact
from ambient_runner.projections.private_entries import MEMORY_EVENT, correct_history
from ambient_runner.projections.redaction import Redactor, Secrets
from ambient_runner.protocol.events import (
    ActivitySnapshot,
    AssistantMessage,
    Cancelled,
    Custom,
    Event,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    SubagentFinished,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    TextPart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    decode_event,
    encode_event,
)
from ambient_runner.protocol.limits import MAX_DEPTH, MAX_EVENT_BYTES
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.pipeline import Pipeline
from ambient_runner.runs.run import Run
from ambient_runner.runs.storable import encode_storable
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, said, user

SECRET = "sk-1234567890"
HUGE = "x" * (MAX_EVENT_BYTES + 1)


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def stored(event: Event) -> Event:
    """Return the stored event, without its timestamp."""
    return msgspec.structs.replace(decode_event(encode_storable(event)), timestamp=None)


def verified(events: list[Event]) -> list[Event]:
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()
    return events


def dropped(kind: str, reason: str) -> Custom:
    return Custom(name="ambient:dropped", value={"type": kind, "reason": reason})


def test_an_event_has_a_timestamp_but_a_delta_and_the_snapshot_marker_have_none() -> None:
    assert decode_event(encode_storable(TextMessageStart(message_id="m"))).timestamp is not None
    assert decode_event(encode_storable(TextMessageStart(message_id="m", timestamp=5))).timestamp == 5
    for bare in (
        TextMessageContent(message_id="m", delta="x"),
        ToolCallArgs(tool_call_id="c", delta="x"),
        MessagesSnapshot(messages=[]),
    ):
        assert encode_storable(bare) == encode_event(bare)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (TextMessageContent(message_id="m", delta="a\ud83d"), TextMessageContent(message_id="m", delta="a?")),
        (Custom(name="x", value={"k\udc00": ["\ud800", 1]}), Custom(name="x", value={"k?": ["?", 1]})),
        (RunError(message="a\ud83d", code="c"), RunError(message="a?", code="c")),
        (
            TextMessageStart(message_id="m", metadata={"a": "\ud83d"}),
            TextMessageStart(message_id="m", metadata={"a": "?"}),
        ),
    ],
    ids=["delta", "keys and values", "error", "metadata"],
)
def test_lone_surrogates_are_replaced(event: Event, expected: Event) -> None:
    assert stored(event) == expected


class Lines:
    """A writer that collects lines. Deferred ones are encoded when `run_lazy_append` is called, or another line is appended."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.encoded: list[Encoded] = []
        """What was encoded together."""
        self._make: Callable[[], Encoded] | None = None

    def append(self, line: bytes) -> None:
        self.run_lazy_append()
        self.lines.append(line)

    def append_lazily(self, make: Callable[[], Encoded], pending: Sized = ()) -> None:
        self.run_lazy_append()
        self._make = make

    def run_lazy_append(self) -> list[Event]:
        make, self._make = self._make, None
        if make:
            self.encoded.append(make())
            self.lines += self.encoded[-1].lines
        return [decode_event(line) for line in self.lines]

    def texts(self) -> list[str]:
        return [event.delta for event in self.run_lazy_append() if isinstance(event, TextMessageContent)]


def piped(*secrets: str) -> tuple[Pipeline, Lines]:
    lines, repairer = Lines(), Repairer("t", "r", set())
    pipeline = Pipeline(cast("Writer", lines), repairer, Redactor(secrets))
    pipeline.push(RunStarted(thread_id="t", run_id="r"))
    pipeline.push(TextMessageStart(message_id="m"))
    lines.run_lazy_append()
    lines.lines.clear()
    return pipeline, lines


def piece(text: Any, **extra: Any) -> TextMessageContent:
    return TextMessageContent(message_id=extra.pop("message_id", "m"), delta=text, **extra)


def test_deltas_and_boundaries_are_deferred_together_and_other_events_come_after_them() -> None:
    pipeline, lines = piped(SECRET)
    start, args = ToolCallStart(tool_call_id="c", tool_call_name="x"), ToolCallArgs(tool_call_id="c", delta="1 ")
    deferred = [piece("a "), piece("b "), start, args, piece("c "), ToolCallEnd(tool_call_id="c")]
    assert [pipeline.push(event) for event in deferred] == [False] * len(deferred)
    assert lines.lines == []
    assert pipeline.push(Custom(name="x", value=1))
    assert [type(event) for event in lines.run_lazy_append()] == [*map(type, deferred), Custom]
    assert [pipeline.push(piece(text)) for text in ("d ", "e ")] == [False, False]
    pipeline.store_private(Custom(name=MEMORY_EVENT, value=1))
    assert "".join(lines.texts()) == "a b c d e "


@pytest.mark.parametrize(
    "odd",
    [
        piece("x", message_id="other"),
        piece("x", metadata={"a": 1}),
        piece("x", raw_event={"a": 1}),
        piece("x", timestamp=5),
        piece("x", subagent_run_id="s"),
        piece("x" * 70_000),
        piece(""),
    ],
    ids=["another message", "metadata", "raw", "time", "lane", "long", "empty"],
)
def test_a_delta_with_other_fields_is_encoded_at_once(odd: TextMessageContent) -> None:
    pipeline, lines = piped()
    for event in (piece("a "), piece("b ")):
        pipeline.push(event)
    assert lines.lines == []
    assert pipeline.push(odd)
    assert lines.texts()[:2] == ["a ", "b "]


def test_the_arguments_of_a_call_are_known_before_they_are_encoded() -> None:
    pipeline, _ = piped(SECRET)
    for event in (
        ToolCallStart(tool_call_id="c", tool_call_name="x"),
        ToolCallArgs(tool_call_id="c", delta='{"a":'),
        ToolCallArgs(tool_call_id="c", delta="1}"),
    ):
        pipeline.push(event)
    assert pipeline.find_call("c") == ("x", '{"a":1}')


def test_a_delta_that_is_no_text_fails_at_once_and_loses_nothing_before_it() -> None:
    pipeline, lines = piped(SECRET)
    pipeline.push(piece("a "))
    pipeline.push(piece("b "))
    with pytest.raises(ProtocolViolation):
        pipeline.push(piece(5))
    assert lines.texts() == ["a ", "b "]


class Name(str):
    """A string for whoever compares it, and nothing the encoder knows."""

    __slots__ = ()


def test_a_message_id_that_is_no_plain_string_is_never_deferred() -> None:
    pipeline, lines = piped()
    pipeline.push(piece("a "))
    pipeline.push(piece("b ", message_id=Name("m")))
    assert lines.texts() == ["a ", "b "]


def test_a_lone_surrogate_in_one_delta_loses_none_of_the_others() -> None:
    pipeline, lines = piped()
    for text in ("a ", "b ", "c\ud83d", "d "):
        pipeline.push(piece(text))
    assert lines.texts() == ["a ", "b ", "c?", "d "]


def test_a_secret_added_while_deltas_are_deferred_is_redacted_in_them() -> None:
    secrets = Secrets([])
    lines = Lines()
    pipeline = Pipeline(cast("Writer", lines), Repairer("t", "r", set()), Redactor(secrets))
    for event in (RunStarted(thread_id="t", run_id="r"), TextMessageStart(message_id="m"), piece("a")):
        pipeline.push(event)
    for text in ("sk-12345", "67890", " b"):
        pipeline.push(piece(text))
    secrets.add([SECRET])
    pipeline.push(TextMessageEnd(message_id="m"))
    assert "".join(lines.texts()) == "a[redacted] b"


@given(
    texts=st.lists(st.sampled_from(["s", "sk", "-1234567890", "sk-1234567890", "k-", "x", "12345", "-a-b", "a b"])),
    cut=st.data(),
)
def test_secrets_are_redacted_however_the_deltas_split_them(texts: list[str], cut: st.DataObject) -> None:
    pipeline, lines = piped(SECRET, "x12345-a-b")
    for text in texts:
        pipeline.push(piece(text))
        if cut.draw(st.booleans()):
            lines.run_lazy_append()
    pipeline.push(TextMessageEnd(message_id="m"))
    text = "".join(lines.texts())
    assert text == Redactor([SECRET, "x12345-a-b"]).redact_text("".join(texts))


def test_numbers_that_json_cannot_hold_become_null() -> None:
    numbers = [float("nan"), float("inf"), -float("inf"), 1.5]
    assert stored(Custom(name="x", value=numbers)) == Custom(name="x", value=[None, None, None, 1.5])


def test_metadata_that_cannot_be_encoded_is_left_out() -> None:
    assert stored(TextMessageStart(message_id="m", metadata={"a": object()})) == TextMessageStart(message_id="m")


def test_an_event_that_cannot_be_encoded_is_replaced_by_a_dropped_event() -> None:
    assert stored(Custom(name="x", value=object())) == dropped("CUSTOM", "not_encodable")
    assert stored(StateSnapshot(snapshot={"a": {1: object()}})) == dropped("STATE_SNAPSHOT", "not_encodable")


def test_an_event_too_large_is_replaced_by_a_dropped_event() -> None:
    assert stored(TextMessageContent(message_id="m", delta=HUGE)) == dropped("TEXT_MESSAGE_CONTENT", "too_large")
    fits = TextMessageContent(message_id="m", delta="x" * (MAX_EVENT_BYTES - 100))
    assert stored(fits) == fits


@pytest.mark.parametrize("value", [HUGE, object(), deep(5_000)], ids=["large", "not encodable", "deep"])
def test_a_terminal_event_loses_its_result_and_stays_terminal(value: Any) -> None:
    ended = RunFinished(thread_id="t", run_id="r", result=value, metadata={"a": value})
    assert stored(ended) == RunFinished(thread_id="t", run_id="r")


@pytest.mark.parametrize("levels", [128, 900, 5_000, 30_000])
def test_the_depth_of_an_event_is_counted_and_not_left_to_the_interpreter(levels: int) -> None:
    """Interpreters differ in how deep they go before they give up: what one refused, the next one stored."""
    assert stored(Custom(name="x", value=deep(levels))) == dropped("CUSTOM", "too_deep")
    assert stored(StateSnapshot(snapshot=deep(levels))) == dropped("STATE_SNAPSHOT", "too_deep")
    assert stored(RunError(message="no", metadata={"a": deep(levels)})) == RunError(message="no")
    assert stored(TextMessageStart(message_id="m", metadata={"a": deep(levels)})) == TextMessageStart(message_id="m")
    assert stored(SubagentFinished(subagent_run_id="s", result=deep(levels))) == SubagentFinished(subagent_run_id="s")


def test_an_event_may_be_nested_up_to_its_bound() -> None:
    event = Custom(name="x", value=deep(127))
    assert stored(event) == event


def test_an_interrupt_too_large_to_be_stored_is_still_a_terminal_event_that_fits() -> None:
    outcome = Interrupted(interrupts=[Interrupt(id="i1", reason="confirmation", message=HUGE)])
    line = encode_storable(RunFinished(thread_id="t", run_id="r", outcome=outcome))
    assert len(line) <= MAX_EVENT_BYTES
    assert isinstance(decode_event(line), RunError | RunFinished)


def test_an_error_too_large_keeps_its_code() -> None:
    error = stored(RunError(message=HUGE, code="mine"))
    assert isinstance(error, RunError)
    assert error.code == "mine"
    assert len(error.message) < 1_000


async def written(use: Callable[[Pipeline], None], *, secrets: tuple[str, ...] = ()) -> list[Event]:
    """Return the stored events after `use`, without RUN_STARTED and timestamps."""
    async with MemoryLedger() as ledger:
        async with await ledger.acquire_lease(KEY, "k") as writer:
            repairer, begun = Repairer("t", "r"), RunStarted(thread_id="t", run_id="r")
            repairer.feed(begun)
            fact = Fact(owner=RUNTIME, kind="", body=encode_event(begun))
            await writer.begin_run([fact], run_id="r", agent="agent", claim=None)
            use(Pipeline(writer, repairer, Redactor(secrets)))
            await writer.finish_run()
        lines = [line for batch in await ledger.read_batches(KEY, 1) for line in batch.lines]
    return [msgspec.structs.replace(decode_event(line), timestamp=None) for line in lines]


async def test_the_end_closes_open_items_and_is_written_once() -> None:
    ended = RunFinished(thread_id="t", run_id="r")

    def use(pipeline: Pipeline) -> None:
        pipeline.push(TextMessageStart(message_id="m1"))
        pipeline.push(ToolCallStart(tool_call_id="c1", tool_call_name="f"))
        pipeline.end_run(ended)
        pipeline.end_run(RunError(message="too late"))
        assert pipeline.terminal_event == ended

    assert await written(use) == [
        TextMessageStart(message_id="m1"),
        ToolCallStart(tool_call_id="c1", tool_call_name="f"),
        ToolCallEnd(tool_call_id="c1"),
        TextMessageEnd(message_id="m1"),
        MessagesSnapshot(messages=[]),
        ended,
    ]


async def test_a_secret_held_back_at_the_end_comes_out_redacted_and_raw_events_never() -> None:
    def use(pipeline: Pipeline) -> None:
        pipeline.push(TextMessageStart(message_id="m1", raw_event={"key": SECRET}))
        pipeline.push(TextMessageContent(message_id="m1", delta="it is sk-12345"))
        pipeline.push(TextMessageContent(message_id="m1", delta="67890 "))
        pipeline.end_run(RunError(message=f"bad key {SECRET}", code="mine"))

    events = await written(use, secrets=(SECRET,))
    text = "".join(event.delta for event in events if isinstance(event, TextMessageContent))
    assert text == "it is [redacted] "
    assert events[0] == TextMessageStart(message_id="m1")
    assert events[-1] == RunError(message="bad key [redacted]", code="mine")


CUT_OFF = {
    "stopped": RunFinished(thread_id="t", run_id="r", outcome=Cancelled()),
    "failed": RunError(message="It failed.", code="agent_error"),
}


@pytest.mark.parametrize("terminal", CUT_OFF.values(), ids=CUT_OFF)
async def test_a_message_that_is_cut_off_loses_the_word_it_ends_in_because_it_may_be_half_a_secret(
    terminal: RunError | RunFinished,
) -> None:
    def use(pipeline: Pipeline) -> None:
        for message, text in (("m1", f"it is {SECRET[:-1]}"), ("m2", "a short word")):
            pipeline.push(TextMessageStart(message_id=message))
            pipeline.push(TextMessageContent(message_id=message, delta=text))
        pipeline.end_run(terminal)

    events = await written(use, secrets=(SECRET,))
    deltas = [(event.message_id, event.delta) for event in events if isinstance(event, TextMessageContent)]
    assert deltas == [("m1", "it is "), ("m2", "a short "), ("m2", "word")]


def asking(**more: Any) -> RunFinished:
    return RunFinished(
        thread_id="t", run_id="r", outcome=Interrupted(interrupts=[Interrupt(id="i1", reason="why", **more)])
    )


@pytest.mark.parametrize("more", [{"metadata": {"a": object()}}, {"response_schema": {"a": object()}}])
async def test_an_interrupt_with_a_value_that_is_not_json_is_stored_without_it(more: dict[str, Any]) -> None:
    assert (await written(lambda pipeline: pipeline.end_run(asking(**more))))[-1] == asking()


@pytest.mark.parametrize(
    "event",
    [
        RunFinished(thread_id="t", run_id="r", result=deep(5_000)),
        RunFinished(thread_id="t", run_id="r", metadata={"a": deep(5_000)}),
        asking(metadata={"a": deep(5_000)}),
        RunError(message="no", metadata={"a": deep(5_000)}),
        Custom(name="x", value=deep(5_000)),
        StateSnapshot(snapshot={"a": deep(5_000)}),
        SubagentFinished(subagent_run_id="s1", result=deep(5_000)),
        TextMessageStart(message_id="m1", metadata={"a": deep(5_000)}),
    ],
    ids=["result", "metadata of the end", "interrupt", "error", "custom", "state", "subagent", "metadata"],
)
async def test_a_value_nested_too_deep_ends_its_run_well_and_harms_no_other(event: Event) -> None:
    release = anyio.Event()

    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        if run.thread.id == "deep":
            if isinstance(event, SubagentFinished):
                yield SubagentStarted(subagent_run_id="s1", name="helper")
            yield event
            return
        await release.wait()
        for one in said("m1", "hi"):
            yield one

    settings = dataclasses.replace(SETTINGS, secrets=(SECRET,))
    async with runner_of(ScriptedAgent(talk), settings) as runner:
        with unless_hung():
            other = await runner.start(request(user("u1"), thread="other"))
            events = await run_once(runner, user("u1"), thread="deep")
            release.set()
            unharmed = await events_of(runner, other)
    verified(events)
    assert isinstance(events[-1], RunFinished | RunError)
    assert isinstance(unharmed[-1], RunFinished)


async def test_a_state_that_would_exceed_its_limits_stays_as_it_is_and_clients_learn_it() -> None:
    copies = [StateDelta(delta=[{"op": "copy", "from": "/a", "path": f"/b{n}"}]) for n in range(8)]
    too_deep = StateDelta(delta=[{"op": "add", "path": "/deep", "value": deep(MAX_DEPTH)}])
    last = StateDelta(delta=[{"op": "add", "path": "/last", "value": 1}])

    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        if run.input.messages[-1].id == "u1":
            yield StateSnapshot(snapshot={"a": "x" * (1 << 20)})
            for event in (*copies, too_deep, last):
                yield event

    async with runner_of(ScriptedAgent(talk)) as runner:
        first = await run_once(runner, user("u1"))
        second = await run_once(runner, user("u2"))
        state = (await runner.view_thread(KEY)).state
    assert [one.value for one in first if isinstance(one, Custom)] == [
        {"type": "STATE_DELTA", "reason": "too_large"},
        {"type": "STATE_DELTA", "reason": "too_large"},
        {"type": "STATE_DELTA", "reason": "too_deep"},
    ]
    assert list(state.value) == ["a", *(f"b{n}" for n in range(6)), "last"]
    assert state.failed_count == 0
    assert isinstance(second[-1], RunFinished)


async def test_a_thread_with_a_state_too_deep_for_any_agent_continues_without_it() -> None:
    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        yield StateDelta(delta=[{"op": "add", "path": f"/{run.input.messages[-1].id}", "value": run.input.state}])

    async with runner_of(ScriptedAgent(talk)) as runner:
        async with await runner.ledger.acquire_lease(KEY, "before-there-were-bounds") as writer:
            events = (
                RunStarted(thread_id="t", run_id="r"),
                StateSnapshot(snapshot={"ok": 1}),
                StateSnapshot(snapshot={"a": deep(300)}),
                RunFinished(thread_id="t", run_id="r"),
            )
            facts = [Fact(owner=RUNTIME, kind="", body=encode_event(event)) for event in events]
            await writer.begin_run(facts, run_id="r", agent="agent", claim=None)
            await writer.finish_run()
        events = await run_once(runner, user("u1"))
        assert isinstance(events[-1], RunFinished)
        assert (await runner.view_thread(KEY)).state.value == {"ok": 1, "u1": {"ok": 1}}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (TextMessageStart(message_id="m1", metadata={"a": deep(61)}), TextMessageStart(message_id="m1")),
        (
            ToolCallArgs(tool_call_id="c", delta="{}", metadata={"a": deep(61)}),
            ToolCallArgs(tool_call_id="c", delta="{}"),
        ),
        (
            ToolCallResult(
                message_id="r",
                tool_call_id="c",
                content=[TextPart(text="seen", metadata=deep(61))],
            ),
            ToolCallResult(message_id="r", tool_call_id="c", content=[TextPart(text="seen")]),
        ),
        (
            ActivitySnapshot(message_id="a", activity_type="x", content={"a": deep(61)}),
            dropped("ACTIVITY_SNAPSHOT", "too_deep"),
        ),
        (
            correct_history([AssistantMessage(id="m", metadata={"a": deep(61)})]),
            dropped("MESSAGES_SNAPSHOT", "too_deep"),
        ),
    ],
    ids=["metadata", "of a delta", "of a part", "activity", "restated"],
)
async def test_nothing_is_stored_that_a_client_could_not_send_back_for_its_depth(event: Event, expected: Event) -> None:
    def use(pipeline: Pipeline) -> None:
        if isinstance(event, Custom):
            pipeline.store_private(event)
            pipeline.release_correction(event)
            return
        if isinstance(event, ToolCallArgs):
            pipeline.push(ToolCallStart(tool_call_id="c", tool_call_name="f"))
        pipeline.push(event)

    assert (await written(use))[-1] == expected


@pytest.mark.parametrize(
    "events",
    [
        [TextMessageStart(message_id="m1", metadata={"a": HUGE}), TextMessageContent(message_id="m1", delta="x")],
        [TextMessageStart(message_id="m1", name=HUGE), TextMessageContent(message_id="m1", delta="x")],
        [TextMessageStart(message_id="m1"), TextMessageEnd(message_id="m1", metadata={"a": HUGE})],
        [ToolCallStart(tool_call_id="c1", tool_call_name=HUGE), ToolCallArgs(tool_call_id="c1", delta="{}")],
        [
            SubagentStarted(subagent_run_id="s1", name="helper", description=HUGE),
            TextMessageStart(message_id="m1", subagent_run_id="s1"),
        ],
    ],
    ids=["metadata of a start", "name", "metadata of an end", "tool name", "subagent"],
)
async def test_an_event_too_large_that_opens_or_closes_something_leaves_a_legal_stream(events: list[Event]) -> None:
    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        for event in events:
            yield event

    async with runner_of(ScriptedAgent(talk)) as runner:
        events = verified(await run_once(runner, user("u1")))
    assert all(len(encode_event(event)) <= MAX_EVENT_BYTES for event in events)


async def test_a_message_too_large_for_the_event_that_announces_it_is_refused() -> None:
    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        raise NotImplementedError
        yield

    async with runner_of(ScriptedAgent(talk)) as runner:
        with pytest.raises(PayloadTooLarge):
            await runner.start(request(user("u1", HUGE)))
        assert await runner.ledger.get_thread(KEY) is None


async def test_an_input_that_is_refused_for_its_size_is_not_searched_for_secrets() -> None:
    """The search of 9 MB stopped the event loop for 4 s, although the answer was 413."""

    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        raise NotImplementedError
        yield

    calls = Counter[str]()
    async with runner_of(ScriptedAgent(talk)) as runner:
        sys.setprofile(lambda frame, event, arg: calls.update((frame.f_code.co_qualname,) if event == "call" else ()))
        try:
            with pytest.raises(PayloadTooLarge):
                await runner.start(request(user("u1", HUGE)))
        finally:
            sys.setprofile(None)
    assert calls["prepare_first_entries"]
    assert (calls["Secrets.may_contain_secret"], calls["Redactor.redact_value"]) == (0, 0)
