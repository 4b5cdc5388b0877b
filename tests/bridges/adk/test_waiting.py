"""Calls that wait for someone outside: tools of the client, long-running tools, and what becomes of them (D10 to D12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent, SequentialAgent
from google.adk.apps import App
from google.adk.apps.app import ResumabilityConfig
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.tools.base_toolset import BaseToolset

from ambient_runner.errors import InvalidInput
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from ambient_runner.protocol.ids import client_safe_id
from tests.bridges.adk.scripted import Scripted, call
from tests.bridges.adk.world import agent, questions, short, talking, yes
from tests.world import user

PAINT = e.Tool(
    name="paint",
    description="Paint the background.",
    parameters={
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"color": {"type": "string"}},
        "additionalProperties": False,
    },
)


def ask(question: str) -> None:
    """Ask a person."""


def look(city: str) -> dict[str, Any]:
    """Look at the weather."""
    return {"sky": "clear"}


ASK = LongRunningFunctionTool(ask)
CALL_ASK = call("ask", "l1", question="Sure?")
SEEN_ASK = ("model", ("call", "ask", {"question": "Sure?"}))
ASKED = ["RS", "CS l1 ask", 'CA l1 {"question":"Sure?"}', "CE l1", "RF waits for l1"]
HELLO = [("user", "hi")]


async def test_a_backend_call_next_to_a_pending_one_sends_its_result_and_the_model_is_not_called_again() -> None:
    def note(text: str, tool_context: ToolContext) -> dict[str, Any]:
        """Note something."""
        tool_context.state["noted"] = text
        return {"ok": True}

    root, model = agent(["One ", CALL_ASK, call("note", "b1", text="x")], ["Done."], tools=[ASK, note])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "TS m1",
            "TC One ",
            "TE",
            "CS l1 ask",
            'CA l1 {"question":"Sure?"}',
            "CS b1 note",
            'CA b1 {"text":"x"}',
            "CE b1",
            'CR b1 {"ok":true}',
            "CE l1",
            "SD [{'op': 'add', 'path': '/noted', 'value': 'x'}]",
            "SS {'noted': 'x'}",
            "RF waits for l1",
        ]
        assert model.calls == 1
        assert await talk.answer(("l1", '{"yes": true}')) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [
        HELLO,
        [
            *HELLO,
            ("model", "One "),
            SEEN_ASK,
            ("model", ("call", "note", {"text": "x"})),
            ("user", ("result", "note", {"ok": True})),
            ("user", ("result", "ask", {"yes": True})),
        ],
    ]


async def test_a_call_under_an_id_that_no_client_could_send_back_is_answered() -> None:
    """It was not: ADK knew the call by the model's id, the client by another."""
    endless = "call_" + "x" * 300
    root, model = agent([call("paint", endless, color="red")], ["Done."])
    async with talking(root) as talk:
        assert (await talk.say("u1", tools=[PAINT]))[-1] == f"RF waits for {client_safe_id(endless)}"
        assert await talk.answer((client_safe_id(endless), "painted")) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    painted = [("model", ("call", "paint", {"color": "red"})), ("user", ("result", "paint", {"result": "painted"}))]
    assert model.saw == [HELLO, [*HELLO, *painted]]


async def test_a_tool_of_the_client_is_offered_to_the_model_and_waits_for_the_client() -> None:
    root, model = agent([call("paint", "f1", color="red"), call("look", "b1", city="Rome")], ["Done."], tools=[look])
    async with talking(root) as talk:
        assert await talk.say("u1", tools=[PAINT]) == [
            "RS",
            "CS f1 paint",
            'CA f1 {"color":"red"}',
            "CS b1 look",
            'CA b1 {"city":"Rome"}',
            "CE b1",
            'CR b1 {"sky":"clear"}',
            "CE f1",
            "RF waits for f1",
        ]
        assert await talk.answer(("f1", "painted"), tools=[PAINT]) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [
        HELLO,
        [
            *HELLO,
            ("model", ("call", "paint", {"color": "red"})),
            ("model", ("call", "look", {"city": "Rome"})),
            ("user", ("result", "look", {"sky": "clear"})),
            ("user", ("result", "paint", {"result": "painted"})),
        ],
    ]
    declared = [tool for one in model.requests[0].config.tools or [] for tool in one.function_declarations or []]
    schema = next(tool.parameters_json_schema for tool in declared if tool.name == "paint")
    assert schema == {"type": "object", "properties": {"color": {"type": "string"}}}


