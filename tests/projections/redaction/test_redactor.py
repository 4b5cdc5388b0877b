"""No secret gets through, whole or split, and nothing else is changed."""

from __future__ import annotations

import dataclasses
import enum
import json
import random
import string
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.config import estimate_bits
from ambient_runner.projections.redaction import REDACTED, Redactor, Secrets
from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivitySnapshot,
    AssistantMessage,
    Custom,
    FunctionCall,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    Raw,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    UserMessage,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ambient_runner.protocol.events import Event

SECRET = "sk-live-0123456789"


def text(delta: str, message_id: str = "m", **more: Any) -> TextMessageContent:
    return TextMessageContent(message_id=message_id, delta=delta, **more)


def fed(redactor: Redactor, events: Iterable[Event]) -> list[Event]:
    return [out for event in events for out in redactor.feed(event)]


def through(event: Event, *secrets: str) -> Event:
    (out,) = Redactor(secrets or (SECRET,)).feed(event)
    return out


def test_with_nothing_to_search_for_events_pass_untouched() -> None:
    event = text("sk-")
    assert Redactor(Secrets([], patterns=())).feed(event)[0] is event


def test_clean_deltas_pass_as_the_same_objects() -> None:
    events = [text("hello"), text(" world"), text(""), text("! "), TextMessageEnd(message_id="m")]
    out = fed(Redactor([SECRET]), events)
    assert all(one is other for one, other in zip(out, events, strict=True))


def test_a_secret_in_one_delta_is_replaced() -> None:
    assert fed(Redactor([SECRET]), [text(f"key {SECRET}, ")]) == [text(f"key {REDACTED}, ")]


def test_a_secret_split_over_deltas_is_replaced_and_its_beginning_is_never_sent() -> None:
    redactor = Redactor([SECRET])
    events = [text("key sk-"), text("live-01"), text("23456789"), text(" ok"), TextMessageEnd(message_id="m")]
    expected = [text("key "), text(REDACTED), text(" ok"), TextMessageEnd(message_id="m")]
    assert fed(redactor, events) == expected
    assert redactor.counts == {"TEXT_MESSAGE_CONTENT": 1}


def reasoning(delta: str) -> ReasoningMessageContent:
    return ReasoningMessageContent(message_id="m", delta=delta, timestamp=5)


def arguments(delta: str) -> ToolCallArgs:
    return ToolCallArgs(tool_call_id="m", delta=delta, subagent_run_id="s")


@pytest.mark.parametrize(
    ("make", "end"),
    [
        (text, TextMessageEnd(message_id="m")),
        (reasoning, ReasoningMessageEnd(message_id="m")),
        (arguments, ToolCallEnd(tool_call_id="m", subagent_run_id="s")),
    ],
)
def test_what_is_held_back_comes_out_before_the_end_of_its_message(make: Callable[[str], Event], end: Event) -> None:
    redactor = Redactor([SECRET])
    assert fed(redactor, [make("so "), make("sk-li"), make("on")]) == [make("so ")]
    assert fed(redactor, [end]) == [make("sk-li"), make("on"), end]


@pytest.mark.parametrize(
    "terminal",
    [
        RunError(message="x"),
        RunFinished(thread_id="t", run_id="r"),
        MessagesSnapshot(messages=[UserMessage(id="u", content="hi")]),
    ],
)
def test_what_is_held_back_comes_out_before_the_terminal(terminal: Event) -> None:
    events = [text("sk-"), text("sk-l", "other"), terminal]
    assert fed(Redactor([SECRET]), events) == [text("sk-"), text("sk-l", "other"), terminal]


def test_a_secret_that_continues_after_a_snapshot_marker_is_still_redacted() -> None:
    marker = MessagesSnapshot(messages=[])
    events = [text(SECRET[:9]), marker, text(SECRET[9:]), TextMessageEnd(message_id="m")]
    assert fed(Redactor([SECRET]), events) == [marker, text(REDACTED), TextMessageEnd(message_id="m")]


def test_a_secret_that_continues_after_a_tool_call_started_is_still_redacted() -> None:
    start = ToolCallStart(tool_call_id="c", tool_call_name="t", parent_message_id="m")
    events = [text(SECRET[:9]), start, text(SECRET[9:]), TextMessageEnd(message_id="m")]
    assert fed(Redactor([SECRET]), events) == [start, text(REDACTED), TextMessageEnd(message_id="m")]


