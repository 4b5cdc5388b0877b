"""Streams for property tests: any event in any order, over so few ids that collisions are the rule."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ambient_runner.protocol import events as e

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypothesis.strategies import SearchStrategy

    from ambient_runner.bridges.toolkit.composer import Composer

T = TypeVar("T")
Remark = tuple[str, tuple[Any, ...], dict[str, Any]]

THREAD, RUN = "thread", "run"

IDS = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from([None, None, "s1", "s2"])
SUBAGENTS = st.sampled_from(["s1", "s2", "s3"])
DELTAS = st.sampled_from(["x", "y", ""])
STEPS = st.sampled_from(["plan", "act"])
MAYBE_ID = st.none() | IDS

POINTERS = st.sampled_from(["", "/a", "/a~1b", "/~2", "a", "/a/~"])
OPERATIONS = st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "jump"]).flatmap(
    lambda op: st.fixed_dictionaries(
        {"path": POINTERS}, optional={"op": st.just(op), "value": st.integers(0, 9), "from": POINTERS}
    )
)
PATCHES = st.lists(OPERATIONS, max_size=2)

MESSAGES: SearchStrategy[Any] = st.one_of(
    st.builds(e.UserMessage, id=IDS, content=st.just("hi")),
    st.builds(e.AssistantMessage, id=IDS, content=st.just("hello"), subagent_run_id=TAGS),
    st.builds(
        e.AssistantMessage,
        id=IDS,
        subagent_run_id=TAGS,
        tool_calls=IDS.map(
            lambda i: [e.ToolCall(id=i, function=e.FunctionCall(name="look", arguments="{}"))],
        ),
    ),
    st.builds(e.ReasoningMessage, id=IDS, content=st.just("hm"), subagent_run_id=TAGS),
    st.builds(
        e.ActivityMessage, id=IDS, activity_type=st.just("PLAN"), content=st.just({"n": 1}), subagent_run_id=TAGS
    ),
)
INPUTS = st.builds(
    e.RunAgentInput,
    thread_id=st.just(THREAD),
    run_id=st.just(RUN),
    messages=st.lists(MESSAGES, max_size=2, unique_by=lambda message: message.id),
)
INTERRUPTS = st.builds(e.Interrupt, id=IDS, reason=st.just("confirmation"), tool_call_id=MAYBE_ID, subagent_run_id=TAGS)
OUTCOMES = st.one_of(
    st.none(),
    st.builds(e.Success),
    st.builds(e.Interrupted, interrupts=st.lists(INTERRUPTS, max_size=3)),
    st.builds(e.Cancelled),
)


def _event(kind: type[T], **fields: SearchStrategy[Any]) -> SearchStrategy[T]:
    return st.builds(kind, **fields)


BOUNDARIES: SearchStrategy[e.Event] = st.one_of(
    _event(
        e.RunStarted,
        thread_id=st.sampled_from([THREAD, "other"]),
        run_id=st.sampled_from([RUN, "other"]),
        input=st.none() | INPUTS,
    ),
    _event(e.RunFinished, thread_id=st.sampled_from([THREAD, "other"]), run_id=st.just(RUN), outcome=OUTCOMES),
    _event(e.RunError, message=st.just("it broke")),
)

CONTENTS: SearchStrategy[e.Event] = st.one_of(
    _event(e.StepStarted, step_name=STEPS, subagent_run_id=TAGS),
    _event(e.StepFinished, step_name=STEPS, subagent_run_id=TAGS),
    _event(e.TextMessageStart, message_id=IDS, role=st.sampled_from([None, "assistant"]), subagent_run_id=TAGS),
    _event(e.TextMessageContent, message_id=IDS, delta=DELTAS, subagent_run_id=TAGS),
    _event(e.TextMessageEnd, message_id=IDS, subagent_run_id=TAGS),
    _event(e.TextMessageChunk, message_id=MAYBE_ID, delta=st.none() | DELTAS, subagent_run_id=TAGS),
    _event(
        e.ToolCallStart,
        tool_call_id=IDS,
        tool_call_name=st.just("look"),
        parent_message_id=MAYBE_ID,
        subagent_run_id=TAGS,
    ),
    _event(e.ToolCallArgs, tool_call_id=IDS, delta=DELTAS, subagent_run_id=TAGS),
    _event(e.ToolCallEnd, tool_call_id=IDS, subagent_run_id=TAGS),
    _event(
        e.ToolCallChunk,
        tool_call_id=MAYBE_ID,
        tool_call_name=st.sampled_from([None, "look"]),
        parent_message_id=MAYBE_ID,
        delta=st.none() | DELTAS,
        subagent_run_id=TAGS,
    ),
    _event(e.ToolCallResult, message_id=IDS, tool_call_id=IDS, content=st.just("done"), subagent_run_id=TAGS),
    _event(e.StateSnapshot, snapshot=st.just({"a": 1}), subagent_run_id=TAGS),
    _event(e.StateDelta, delta=PATCHES, subagent_run_id=TAGS),
    _event(e.MessagesSnapshot, messages=st.lists(MESSAGES, max_size=2, unique_by=lambda message: message.id)),
    _event(
        e.ActivitySnapshot,
        message_id=IDS,
        activity_type=st.just("PLAN"),
        content=st.just({"a": 1}),
        replace=st.sampled_from([None, True, False]),
        subagent_run_id=TAGS,
    ),
    _event(e.ActivityDelta, message_id=IDS, activity_type=st.just("PLAN"), patch=PATCHES, subagent_run_id=TAGS),
    _event(e.Raw, event=st.just({"native": True}), subagent_run_id=TAGS),
    _event(e.Custom, name=st.just("product:note"), value=st.just(1), subagent_run_id=TAGS),
    _event(e.ReasoningStart, message_id=IDS, subagent_run_id=TAGS),
    _event(e.ReasoningEnd, message_id=IDS, subagent_run_id=TAGS),
    _event(e.ReasoningMessageStart, message_id=IDS, subagent_run_id=TAGS),
    _event(e.ReasoningMessageContent, message_id=IDS, delta=DELTAS, subagent_run_id=TAGS),
    _event(e.ReasoningMessageEnd, message_id=IDS, subagent_run_id=TAGS),
    _event(e.ReasoningMessageChunk, message_id=MAYBE_ID, delta=st.none() | DELTAS, subagent_run_id=TAGS),
    _event(
        e.ReasoningEncryptedValue,
        subtype=st.sampled_from(["tool-call", "message"]),
        entity_id=IDS,
        encrypted_value=st.just("🔒"),
        subagent_run_id=TAGS,
    ),
    _event(
        e.SubagentStarted,
        subagent_run_id=SUBAGENTS,
        name=st.just("helper"),
        parent_subagent_run_id=st.none() | SUBAGENTS,
        parent_tool_call_id=MAYBE_ID,
        parent_message_id=MAYBE_ID,
    ),
    _event(e.SubagentFinished, subagent_run_id=SUBAGENTS),
    _event(e.SubagentError, subagent_run_id=SUBAGENTS, message=st.just("lost")),
)

GARBAGE: SearchStrategy[list[e.Event]] = st.lists(
    st.one_of(CONTENTS, CONTENTS, CONTENTS, CONTENTS, CONTENTS, CONTENTS, BOUNDARIES), max_size=40
)
"""Any events in any order; now and then the run ends in the middle."""

CONVERSATION: SearchStrategy[list[e.Event]] = st.lists(CONTENTS, max_size=20) | st.lists(
    CONTENTS, min_size=30, max_size=80
)
"""The same without RUN_* events, so that everything happens inside one run, often a long one."""

TERMINALS: SearchStrategy[e.Event] = st.sampled_from(
    [
        e.RunError(message="it broke"),
        e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=e.Cancelled()),
        e.RunFinished(thread_id=THREAD, run_id=RUN),
    ]
)

SUBAGENT_IDS = st.sampled_from([None, None, "s1", "s2"])
CALLS = st.sampled_from(["c1", "c2", "c3", "c4"])
KEYS = st.sampled_from([None, "k1", "k2"])
WORDS = st.sampled_from(["", "x", "xy", "xyz"])
FLAG = st.booleans()


def _composer_call(method: str, *args: SearchStrategy[Any], **options: SearchStrategy[Any]) -> SearchStrategy[Remark]:
    return st.tuples(st.just(method), st.tuples(*args), st.fixed_dictionaries(options))


REMARKS: SearchStrategy[list[Remark]] = st.lists(
    st.one_of(
        _composer_call(
            "text",
            WORDS,
            subagent_id=SUBAGENT_IDS,
            key=KEYS,
            complete=FLAG,
            role=st.sampled_from(["assistant", "developer"]),
        ),
        _composer_call("text", WORDS, subagent_id=SUBAGENT_IDS, key=KEYS, message_id=KEYS),
        _composer_call("end_text", SUBAGENT_IDS),
        _composer_call("reasoning", WORDS, subagent_id=SUBAGENT_IDS, key=KEYS, complete=FLAG),
        _composer_call("reasoning_encrypted", WORDS, subagent_id=SUBAGENT_IDS),
        _composer_call(
            "reasoning_encrypted", WORDS, subagent_id=SUBAGENT_IDS, subtype=st.just("tool-call"), entity_id=CALLS
        ),
        _composer_call("end_reasoning", SUBAGENT_IDS),
        _composer_call("tool_start", CALLS, st.just("look"), SUBAGENT_IDS, message_id=KEYS),
        _composer_call("tool_args", CALLS, WORDS),
        _composer_call("tool_args_full", CALLS, WORDS),
        _composer_call("tool_end", CALLS),
        _composer_call("tool_result", CALLS, st.just("done"), args=st.none() | WORDS, subagent_id=SUBAGENT_IDS),
        _composer_call(
            "tool_result", CALLS, st.just("done"), subagent_id=SUBAGENT_IDS, is_error=FLAG, provisional=FLAG
        ),
        _composer_call("start_step", STEPS, SUBAGENT_IDS),
        _composer_call("end_step", STEPS, SUBAGENT_IDS),
        _composer_call("start_subagent", SUBAGENTS, st.just("helper"), parent=st.none() | SUBAGENTS),
        _composer_call("end_subagent", SUBAGENTS, error=st.sampled_from([None, "lost"])),
        _composer_call("state", st.just({"a": 1})),
        _composer_call("state_delta", st.just([{"op": "add", "path": "/a", "value": 1}])),
        _composer_call("custom", st.just("product:note"), st.just(1)),
    ),
    max_size=60,
)
"""A call that an adapter may make on a Composer: a method, its arguments and its options."""

KNOWN_IDS = st.sets(IDS, max_size=2)


def numbered() -> Callable[[str], str]:
    """Ids that tests can foretell: `message-1`, `message-2`, `reasoning-1`, …"""
    counters: defaultdict[str, count[int]] = defaultdict(lambda: count(1))
    return lambda kind: f"{kind}-{next(counters[kind])}"


def compose(composer: Composer, remarks: Iterable[Remark]) -> list[e.Event]:
    return [event for method, args, options in remarks for event in getattr(composer, method)(*args, **options)]


def collect(strategy: SearchStrategy[T], examples: int) -> list[T]:
    """So many examples, the same every time, for tests that check a whole batch at once."""
    found: list[T] = []

    @settings(max_examples=examples, derandomize=True, database=None, phases=[Phase.generate], deadline=None)
    @given(strategy)
    def gather(example: T) -> None:
        found.append(example)

    run: Callable[[], None] = gather
    run()
    return found