async def test_tools_of_one_request_are_not_there_in_the_next() -> None:
    root, model = agent(["A"], ["B"])
    async with talking(root) as talk:
        await talk.say("u1", tools=[PAINT])
        await talk.say("u2")
    assert [sorted(request.tools_dict) for request in model.requests] == [["paint"], []]


def dropped(events: Sequence[e.Event]) -> list[Any]:
    return [event.value for event in events if isinstance(event, e.Custom) and event.name == "ambient:dropped"]


TAKEN = {"type": "TOOLS", "reason": "name_taken", "names": ["look"]}
FORGED = e.Tool(name="look", description="mine", parameters={"type": "object"})


async def test_a_tool_of_the_agent_keeps_its_name() -> None:
    root, model = agent([call("look", "b1", city="Rome")], ["Done."], tools=[look])
    async with talking(root) as talk:
        events = await talk.run(user("u1"), tools=[FORGED])
    assert [word for word in short(events) if not word.startswith("X ")] == [
        "RS",
        "CS b1 look",
        'CA b1 {"city":"Rome"}',
        "CE b1",
        'CR b1 {"sky":"clear"}',
        "TS m1",
        "TC Done.",
        "TE",
        "RF",
    ]
    assert dropped(events) == [TAKEN]
    assert model.calls == 2


async def test_a_tool_of_another_agent_of_the_tree_keeps_its_name() -> None:
    """The agent that lacks the tool was offered the client's, and its call went to the client."""
    helper = LlmAgent(name="helper", model=Scripted.of(["unused"]), tools=[look])
    root, model = agent(["Done."], sub_agents=[helper])
    async with talking(root) as talk:
        events = await talk.run(user("u1"), tools=[FORGED, PAINT])
    assert dropped(events) == [TAKEN]
    assert sorted(model.requests[0].tools_dict) == ["paint", "transfer_to_agent"]


async def test_a_tool_of_a_toolset_keeps_its_name() -> None:
    class Tools(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return [FunctionTool(look)]

    root, model = agent([call("look", "b1", city="Rome")], ["Done."], tools=[Tools()])
    async with talking(root) as talk:
        events = await talk.run(user("u1"), tools=[FORGED])
    assert 'CR b1 {"sky":"clear"}' in short(events)
    assert dropped(events) == [TAKEN]
    assert model.calls == 2


async def test_a_resumable_app_pauses_and_continues_in_the_same_way() -> None:
    root, model = agent([CALL_ASK, call("look", "b1", city="Rome")], ["Done."], tools=[ASK, look])
    app = App(name="app", root_agent=root, resumability_config=ResumabilityConfig(is_resumable=True))
    async with talking(app) as talk:
        first = await talk.say("u1")
        second = await talk.answer(("l1", "yes"))
    assert first == [
        *ASKED[:3],
        *("CS b1 look", 'CA b1 {"city":"Rome"}', "CE b1", 'CR b1 {"sky":"clear"}', "CE l1", "RF waits for l1"),
    ]
    assert second == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [
        HELLO,
        [
            *HELLO,
            SEEN_ASK,
            ("model", ("call", "look", {"city": "Rome"})),
            ("user", ("result", "look", {"sky": "clear"})),
            ("user", ("result", "ask", {"result": "yes"})),
        ],
    ]


async def test_a_long_running_tool_that_gives_a_first_result_does_not_wait() -> None:
    def order(what: str) -> dict[str, Any]:
        """Order something."""
        return {"status": "ordered"}

    root, model = agent([call("order", "l1", what="tea")], ["On its way."], tools=[LongRunningFunctionTool(order)])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS l1 order",
            'CA l1 {"what":"tea"}',
            "CE l1",
            'CR l1 {"status":"ordered"}',
            "TS m1",
            "TC On its ",
            "TC way.",
            "TE",
            "RF",
        ]
    assert model.calls == 2