def reasoning(*deltas: str) -> list[Event]:
    """A reasoning message under the id `m`."""
    start, end = ReasoningMessageStart(message_id="m", role="reasoning"), ReasoningMessageEnd(message_id="m")
    return [start, *(ReasoningMessageContent(message_id="m", delta=delta) for delta in deltas), end]


LONG_SECRET = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=1500))
DIVIDED_SECRETS: dict[str, list[str]] = {
    "in half": [SECRET[:9], SECRET[9:]],
    "between words": ["the key is " + SECRET[:9], SECRET[9:] + " and no other"],
    "in three parts": [SECRET[:5], SECRET[5:11], SECRET[11:]],
    "before its last character": [SECRET[:-1], SECRET[-1]],
    "a long one": [LONG_SECRET[:1000], LONG_SECRET[1000:]],
    "of a known shape": ["ghp_aB3dE5gH7jK9mN1pQ2sT4", "vW6yZ8aB3dE5gH7jK9"],
    "found before its end": ["ghp_aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7jK9", "mN1pQ2sT4 and more"],
}


@pytest.mark.parametrize("how", ["one by one", "a batch each", "one batch", "in halves of the batch"])
@pytest.mark.parametrize("parts", DIVIDED_SECRETS.values(), ids=DIVIDED_SECRETS)
def test_a_secret_divided_between_reasoning_and_its_second_part_under_one_id_is_redacted(
    parts: list[str], how: str
) -> None:
    """Clients append the second part to the first one, and so does the snapshot."""
    redactor = Redactor([SECRET, LONG_SECRET])
    messages = [reasoning(part) for part in parts]
    events = [event for message in messages for event in message]
    match how:
        case "one by one":
            out = fed(redactor, events)
        case "a batch each":
            out = [event for message in messages for event in redactor.feed_batch(message)]
        case "one batch":
            out = list(redactor.feed_batch(events))
        case _:  # The second part begins in the batch of the first one.
            out = [*redactor.feed_batch(events[:5]), *redactor.feed_batch(events[5:])]
    result = joined(out)["m"]
    assert REDACTED in result
    assert Redactor([SECRET, LONG_SECRET]).redact_text(result) == result
    assert "mN1pQ2sT4" not in result.replace(parts[0], "", 1)
    assert [type(event) for event in out if not isinstance(event, ReasoningMessageContent)] == [
        type(event) for event in events if not isinstance(event, ReasoningMessageContent)
    ]


@pytest.mark.parametrize("batched", [False, True])
def test_reasoning_that_starts_again_without_a_secret_is_not_changed(batched: bool) -> None:
    events = [*reasoning("I think of sk-", "live"), *reasoning("stock, ", "and of sk-live-"), *reasoning("animals.")]
    redactor = Redactor([SECRET])
    out = redactor.feed_batch(events) if batched else fed(redactor, events)
    assert joined(out) == joined(events)


def test_metadata_of_a_delta_is_sent_although_its_text_belongs_to_a_secret() -> None:
    first, second = text(SECRET[:9]), text(SECRET[9:], metadata={"k": SECRET})
    end = TextMessageEnd(message_id="m")
    assert fed(Redactor([SECRET]), [first, second, end]) == [text(REDACTED), text("", metadata={"k": REDACTED}), end]


def test_metadata_of_a_held_delta_is_redacted_when_plain_ones_release_it() -> None:
    redactor = Redactor([SECRET])
    assert fed(redactor, [text("a "), text("so", metadata={"k": SECRET})]) == [text("a ")]
    assert redactor.feed_batch([text(" b ")]) == [text("so", metadata={"k": REDACTED}), text(" b ")]


WORDS = st.text(st.sampled_from("ab-_ .\n"), min_size=1, max_size=8)


