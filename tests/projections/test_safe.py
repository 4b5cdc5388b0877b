"""The audience `safe`: which fields of an agent's events clients on other machines see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ambient_runner.projections.exposure import ExposureRules
from ambient_runner.projections.known_calls import UNKNOWN_CALL, KnownCall
from ambient_runner.projections.safe import needs_projection, project_safe
from ambient_runner.protocol.events import (
    EVENT_TYPES,
    ActivityDelta,
    ActivityMessage,
    ActivitySnapshot,
    AssistantMessage,
    Custom,
    DataSource,
    Event,
    FunctionCall,
    ImagePart,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    Raw,
    ReasoningMessage,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    RunError,
    RunFinished,
    RunStarted,
    StepStarted,
    SubagentError,
    SubagentStarted,
    TextMessageContent,
    TokenUsage,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolMessage,
    UserMessage,
    decode_event,
    encode_event,
    type_of,
)
from tests.audience_table import documented_retention
from tests.protocol.samples import every_event, populated

NOTHING_EXPOSED = ExposureRules()
ARGUMENTS = '{"query": "the secret plan", "limit": 3}'
CALLS = {
    "backend": KnownCall("search", ARGUMENTS, is_client=False),
    "frontend": KnownCall("show_chart", ARGUMENTS, is_client=True),
}


def find_call(call_id: str) -> KnownCall:
    return CALLS.get(call_id, UNKNOWN_CALL)


def safe(event: Event, **exposure: Any) -> list[Event]:
    rules = ExposureRules(by_name={"*" if name == "any" else name: rule for name, rule in exposure.items()})
    return project_safe(event, rules, find_call)


def summary(reason: str, kind: str, size: int, *keys: str) -> dict[str, Any]:
    return {"redacted": True, "reason": reason, "type": kind, "bytes": size, "keys": list(keys)}


def as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


ARGUMENTS_SUMMARY = as_text(summary("tool_arguments", "object", len(ARGUMENTS), "query", "limit"))


def retention_of(kind: type[Any]) -> tuple[set[str], set[str], set[str]]:
    """The members of an event that are kept, changed and left out, as the function does it to an event with every member."""
    kept, changed, gone = set[str](), set[str](), set[str]()
    for event in populated(kind):
        found = [safe for safe in project_safe(event, NOTHING_EXPOSED, find_call) if isinstance(safe, kind)]
        before = msgspec.to_builtins(event)
        after: dict[str, Any] = msgspec.to_builtins(found[-1]) if found else {}
        for name in before.keys() - {"type"}:
            same = name in after and after[name] == before[name]
            (kept if same else changed if name in after else gone).add(name)
    kept -= changed | gone
    return kept, changed, gone - changed


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: str(kind.__struct_config__.tag))
def test_the_page_says_of_every_field_whether_it_is_kept(kind: type[Any]) -> None:
    assert documented_retention()[str(kind.__struct_config__.tag)] == retention_of(kind)


@pytest.mark.parametrize("event", every_event(), ids=type_of)
def test_an_event_that_changes_is_recognised_by_its_line(event: Event) -> None:
    if project_safe(event, NOTHING_EXPOSED, find_call) != [event]:
        assert needs_projection(encode_event(event), NOTHING_EXPOSED)


def test_a_text_delta_is_sent_as_it_is_stored() -> None:
    line = encode_event(TextMessageContent(message_id="m", delta='{"metadata": {"rawEvent": 1}}'))
    assert not needs_projection(line, NOTHING_EXPOSED)


def test_a_text_delta_loses_metadata_of_a_provider() -> None:
    event = TextMessageContent(message_id="m", delta="x", metadata={"model_url": "https://x"}, raw_event={"a": 1})
    assert needs_projection(encode_event(event), NOTHING_EXPOSED)
    assert safe(event) == [TextMessageContent(message_id="m", delta="x")]


CHECKPOINT = "1f0a2b3c-4d5e-6f70-8123-456789abcdef"
OURS = {
    "traceId": "0" * 32,
    "parentSpanId": "0" * 16,
    "checkpointId": CHECKPOINT,
    "isError": True,
    "summary": True,
    "summaryRef": "s-1",
    "model_url": "https://x",
}
"""Every name of metadata that this server uses, and one of a provider."""


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (RunStarted, {"traceId", "parentSpanId"}),
        (RunFinished, {"checkpointId"}),
        (ToolCallResult, {"isError"}),
        (ReasoningMessageEnd, {"summary", "summaryRef"}),
        (ReasoningMessageContent, {"summary", "summaryRef"}),
        (TextMessageContent, set[str]()),
        (StepStarted, set[str]()),
        (ToolCallEnd, set[str]()),
        (RunError, set[str]()),
        (Custom, set[str]()),
    ],
)
def test_metadata_is_kept_where_this_server_writes_it(kind: type[Any], kept: set[str]) -> None:
    shown = safe(replace(populated(kind)[0], metadata=OURS))[-1]
    assert shown.metadata == ({name: OURS[name] for name in kept} or None)


@pytest.mark.parametrize("kind", [RunFinished, ToolCallResult, ReasoningMessageEnd])
def test_text_of_an_agent_does_not_pass_under_a_name_of_ours(kind: type[Any]) -> None:
    metadata = dict.fromkeys(OURS, "the account is 4711") | {"summaryRef": "x" * 257}
    assert safe(replace(populated(kind)[0], metadata=metadata))[-1].metadata is None


def test_a_tool_call_is_its_start_one_summary_of_its_arguments_and_its_end() -> None:
    end = ToolCallEnd(tool_call_id="backend", subagent_run_id="s")
    assert safe(ToolCallArgs(tool_call_id="backend", delta="{")) == []
    assert safe(end) == [
        ToolCallArgs(tool_call_id="backend", delta=ARGUMENTS_SUMMARY, subagent_run_id="s"),
        end,
    ]


@pytest.mark.parametrize("rule", ["arguments", "all"])
def test_arguments_of_an_exposed_tool_are_streamed(rule: str) -> None:
    delta, end = ToolCallArgs(tool_call_id="backend", delta="{"), ToolCallEnd(tool_call_id="backend")
    assert (safe(delta, search=rule), safe(end, search=rule)) == ([delta], [end])


def test_a_tool_of_the_client_is_whole() -> None:
    events: list[Event] = [
        ToolCallArgs(tool_call_id="frontend", delta="{"),
        ToolCallEnd(tool_call_id="frontend"),
        ToolCallResult(tool_call_id="frontend", message_id="t", content="drawn"),
    ]
    assert [safe(event) for event in events] == [[event] for event in events]


def test_a_rule_wins_over_what_a_client_declares() -> None:
    assert safe(ToolCallArgs(tool_call_id="frontend", delta="{"), show_chart="summary") == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"rows": [1]}', summary("tool_result", "object", 13, "rows")),
        ("[1, 2]", summary("tool_result", "array", 6)),
        ("plain text", summary("tool_result", "string", 10)),
        ("{not json}", summary("tool_result", "string", 10)),
        ("", summary("tool_result", "string", 0)),
        ('{"a":"' + "x" * (1 << 20) + '"}', summary("tool_result", "string", (1 << 20) + 8)),
    ],
)
def test_a_result_is_a_summary(content: str, expected: dict[str, Any]) -> None:
    [shown] = safe(ToolCallResult(tool_call_id="backend", message_id="t", content=content))
    assert isinstance(shown, ToolCallResult)
    assert isinstance(shown.content, str)
    assert msgspec.json.decode(shown.content) == expected


def test_file_bytes_of_a_result_are_not_sent() -> None:
    part = ImagePart(source=DataSource(value="c2VjcmV0", mime_type="image/png"))
    [shown] = safe(ToolCallResult(tool_call_id="backend", message_id="t", content=[part]))
    assert b"c2VjcmV0" not in encode_event(shown)


def test_a_result_of_an_exposed_tool_is_whole_and_that_of_an_unknown_one_is_not() -> None:
    result = ToolCallResult(tool_call_id="backend", message_id="t", content="x")
    assert safe(result, search="result") == [result]
    assert safe(result, search="arguments") != [result]
    assert safe(ToolCallResult(tool_call_id="unheard", message_id="t", content="x"), search="all") != [result]


def test_keys_of_a_summary_are_bounded() -> None:
    many = {f"{number:03}{'k' * 100}": 1 for number in range(100)}
    [shown] = safe(Custom(name="mine", value=many))
    assert isinstance(shown, Custom)
    assert (len(shown.value["keys"]), {len(key) for key in shown.value["keys"]}) == (32, {64})


def test_the_input_of_a_run_is_its_messages() -> None:
    start = RunStarted(
        thread_id="t",
        run_id="r",
        metadata={"traceId": "1" * 32, "provider": "x"},
        input=msgspec.convert(
            {
                "threadId": "t",
                "runId": "r",
                "messages": [{"role": "user", "id": "u", "content": "hi", "metadata": {"mine": 1}}],
                "tools": [{"name": "x", "description": "y"}],
                "context": [{"description": "a", "value": "b"}],
                "state": {"a": 1},
                "forwardedProps": {"token": "x"},
                "resume": [{"interruptId": "i", "status": "resolved", "payload": {"a": 1}}],
            },
            type=type(populated(RunStarted)[0].input),
        ),
    )
    [shown] = safe(start)
    assert msgspec.to_builtins(shown) == {
        "type": "RUN_STARTED",
        "threadId": "t",
        "runId": "r",
        "metadata": {"traceId": "1" * 32},
        "input": {
            "threadId": "t",
            "runId": "r",
            "messages": [{"role": "user", "id": "u", "content": "hi", "metadata": {"mine": 1}}],
            "tools": [],
            "context": [],
            "state": summary("run_input", "object", 7, "a"),
            "forwardedProps": summary("run_input", "object", 13, "token"),
        },
    }


def test_the_output_of_a_run_is_a_summary_and_its_usage_an_event() -> None:
    usage = [TokenUsage(model="m", input_tokens=1)]
    end = RunFinished(thread_id="t", run_id="r", result={"answer": 42}, usage=usage)
    assert safe(end) == [
        Custom(name="ambient:usage", value={"usage": [{"model": "m", "inputTokens": 1}]}),
        RunFinished(thread_id="t", run_id="r", result=summary("run_output", "object", 13, "answer"), usage=usage),
    ]
    assert safe(end, any="all")[-1] == end


def test_a_failed_run_has_its_code_and_a_sentence_of_ours() -> None:
    assert safe(RunError(message="KeyError: 'sk-1'", code="agent_timeout")) == [
        RunError(message="The agent took too long and was stopped.", code="agent_timeout")
    ]
    assert safe(RunError(message="KeyError: 'sk-1'", code="their_code")) == [
        RunError(message="The agent failed. The server's log has the reason.", code="their_code")
    ]
    [abandoned] = safe(RunError(message="x", code="run_abandoned"))
    assert isinstance(abandoned, RunError)
    assert "send your message again" in abandoned.message


@pytest.mark.parametrize("code", ["KeyError: 'sk-1'", "the account is 4711", "x" * 65, ""])
def test_a_code_that_is_a_text_of_the_agent_is_not_sent(code: str) -> None:
    message = "The agent failed. The server's log has the reason."
    assert safe(RunError(message="x", code=code)) == [RunError(message=message, code="agent_error")]
    failed = SubagentError(subagent_run_id="s", message="x", code=code)
    assert safe(failed) == [SubagentError(subagent_run_id="s", message=message, code="agent_error")]


def test_raw_events_are_not_sent() -> None:
    assert safe(Raw(event={"a": 1})) == []


def test_an_interrupt_is_as_asked_and_hides_arguments_also_where_its_texts_quote_them() -> None:
    asked = Interrupt(
        id="i",
        reason="tool_call",
        message="Approve the call to transfer with account 4711-0815?",
        metadata={
            "value": {"question": "Sure?", "action_requests": [{"name": "transfer", "args": {"to": "4711-0815"}}]},
            "toolCalls": [{"name": "transfer", "args": {"to": "4711-0815"}, "description": "To 4711-0815"}],
        },
        response_schema={"type": "object"},
    )
    end = RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[asked]))
    [shown] = safe(end)
    hidden = summary("tool_arguments", "object", 18, "to")
    assert isinstance(shown, RunFinished)
    assert b"4711" not in encode_event(shown)
    assert isinstance(shown.outcome, Interrupted)
    [interrupt] = shown.outcome.interrupts
    assert interrupt.metadata == {
        "value": {"question": "Sure?", "action_requests": [{"name": "transfer", "args": hidden}]},
        "toolCalls": [
            {"name": "transfer", "args": hidden, "description": "The arguments of this call are not shown to you."}
        ],
    }
    assert interrupt.response_schema == {"type": "object"}
    assert safe(end, transfer="arguments") == [end]


@pytest.mark.parametrize("quote", [repr, json.dumps, str])
@pytest.mark.parametrize("key", ["args", "input", "parameters", "kwargs"])
def test_arguments_are_hidden_also_where_a_text_quotes_them_escaped(key: str, quote: Callable[[str], str]) -> None:
    command = 'psql -c "select 1"\necho it\'s HIDDEN'
    request = {"name": "shell", key: {"command": command}, "description": f"Args: {{'command': {quote(command)}}}"}
    asked = Interrupt(
        id="i", reason="tool_call", message=f"Run {quote(command)}?", metadata={"action_requests": [request]}
    )
    [shown] = safe(RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[asked])))
    assert b"HIDDEN" not in encode_event(shown)


def asked_about(call_id: str, message: str, **more: Any) -> RunFinished:
    interrupt = Interrupt(id="i", reason="tool_call", message=message, tool_call_id=call_id, **more)
    return RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[interrupt]))


def test_an_interrupt_hides_the_arguments_of_its_call_also_if_it_does_not_repeat_them() -> None:
    hidden = "The arguments of this call are not shown to you."
    assert safe(asked_about("backend", "Search for the secret plan?")) == [asked_about("backend", hidden)]
    shown = asked_about("backend", "Search for the secret plan?")
    assert safe(shown, search="arguments") == [shown]
    of_client = asked_about("frontend", "Draw the secret plan?")
    assert safe(of_client) == [of_client]


def test_the_names_of_an_agents_options_are_hidden_with_the_arguments_of_its_call() -> None:
    option = {"optionId": "always", "kind": "allow_always"}
    named = {"options": [{**option, "name": "Yes, and always for commands that begin with `the sec`"}]}
    [shown] = safe(asked_about("backend", "Run it?", metadata=named))
    assert shown == asked_about("backend", "Run it?", metadata={"options": [option]})
    exposed = asked_about("backend", "Run it?", metadata=named)
    assert safe(exposed, search="arguments") == [exposed]


def test_arguments_as_json_text_are_hidden_where_a_text_quotes_a_part_of_them() -> None:
    metadata = {"name": "search", "arguments": ARGUMENTS}
    [shown] = safe(asked_about("", "Search for the secret plan?", metadata=metadata))
    assert b"secret" not in encode_event(shown)


def test_arguments_are_hidden_in_the_descriptions_and_defaults_of_a_response_schema() -> None:
    edited = {"type": "object", "title": "Not the secret plan?", "default": {"query": "the secret plan"}}
    choice = {"enum": ["the secret plan", "another"]}
    schema = {"type": "object", "properties": {"editedArgs": edited, "choice": choice}}
    [shown] = safe(asked_about("backend", "Search?", response_schema=schema))
    hidden = "The arguments of this call are not shown to you."
    edited = {"type": "object", "title": hidden, "default": {"query": hidden}}
    schema = {"type": "object", "properties": {"editedArgs": edited, "choice": {"enum": ["another"]}}}
    assert shown == asked_about("backend", "Search?", response_schema=schema)


HIDDEN = "The arguments of this call are not shown to you."


def asked_with(arguments: Any, **members: Any) -> Interrupt:
    """Return an interrupt about a call with these arguments, as the audience `safe` gets it."""
    asked = Interrupt(**{"id": "i", "reason": "tool_call", "tool_call_id": "c", **members})
    end = RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[asked]))
    call = KnownCall("pay", json.dumps(arguments), is_client=False)
    [shown] = project_safe(end, NOTHING_EXPOSED, {"c": call}.__getitem__)
    assert isinstance(shown, RunFinished)
    assert isinstance(shown.outcome, Interrupted)
    return shown.outcome.interrupts[0]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("bob@corp.example", "Send to BOB@CORP.EXAMPLE?"),
        ("bob@corp.example", "Send to someone at corp.example?"),
        ("bob", "Send to Bob?"),
        (98765, "Pay 98765 EUR?"),
        (98765, "Pay 98,765.00 EUR?"),
        (98765, "Pay 98.765,00 EUR?"),
        (98765, "Pay 98\u202f765 EUR?"),
        (98000, "Pay 98,000 EUR?"),
        (98765.5, "Pay 98,765.50 EUR?"),
        (1e6, "Pay 1'000'000?"),
        (500, "Pay 500.00 EUR?"),
        ("98765.00", "Pay 98,765 EUR?"),
        ("/home/bob/salaries-2026.xlsx", "Delete salaries-2026.xlsx?"),
        ("/home/bob/salaries-2026.xlsx", "Delete the Salaries-2026 sheet?"),
        ("C:\\data\\plans.txt", "Delete plans.txt?"),
        ("rm -rf /srv/data\necho done", "Run:\n  rm -rf /srv/data\n  echo done"),
        ("first line of it\nsecond line of it", "> first line of it\n> second line of it"),
        (
            "Dear Ms. Smith, your account 17 is overdrawn by much",
            'Send "Dear Ms. Smith, your account 17 is overdrawn…"?',
        ),
        ({"deep": ["word-in-a-list"]}, "Do word-in-a-list?"),
    ],
)
def test_a_message_that_quotes_a_hidden_argument_in_another_form_is_replaced(argument: Any, message: str) -> None:
    assert asked_with({"to": argument}, message=message).message == HIDDEN


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("bob", "May the bobbin turn?"),
        ("/srv/data/x", "Restore the database?"),
        (500, "Pay 1500 EUR?"),
        (3, "Try 3 times?"),
        (True, "Is it true?"),
        ("https://corp.example/a", "See https://docs.example first?"),
    ],
)
def test_a_message_that_quotes_no_argument_is_kept(argument: Any, message: str) -> None:
    assert asked_with({"to": argument}, message=message).message == message


def test_a_reason_that_quotes_a_hidden_argument_is_replaced() -> None:
    to = {"to": "bob@corp.example"}
    assert asked_with(to, reason="send to bob@corp.example").reason == "tool_call"
    assert asked_with(to, reason="send_mail").reason == "send_mail"
    assert asked_with({"to": "confirmation"}, reason="confirmation").reason == "confirmation"


def test_a_response_schema_tells_which_answers_fit_without_hidden_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {
            "to": {"const": "bob@corp.example"},
            "copy": {"type": "string", "enum": ["bob@corp.example", "nobody"]},
            "only": {"enum": ["bob@corp.example"]},
            "amount": {"type": "number", "maximum": 98765, "minimum": 1},
            "decision": {"enum": ["approve", "reject"]},
            "mail": {"type": "string", "pattern": "^bob@corp.example$"},
            "bob@corp.example": {"type": "string"},
        },
        "required": ["decision", "bob@corp.example"],
    }
    arguments = {"to": "bob@corp.example", "amount": 98765, "mode": "approve"}
    assert asked_with(arguments, response_schema=schema).response_schema == {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "copy": {"type": "string", "enum": ["nobody"]},
            "only": {"type": "string"},
            "amount": {"type": "number", "minimum": 1},
            "decision": {"enum": ["approve", "reject"]},
            "mail": {"type": "string"},
        },
        "required": ["decision"],
    }


def test_metadata_hides_numbers_and_names_that_are_arguments_and_keeps_its_structure() -> None:
    metadata = {
        "total": 98765,
        "bob@corp.example": 1,
        "value": {"allowed_decisions": ["edit"]},
        "argumentsDigest": "987654",
    }
    arguments = {"to": "bob@corp.example", "amount": 98765, "column": "value", "mode": "edit"}
    assert asked_with(arguments, metadata=metadata).metadata == {
        "total": HIDDEN,
        "value": {"allowed_decisions": ["edit"]},
        "argumentsDigest": "987654",
    }


def test_a_question_to_a_person_stays_as_it_was_asked() -> None:
    asked = Interrupt(id="i", reason="input_required", message="Which one?", metadata={"questions": [{"q": "Which?"}]})
    end = RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[asked]))
    assert safe(end) == [end]


def test_reasoning_is_one_marker() -> None:
    assert safe(ReasoningMessageContent(message_id="r", delta="they want")) == []
    marker, end = safe(ReasoningMessageEnd(message_id="r", metadata={"signature": "x", "summaryRef": "s-1"}))
    assert marker == ReasoningMessageContent(message_id="r", delta="[reasoning is hidden]")
    assert end == ReasoningMessageEnd(message_id="r", metadata={"summaryRef": "s-1"})


def test_a_summary_that_the_framework_gave_as_such_is_shown() -> None:
    marked = {"summary": True}
    delta = ReasoningMessageContent(message_id="r", delta="Looked it up.", metadata=marked)
    end = ReasoningMessageEnd(message_id="r", metadata=marked)
    assert (safe(delta), safe(end)) == ([delta], [end])


def test_signatures_are_left_out_even_if_everything_else_is_exposed() -> None:
    [_, end] = safe(ReasoningMessageEnd(message_id="r", metadata={"signature": "x"}), any="all")
    assert end == ReasoningMessageEnd(message_id="r")


def test_an_activity_has_its_name_and_progress() -> None:
    content = {"title": "Cloning", "progress": 0.5, "log": ["secret"], "status": "x" * 101}
    [shown] = safe(ActivitySnapshot(message_id="a", activity_type="JOB", content=content))
    assert isinstance(shown, ActivitySnapshot)
    assert shown.content == {
        "redacted": True,
        "reason": "activity",
        "type": "object",
        "title": "Cloning",
        "progress": 0.5,
        "status": None,
    }


def test_a_patch_of_an_activity_changes_what_is_shown_of_it() -> None:
    patch = [
        {"op": "replace", "path": "/progress", "value": 0.7},
        {"op": "add", "path": "/log/-", "value": "secret"},
        {"op": "replace", "path": "/status", "value": {"secret": 1}},
        {"op": "remove", "path": "/title"},
    ]
    [shown] = safe(ActivityDelta(message_id="a", activity_type="JOB", patch=patch))
    assert isinstance(shown, ActivityDelta)
    assert shown.patch == [
        {"op": "add", "path": "/progress", "value": 0.7},
        {"op": "add", "path": "/status", "value": None},
        {"op": "remove", "path": "/title"},
    ]
    assert safe(ActivityDelta(message_id="a", activity_type="JOB", patch=patch[1:2])) == []


def test_an_exposed_activity_and_event_are_whole() -> None:
    activity = ActivitySnapshot(message_id="a", activity_type="JOB", content={"log": 1})
    event = Custom(name="mine", value=1)
    assert safe(activity, JOB="all") == [activity]
    assert safe(event, mine="all") == [event]


def test_our_own_events_are_whole() -> None:
    event = Custom(name="ambient:dropped", value={"a": 1})
    assert safe(event) == [event]


def mapping(tool: str, **more: Any) -> dict[str, Any]:
    return {"state_key": "draft", "tool": tool, "tool_argument": "text", **more}


def test_a_prediction_of_state_has_the_mappings_of_tools_whose_arguments_are_shown() -> None:
    listed = [mapping("write", note="the plan"), mapping("search"), mapping("write", state_key={"a": "the plan"}), "x"]
    event = Custom(name="PredictState", value=listed)
    shown = {"state_key": "draft", "tool": "write", "tool_argument": "text"}
    assert safe(event, write="arguments") == [Custom(name="PredictState", value=[shown])]
    assert safe(event, PredictState="all") == [event]


@pytest.mark.parametrize("value", [[mapping("search")], {"a": "the plan"}, "the plan", None])
def test_a_prediction_from_summarised_arguments_is_not_sent(value: Any) -> None:
    assert safe(Custom(name="PredictState", value=value)) == []


def test_a_subagent_has_its_name() -> None:
    assert safe(SubagentStarted(subagent_run_id="s", name="writer", description="the task")) == [
        SubagentStarted(subagent_run_id="s", name="writer")
    ]


def test_a_snapshot_has_the_messages_as_they_were_streamed() -> None:
    function = FunctionCall(name="search", arguments=ARGUMENTS)
    snapshot = MessagesSnapshot(
        messages=[
            UserMessage(id="u", content="hi", encrypted_value="x"),
            AssistantMessage(
                id="m",
                content="Here.",
                metadata={"provider": "x"},
                encrypted_value="x",
                tool_calls=[
                    ToolCall(id="backend", function=function, encrypted_value="x"),
                    ToolCall(id="frontend", function=FunctionCall(name="show_chart", arguments=ARGUMENTS)),
                ],
            ),
            ToolMessage(id="t", tool_call_id="backend", content="rows", error="no", metadata={"isError": True}),
            ToolMessage(id="t2", tool_call_id="frontend", content="drawn"),
            ReasoningMessage(id="r", content="they want", encrypted_value="x"),
            ActivityMessage(id="a", activity_type="JOB", content={"progress": 1, "log": 2}),
        ]
    )
    [shown] = safe(snapshot)
    assert shown == MessagesSnapshot(
        messages=[
            UserMessage(id="u", content="hi"),
            AssistantMessage(
                id="m",
                content="Here.",
                tool_calls=[
                    ToolCall(id="backend", function=FunctionCall(name="search", arguments=ARGUMENTS_SUMMARY)),
                    ToolCall(id="frontend", function=FunctionCall(name="show_chart", arguments=ARGUMENTS)),
                ],
            ),
            ToolMessage(
                id="t",
                tool_call_id="backend",
                content=as_text(summary("tool_result", "string", 4)),
                metadata={"isError": True},
            ),
            ToolMessage(id="t2", tool_call_id="frontend", content="drawn"),
            ReasoningMessage(id="r", content="[reasoning is hidden]"),
            ActivityMessage(
                id="a",
                activity_type="JOB",
                content={"redacted": True, "reason": "activity", "type": "object", "progress": 1},
            ),
        ]
    )


@pytest.mark.parametrize("event", every_event(), ids=type_of)
def test_what_is_shown_is_a_valid_event(event: Event) -> None:
    for shown in project_safe(event, NOTHING_EXPOSED, find_call):
        assert decode_event(encode_event(shown)) == shown