def request_approval(item: str, tool_context: ToolContext) -> dict[str, Any]:
    """Request an approval."""
    tool_context.state["ticket"] = f"T-{item}"
    return {"status": "pending", "ticket": f"T-{item}"}


REQUEST = LongRunningFunctionTool(request_approval)
SEEN_REQUEST = ("model", ("call", "request_approval", {"item": "a"}))
APPROVED = ("user", ("result", "request_approval", {"status": "approved"}))


@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_a_bridge_that_waits_for_long_running_tools_lets_the_client_answer_a_first_result(
    resumable: bool, restarted: bool
) -> None:
    """The run of a canonical long-running tool once continued with its first result, and the client's was refused."""
    root, model = agent([call("request_approval", "l1", item="a")], ["Done."], tools=[REQUEST])
    app = App(name="app", root_agent=root, resumability_config=ResumabilityConfig(is_resumable=resumable))
    options = {"waits_for_long_running_tools": True}
    async with MemoryLedger() as ledger:
        async with talking(app, ledger, **options) as talk:
            assert await talk.say("u1") == [
                "RS",
                "CS l1 request_approval",
                'CA l1 {"item":"a"}',
                "CE l1",
                "SD [{'op': 'add', 'path': '/ticket', 'value': 'T-a'}]",
                "SS {'ticket': 'T-a'}",
                "RF waits for l1",
            ]
            answered = [] if restarted else await talk.answer(("l1", '{"status": "approved"}'))
        async with talking(app, ledger, **options) as talk:
            answered = answered or await talk.answer(("l1", '{"status": "approved"}'))
            shown = [message.content for message in await talk.messages()]
    assert answered == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [HELLO, [*HELLO, SEEN_REQUEST, APPROVED]]
    assert shown == ["hi", None, '{"status": "approved"}', "Done."]


async def test_two_first_results_wait_for_both_answers() -> None:
    both = [call("request_approval", f"l{n}", item=item) for n, item in enumerate("ab", 1)]
    root, model = agent(both, ["Done."], tools=[REQUEST])
    async with talking(root, waits_for_long_running_tools=True) as talk:
        assert (await talk.say("u1"))[-1] == "RF waits for l1 l2"
        assert (await talk.answer(("l1", "yes")))[-1] == "RF waits for l2"
        assert model.calls == 1
        assert (await talk.answer(("l2", "no")))[-1] == "RF"
    results = [("user", ("result", "request_approval", {"result": answer})) for answer in ("yes", "no")]
    assert model.saw[1][-2:] == results


async def test_a_new_message_abandons_a_call_with_a_first_result() -> None:
    root, model = agent([call("request_approval", "l1", item="a")], ["Fine."], tools=[REQUEST])
    async with talking(root, waits_for_long_running_tools=True) as talk:
        assert (await talk.say("u1"))[-1] == "RF waits for l1"
        assert (await talk.say("u2", "Never mind."))[-1] == "RF"
    assert model.saw[1] == [
        *HELLO,
        SEEN_REQUEST,
        ("user", ("result", "request_approval", {"error": "This call was cancelled: it was never answered."})),
        ("user", "Never mind."),
    ]


async def test_a_first_result_after_a_confirmation_waits_too() -> None:
    tool = FunctionTool(request_approval, require_confirmation=True)
    tool.is_long_running = True
    root, model = agent([call("request_approval", "l1", item="a")], ["Done."], tools=[tool])
    async with talking(root, waits_for_long_running_tools=True) as talk:
        asked = await talk.run(user("u1", "hi"))
        assert (await talk.resume(yes(questions(asked)[0])))[-1] == "RF waits for l1"
        assert (await talk.answer(("l1", '{"status": "approved"}')))[-3:] == ["TC Done.", "TE", "RF"]
    assert model.saw[-1][-1] == APPROVED