@given(texts=st.lists(WORDS, min_size=1, max_size=12), hidden=st.sampled_from(["nothing", SECRET]))
def test_a_whole_message_of_a_batch_is_divided_as_one_by_one_whether_the_batch_has_a_secret_or_not(
    texts: list[str], hidden: str
) -> None:
    """Otherwise the deltas of one message would tell that another, which the client does not see, has a secret."""
    shown = [TextMessageStart(message_id="m"), *map(text, texts), TextMessageEnd(message_id="m")]
    call = [
        ToolCallStart(tool_call_id="c", tool_call_name="look"),
        ToolCallArgs(tool_call_id="c", delta=hidden),
        ToolCallEnd(tool_call_id="c"),
    ]
    released = Redactor([SECRET]).feed_batch([*shown, *call])
    assert [each for each in released if not isinstance(each, ToolCallStart | ToolCallArgs | ToolCallEnd)] == fed(
        Redactor([SECRET]), shown
    )
    assert [each.delta for each in released if isinstance(each, ToolCallArgs)] == [hidden.replace(SECRET, REDACTED)]


NAMES = st.sampled_from(["m", "n"])
PARTS = st.sampled_from([SECRET, SECRET[:9], SECRET[9:], "a", " ", "so ", "it is", "\ud83d"])
DEFERRED = st.one_of(
    st.builds(TextMessageStart, message_id=NAMES),
    st.builds(TextMessageEnd, message_id=NAMES),
    st.builds(ToolCallStart, tool_call_id=NAMES, tool_call_name=st.sampled_from(["look", SECRET])),
    st.builds(ToolCallEnd, tool_call_id=NAMES),
    st.builds(ReasoningMessageEnd, message_id=NAMES),
    st.builds(ToolCallResult, message_id=NAMES, tool_call_id=NAMES, content=PARTS),
).map(lambda event: [event])


def delta_group(kind: str, name: str, texts: list[str]) -> list[Event]:
    match kind:
        case "text":
            return [TextMessageContent(message_id=name, delta=each) for each in texts]
        case "call":
            return [ToolCallArgs(tool_call_id=name, delta=each) for each in texts]
        case _:
            return [ReasoningMessageContent(message_id=name, delta=each) for each in texts]


DELTAS = st.builds(
    delta_group, st.sampled_from(["text", "call", "reasoning"]), NAMES, st.lists(PARTS, min_size=1, max_size=4)
)


@given(
    batches=st.lists(st.lists(st.one_of(DELTAS, DELTAS, DEFERRED), max_size=16), max_size=4), added=st.integers(0, 4)
)
def test_deltas_in_groups_are_released_as_in_groups_of_one(batches: list[list[list[Event]]], added: int) -> None:
    """Also if a secret is learned between two batches."""
    secrets, known = Secrets([]), Secrets([])
    grouped, single = Redactor(secrets), Redactor(known)
    for number, groups in enumerate(batches):
        if number == added:
            secrets.add([SECRET])
            known.add([SECRET])
        released = grouped.feed_groups(groups)
        assert len(released) == len(groups)
        assert [event for group in released for event in group] == list(
            single.feed_batch([event for group in groups for event in group])
        )
    assert grouped.counts == single.counts
    assert grouped.flush() == single.flush()


def test_a_secret_longer_than_any_window_is_held_whole() -> None:
    secret = "".join(chr(97 + i % 26) + str(i) for i in range(200))
    events = [*(text(char) for char in secret), TextMessageEnd(message_id="m")]
    assert fed(Redactor([secret]), events) == [text(REDACTED), TextMessageEnd(message_id="m")]


def test_short_values_are_not_secrets() -> None:
    assert Redactor(["1234567"]).redact_text("1234567") == "1234567"


def test_a_value_inside_the_replacement_is_not_a_secret() -> None:
    assert Redactor(["redacted", SECRET]).redact_text(f"redacted {SECRET}") == f"redacted {REDACTED}"


def test_secrets_that_overlap_become_one_replacement() -> None:
    redactor = Redactor(["xxQWLKJHGF", "QWLKJHGFthe-long-rest"])
    assert redactor.redact_text("<xxQWLKJHGFthe-long-rest>") == f"<{REDACTED}>"


def test_a_secret_that_begins_another_is_found_alone_and_within() -> None:
    redactor = Redactor(["password", "password-and-more"])
    assert redactor.redact_text("password password-and-more passwords") == f"{REDACTED} {REDACTED} {REDACTED}s"


@pytest.mark.parametrize(
    ("ascii_only", "respelled"),
    [
        (True, {}),
        (False, {}),
        (True, {"/": "\\/"}),
        (True, {"00f6": "00F6", "20ac": "20AC", "d83d": "D83D", "de00": "DE00"}),
        (False, {"<": "\\u003c"}),
    ],
)
def test_arguments_are_searched_for_the_escaped_value(ascii_only: bool, respelled: dict[str, str]) -> None:
    secret = 'pa"ss/<wörd\n€😀'
    source = json.dumps({"k": secret}, ensure_ascii=ascii_only)
    for usual, other in respelled.items():
        source = source.replace(usual, other)
    assert json.loads(source) == {"k": secret}
    out = fed(Redactor([secret]), [arguments(source), ToolCallEnd(tool_call_id="m")])
    assert json.loads("".join(event.delta for event in out if isinstance(event, ToolCallArgs))) == {"k": REDACTED}


@pytest.mark.parametrize("spell", [repr, ascii, lambda value: repr(value.encode())])
@pytest.mark.parametrize("prefix", ["", "'", "'\""])
def test_the_repr_of_a_value_is_searched_too(spell: Callable[[str], str], prefix: str) -> None:
    """Which quotes `repr` escapes depends on the text around the secret."""
    secret = "pa's\\wörd\n😀"
    redacted = Redactor([secret]).redact_text(spell(prefix + secret))
    assert ("pa" in redacted, "\\\\w" in redacted, redacted.count(REDACTED)) == (False, False, 1)


def test_json_inside_json_is_searched_too() -> None:
    secret = 'pa"ssword'
    source = json.dumps({"body": json.dumps({"k": secret})})
    assert json.loads(json.loads(Redactor([secret]).redact_text(source))["body"]) == {"k": REDACTED}


S = SECRET


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (RunError(message=f"x {S}", code=S), RunError(message=f"x {REDACTED}", code=REDACTED)),
        (Raw(event={"a": [S, 1, None], S: 1}), Raw(event={"a": [REDACTED, 1, None], REDACTED: 1})),
        (Custom(name=S, value=S), Custom(name=REDACTED, value=REDACTED)),
        (StepStarted(step_name=S, raw_event={"k": S}), StepStarted(step_name=REDACTED, raw_event={"k": REDACTED})),
        (StateSnapshot(snapshot={S: S}), StateSnapshot(snapshot={REDACTED: REDACTED})),
        (
            StateDelta(delta=[{"op": "add", "path": f"/{S}", "value": {"a": S}}]),
            StateDelta(delta=[{"op": "add", "path": f"/{REDACTED}", "value": {"a": REDACTED}}]),
        ),
        (
            ActivityDelta(message_id="a", activity_type="t", patch=[{"op": "copy", "from": f"/{S}", "path": "/b"}]),
            ActivityDelta(
                message_id="a", activity_type="t", patch=[{"op": "copy", "from": f"/{REDACTED}", "path": "/b"}]
            ),
        ),
        (
            ActivitySnapshot(message_id="a", activity_type="t", content={"x": S}),
            ActivitySnapshot(message_id="a", activity_type="t", content={"x": REDACTED}),
        ),
        (
            ToolCallStart(tool_call_id=f"c-{S}", tool_call_name=S),
            ToolCallStart(tool_call_id=f"c-{REDACTED}", tool_call_name=REDACTED),
        ),
        (
            ToolCallResult(message_id="r", tool_call_id=f"c-{S}", content=S),
            ToolCallResult(message_id="r", tool_call_id=f"c-{REDACTED}", content=REDACTED),
        ),
        (
            RunFinished(
                thread_id=S,
                run_id=S,
                result={"k": S},
                outcome=Interrupted(interrupts=[Interrupt(id="i", reason="tool_call", message=S)]),
            ),
            RunFinished(
                thread_id=S,
                run_id=S,
                result={"k": REDACTED},
                outcome=Interrupted(interrupts=[Interrupt(id="i", reason="tool_call", message=REDACTED)]),
            ),
        ),
        (
            MessagesSnapshot(
                messages=[
                    UserMessage(id="u", content=S),
                    AssistantMessage(
                        id="a", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=f'"{S}"'))]
                    ),
                ]
            ),
            MessagesSnapshot(
                messages=[
                    UserMessage(id="u", content=REDACTED),
                    AssistantMessage(
                        id="a",
                        tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=f'"{REDACTED}"'))],
                    ),
                ]
            ),
        ),
        (
            RunStarted(
                thread_id="t",
                run_id="r",
                input=RunAgentInput(thread_id=S, run_id="r", messages=[UserMessage(id="u", content=S)], state={"k": S}),
            ),
            RunStarted(
                thread_id="t",
                run_id="r",
                input=RunAgentInput(
                    thread_id=S, run_id="r", messages=[UserMessage(id="u", content=REDACTED)], state={"k": REDACTED}
                ),
            ),
        ),
    ],
)
def test_every_string_of_an_event_is_searched_names_and_pointers_included(event: Event, expected: Event) -> None:
    assert through(event) == expected