@pytest.mark.parametrize("resumable", [False, True], ids=["plain", "resumable"])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_the_next_agent_of_a_sequence_waits_too_and_a_resumable_app_continues_with_it(
    resumable: bool, restarted: bool
) -> None:
    """Without resumability ADK passes the answer only to the agent that made the call."""
    root, first = agent([CALL_ASK], ["One."], tools=[ASK])
    second_model = Scripted.of(["Two."])
    second = root.clone(update={"name": "second", "model": second_model, "tools": []})
    line = SequentialAgent(name="line", sub_agents=[root, second])
    bridge = App(name="app", root_agent=line, resumability_config=ResumabilityConfig(is_resumable=resumable))
    async with MemoryLedger() as ledger:
        async with talking(bridge, ledger) as talk:
            assert await talk.say("u1") == ASKED
            assert (first.calls, second_model.calls) == (1, 0)
            answered = [] if restarted else await talk.answer(("l1", "yes"))
        async with talking(bridge, ledger) as talk:
            answered = answered or await talk.answer(("l1", "yes"))
    more = ["TS m2 second", "TC Two.", "TE"] if resumable else []
    assert answered == ["RS", "TS m1 root", "TC One.", "TE", *more, "RF"]
    assert first.saw == [HELLO, [*HELLO, SEEN_ASK, ("user", ("result", "ask", {"result": "yes"}))]]
    expected = [
        ("user", ("quoted", "[root] called tool `ask` with parameters", "{'question': 'Sure?'}")),
        ("user", ("quoted", "[user] `ask` tool returned result", "{'result': 'yes'}")),
        ("user", ("quoted", "[root] said", "One.")),
    ]
    assert second_model.saw == ([[*HELLO, *expected]] if resumable else [])


async def test_a_loop_that_waits_does_not_go_round() -> None:
    root, model = agent([CALL_ASK], ["One."], tools=[ASK])
    async with talking(LoopAgent(name="loop", sub_agents=[root], max_iterations=3)) as talk:
        assert await talk.say("u1") == ASKED
    assert model.saw == [HELLO]


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ('{"a": 1}', {"a": 1}),
        ("not json", {"result": "not json"}),
        ("", {"result": "(empty)"}),
        ("[1, 2]", {"result": [1, 2]}),
        ("3", {"result": 3}),
        ("it's", {"result": "it's"}),
    ],
    ids=["object", "text", "empty", "list", "number", "quote"],
)
async def test_any_answer_reaches_the_model(content: str, seen: dict[str, Any]) -> None:
    root, model = agent([CALL_ASK], ["Done."], tools=[ASK])
    async with talking(root) as talk:
        assert await talk.say("u1") == ASKED
        assert await talk.answer(("l1", content)) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [HELLO, [*HELLO, SEEN_ASK, ("user", ("result", "ask", seen))]]


async def test_a_failed_tool_of_the_client_is_an_error_for_the_model() -> None:
    root, model = agent([CALL_ASK], ["Done."], tools=[ASK])
    async with talking(root) as talk:
        assert await talk.say("u1") == ASKED
        answered = await talk.run(e.ToolMessage(id="r1", tool_call_id="l1", content="", error="no such color"))
    assert short(answered) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [HELLO, [*HELLO, SEEN_ASK, ("user", ("result", "ask", {"error": "no such color"}))]]


async def test_an_answer_is_not_lost_when_the_run_it_starts_fails() -> None:
    root, model = agent([CALL_ASK], RuntimeError("the model is down"), ["Done."], tools=[ASK])
    async with talking(root) as talk:
        await talk.say("u1")
        assert await talk.answer(("l1", "yes")) == ["RS", "RE adk_error"]
        assert await talk.say("u2", "and now?") == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    answered = [*HELLO, SEEN_ASK, ("user", ("result", "ask", {"result": "yes"}))]
    assert model.saw == [HELLO, answered, [*answered, ("user", "and now?")]]