@pytest.mark.parametrize("word", ["assistant", "function", "TEXT_MESSAGE_START", "developer"])
def test_a_secret_equal_to_an_enumerated_value_does_not_break_the_event(word: str) -> None:
    events: list[Event] = [
        TextMessageStart(message_id="m", role="developer"),
        MessagesSnapshot(
            messages=[
                AssistantMessage(id="a", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=""))])
            ]
        ),
    ]
    assert fed(Redactor([word]), events) == events


def test_ids_are_replaced_alike_everywhere_so_references_hold() -> None:
    events = [
        TextMessageStart(message_id=f"m-{SECRET}"),
        text("a", f"m-{SECRET}"),
        text("b", f"m-{SECRET}"),
        TextMessageEnd(message_id=f"m-{SECRET}"),
    ]
    assert fed(Redactor([SECRET]), events) == [
        TextMessageStart(message_id=f"m-{REDACTED}"),
        text("a", f"m-{REDACTED}"),
        text("b", f"m-{REDACTED}"),
        TextMessageEnd(message_id=f"m-{REDACTED}"),
    ]


def test_an_event_that_cannot_be_encoded_is_searched_all_the_same() -> None:
    event = Custom(name="x", value={"text": SECRET, "object": object})
    assert through(event) == Custom(name="x", value={"text": REDACTED, "object": object})


def test_values_are_redacted_without_changing_the_argument() -> None:
    value = {"a": [f"x{SECRET}", {"b": SECRET}], "n": 1.5, "t": True, "z": None}
    before = json.dumps(value)
    redactor = Redactor(Secrets([SECRET]))
    expected = {"a": [f"x{REDACTED}", {"b": REDACTED}], "n": 1.5, "t": True, "z": None}
    assert redactor.redact_value(value) == expected
    assert json.dumps(value) == before
    assert redactor.counts == {"value": 2}


def test_a_secret_added_during_a_message_is_found_even_if_its_beginning_came_before() -> None:
    secrets = Secrets([SECRET])
    redactor = Redactor(secrets)
    before = fed(
        redactor, [text("your token is sk-"), ToolCallStart(tool_call_id="c1", tool_call_name="fresh-token-1")]
    )
    secrets.add(["sk-fresh-token", "fresh-token-1"])
    after = fed(
        redactor,
        [text("fresh-token"), text(" ok"), ToolCallEnd(tool_call_id="fresh-token-1"), TextMessageEnd(message_id="m")],
    )
    assert before == [text("your token is "), ToolCallStart(tool_call_id="c1", tool_call_name="fresh-token-1")]
    assert after == [
        text(REDACTED),
        ToolCallEnd(tool_call_id=REDACTED),
        text(" ok"),
        TextMessageEnd(message_id="m"),
    ]


def test_a_clean_id_is_searched_again_after_a_secret_is_added() -> None:
    secrets = Secrets([SECRET])
    redactor = Redactor(secrets)
    fed(redactor, [text("a ", "fresh-token"), text("b ", "fresh-token")])
    secrets.add(["fresh-token"])
    assert fed(redactor, [text("c ", "fresh-token")]) == [text("c ", REDACTED)]


def test_a_secret_added_in_one_run_is_reported_and_not_searched_for_in_other_runs() -> None:
    added: list[str] = []
    server = Secrets([SECRET], added.extend)
    mine, other = server.copy_for_run(), server.copy_for_run()
    mine.add(["fresh-token", SECRET])
    mine.add(["fresh-token"])
    message = f"fresh-token {SECRET}"
    assert Redactor(mine).redact_text(message) == f"{REDACTED} {REDACTED}"
    assert [Redactor(secrets).redact_text(message) for secrets in (other, server)] == [f"fresh-token {REDACTED}"] * 2
    assert added == ["fresh-token"]


@pytest.mark.parametrize("length", [511, 512, 513, 1024, 1025, 10_000])
def test_a_long_secret_is_found_whole_and_in_its_stream(length: int) -> None:
    secret = "".join(random.Random(length).choices("abcdefghijklmnopqrstuvwxyz", k=length))
    assert Redactor([secret]).redact_text(f"<{secret}>").replace(REDACTED, "") == "<>"
    pieces = [secret[at : at + 7] for at in range(0, length, 7)]
    events = fed(Redactor([secret]), [text("<"), *map(text, pieces), text(">"), TextMessageEnd(message_id="m")])
    assert (
        "".join(event.delta for event in events if isinstance(event, TextMessageContent)).replace(REDACTED, "") == "<>"
    )


def test_a_repeated_character_inside_a_long_secret_is_not_replaced_elsewhere() -> None:
    """A piece of a long value is searched for alone, and was the zeros of a certificate."""
    rng = random.Random(5)
    secret = (
        "".join(rng.choices(string.ascii_letters, k=100))
        + "A" * 600
        + "".join(rng.choices(string.ascii_letters, k=100))
    )
    redactor = Redactor([secret])
    assert redactor.redact_text("data:image/png;base64," + "A" * 300) == "data:image/png;base64," + "A" * 300
    assert redactor.redact_text(f"<{secret}>") == "<[redacted]>"


def test_no_guess_at_the_next_character_of_a_long_secret_is_answered() -> None:
    """A match was extended as far as the text equalled the secret: who knew a part of it read the rest character by character."""
    secret = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=300))
    redactor = Redactor([secret])
    for known in range(40, 290, 7):
        right, wrong = secret[: known + 1], secret[:known] + ("!" if secret[known] != "!" else "?")
        shown = [redactor.redact_text(f"{guess}|") for guess in (right, wrong)]
        assert len(shown[0]) == len(shown[1])
    assert redactor.redact_text(f"<{secret}>") == f"<{REDACTED}>"


def test_a_number_that_is_a_secret_is_replaced() -> None:
    redactor = Redactor(["83910274658391027"])
    assert redactor.redact_value({"k": [83910274658391027, 5, True]}) == {"k": [REDACTED, 5, True]}


def test_a_number_that_no_line_can_have_is_left_for_the_writer_to_refuse() -> None:
    """Python refuses to print a number of more than 4,300 digits."""
    assert Redactor([SECRET]).redact_value({"a": 10**5000, "b": SECRET}) == {"a": 10**5000, "b": REDACTED}


def test_a_key_file_does_not_cost_quadratic_time() -> None:
    lines = ("".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=64)) for seed in range(400))
    tracemalloc.start()
    try:
        secrets = Secrets(["\n".join(lines)])
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert not secrets.is_empty


def merged_replacement(source: str, secrets: set[str]) -> str:
    """The rule spelled out the slow way: mark every character of every occurrence, join occurrences that overlap."""
    spans = [(at, at + len(secret)) for at in range(len(source)) for secret in secrets if source.startswith(secret, at)]
    out, end = "", 0
    for start, stop in sorted(spans):
        if start < end:
            end = max(end, stop)
            continue
        out += source[end:start] + REDACTED
        end = stop
    return out + source[end:]


def random_secrets(rng: random.Random, alphabet: str) -> set[str]:
    secrets = {"".join(rng.choices(alphabet, k=rng.randint(8, 20))) for _ in range(rng.randint(1, 4))}
    one = rng.choice(sorted(secrets))
    secrets.add(one + "".join(rng.choices(alphabet, k=3)))
    secrets.add(one[rng.randint(0, 3) :] + "".join(rng.choices(alphabet, k=8)))
    return {secret for secret in secrets if len(secret.strip()) >= 8 and estimate_bits(secret.strip()) >= 10}


def random_text(rng: random.Random, alphabet: str, secrets: set[str]) -> str:
    known = sorted(secrets)
    pieces = [
        rng.choice(known) if rng.random() < 0.4 else rng.choice(known)[: rng.randint(0, 12)]
        for _ in range(rng.randint(0, 8))
    ]
    return "".join(piece + "".join(rng.choices(alphabet, k=rng.randint(0, 4))) for piece in pieces)