async def test_the_same_answer_can_be_sent_again_after_a_failure() -> None:
    root, model = agent([CALL_ASK], RuntimeError("the model is down"), ["Done."], tools=[ASK])
    async with talking(root) as talk:
        await talk.say("u1")
        assert await talk.answer(("l1", "yes")) == ["RS", "RE adk_error"]
        assert await talk.answer(("l1", "yes")) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
        results = [message for message in await talk.messages() if isinstance(message, e.ToolMessage)]
    assert len(results) == 1
    answered = [*HELLO, SEEN_ASK, ("user", ("result", "ask", {"result": "yes"}))]
    assert model.saw == [HELLO, answered, answered]


TWO = [call("ask", "l1", question="A?"), call("ask", "l2", question="B?")]
ASKED_TWO = [
    *("RS", "CS l1 ask", 'CA l1 {"question":"A?"}', "CS l2 ask", 'CA l2 {"question":"B?"}'),
    *("CE l1", "CE l2", "RF waits for l1 l2"),
]
SEEN_TWO = [*HELLO, ("model", ("call", "ask", {"question": "A?"})), ("model", ("call", "ask", {"question": "B?"}))]
ANSWERED_TWO = [("user", ("result", "ask", {"result": "a"})), ("user", ("result", "ask", {"result": "b"}))]


async def test_two_waiting_calls_are_answered_together() -> None:
    root, model = agent(TWO, ["Done."], tools=[ASK])
    async with talking(root) as talk:
        assert await talk.say("u1") == ASKED_TWO
        assert await talk.answer(("l2", "b"), ("l1", "a")) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [HELLO, [*SEEN_TWO, *ANSWERED_TWO]]


async def test_two_results_may_be_posted_one_by_one() -> None:
    root, model = agent(TWO, ["Done."], tools=[ASK])
    async with talking(root) as talk:
        assert await talk.say("u1") == ASKED_TWO
        assert await talk.answer(("l1", "a")) == ["RS", "RF waits for l2"]
        with pytest.raises(InvalidInput):
            await talk.answer(("unknown", "a"))
        assert model.calls == 1
        assert await talk.answer(("l2", "b")) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [HELLO, [*SEEN_TWO, *ANSWERED_TWO]]


async def test_a_new_message_abandons_pending_calls_and_the_model_is_informed() -> None:
    root, model = agent(TWO, ["Fine."], ["Still fine."], tools=[ASK])
    async with talking(root) as talk:
        assert await talk.say("u1") == ASKED_TWO
        assert await talk.say("u2", "never mind") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
        with pytest.raises(InvalidInput):
            await talk.answer(("l1", "a"), ("l2", "b"))
        assert await talk.say("u3", "more") == ["RS", "TS m1", "TC Still ", "TC fine.", "TE", "RF"]
    cancelled = ("user", ("result", "ask", {"error": "This call was cancelled: it was never answered."}))
    given_up = [*SEEN_TWO, cancelled, cancelled, ("user", "never mind")]
    assert model.saw == [HELLO, given_up, [*given_up, ("model", "Fine."), ("user", "more")]]


async def test_waiting_threads_block_no_other_thread() -> None:
    root, model = agent(*[[call("ask", f"l{n}", question="?")] for n in range(30)], ["Done."], tools=[ASK])
    async with talking(root) as talk:
        for n in range(30):
            talk.thread = f"t{n}"
            conversation = [f"CS l{n} ask", f'CA l{n} {{"question":"?"}}', f"CE l{n}"]
            assert await talk.say("u1") == ["RS", *conversation, f"RF waits for l{n}"]
        talk.thread = "other"
        assert await talk.say("u1") == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw == [HELLO] * 31