def split(rng: random.Random, source: str) -> list[str]:
    cuts = sorted(rng.randint(0, len(source)) for _ in range(rng.randint(0, 12)))
    return [source[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(source)], strict=True)]


def interleaved(rng: random.Random, texts: dict[str, str]) -> list[Event]:
    """Every text as the deltas of one message, call or reasoning, mixed with each other and ended in turn."""
    queues = {name: _lane(name, split(rng, source)) for name, source in texts.items()}
    events: list[Event] = []
    while queues:
        name = rng.choice(sorted(queues))
        events.append(queues[name].pop(0))
        if not queues[name]:
            del queues[name]
        if rng.random() < 0.1:
            events.append(Raw(event={"n": 1}))
    return events


def _lane(name: str, deltas: list[str]) -> list[Event]:
    match name[0]:
        case "t":
            return [*(text(delta, name) for delta in deltas), TextMessageEnd(message_id=name)]
        case "r":
            contents = (ReasoningMessageContent(message_id=name, delta=delta) for delta in deltas)
            return [*contents, ReasoningMessageEnd(message_id=name)]
        case _:
            return [*(ToolCallArgs(tool_call_id=name, delta=delta) for delta in deltas), ToolCallEnd(tool_call_id=name)]


def joined(events: Iterable[Event]) -> dict[str, str]:
    found: dict[str, str] = {}
    for event in events:
        match event:
            case TextMessageContent() | ReasoningMessageContent():
                found[event.message_id] = found.get(event.message_id, "") + event.delta
            case ToolCallArgs():
                found[event.tool_call_id] = found.get(event.tool_call_id, "") + event.delta
            case _:
                pass
    return found


@pytest.mark.parametrize("alphabet", ["ab", "abcd", "ab\\\\/-."])
def test_random_texts_split_at_random_over_mixed_streams_come_out_as_if_redacted_whole(
    alphabet: str, long: bool
) -> None:
    rng = random.Random(7)
    for _ in range(2000 if long else 100):
        secrets = random_secrets(rng, alphabet)
        texts = {name: random_text(rng, alphabet, secrets) for name in ("t1", "t2", "r1", "c1")}
        redactor = Redactor(secrets)
        out = fed(redactor, interleaved(rng, texts))
        whole = {name: Redactor(secrets).redact_text(source) for name, source in texts.items()}
        assert {name: joined(out).get(name, "") for name in texts} == whole
        assert not any(secret in result for secret in secrets for result in whole.values())
        lines = [encode_event(event).decode() for event in out]
        assert not any(json.dumps(secret, ensure_ascii=False)[1:-1] in line for secret in secrets for line in lines)


def test_redacting_a_text_replaces_exactly_the_joined_occurrences() -> None:
    rng = random.Random(11)
    for _ in range(400):
        secrets = random_secrets(rng, "abc")
        source = random_text(rng, "abc", secrets)
        assert Redactor(secrets).redact_text(source) == merged_replacement(source, secrets)


@dataclasses.dataclass
class Held:
    value: str


class Known(enum.Enum):
    VALUE = SECRET


@pytest.mark.parametrize(
    "value",
    [
        Held(SECRET),
        [Held(SECRET)],
        {SECRET},
        frozenset([SECRET]),
        (SECRET,),
        Known.VALUE,
        msgspec.Raw(msgspec.json.encode([SECRET])),
        {"a": [{"b": Held(SECRET)}]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_the_encoder_can_write_is_searched(value: Any) -> None:
    """A dataclass, a set or an enum in an agent's event used to be written as it was, with the secret in it."""
    (clean,) = Redactor([SECRET]).feed(Custom(name="x:y", value=value))
    line = encode_event(clean)
    assert SECRET.encode() not in line
    assert REDACTED.encode() in line


def test_what_cannot_be_written_is_left_for_the_writer_to_refuse() -> None:
    event = Custom(name="x:y", value=[SECRET, object()])
    (clean,) = Redactor([SECRET]).feed(event)
    assert isinstance(clean, Custom)
    assert clean.value[0] == REDACTED
