"""Text, calls and reasoning: streamed or complete, each sent once, under ADK's own ids (D1 to D5, D9, D15)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pytest
from google.adk.agents import LlmAgent, RunConfig
from google.adk.events import Event
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import BaseModel

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import RunnerConfig
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.adk.scripted import Scripted, call, piece, reply, text, thought
from tests.bridges.adk.world import agent, served, short, talking
from tests.world import KEY, events_of, request, user


def look(city: str) -> dict[str, Any]:
    """Look at the weather."""
    return {"sky": "clear", "city": city}


LOOK = call("look", "c1", city="Rome")
TOLD_LOOK = ["CS c1 look", 'CA c1 {"city":"Rome"}', "CE c1", 'CR c1 {"sky":"clear","city":"Rome"}']
SEEN_LOOK = [
    ("model", ("call", "look", {"city": "Rome"})),
    ("user", ("result", "look", {"sky": "clear", "city": "Rome"})),
]
HELLO = [("user", "hi")]


def whole() -> RunnerConfig:
    """A run configuration without streaming."""
    return RunnerConfig(run_config=RunConfig())


async def session_events(bridge: ADKBridge) -> list[Event]:
    """Return the events that ADK has stored of the thread."""
    place = bridge.session_location(KEY)
    service = bridge.config.get_session_service()
    session = await service.get_session(app_name=place.app, user_id=place.user, session_id=place.session)
    return session.events if session else []


@pytest.mark.parametrize(
    ("config", "expected"), [(None, ["TC Hel", "TC lo"]), (whole(), ["TC Hello"])], ids=["streamed", "whole"]
)
async def test_text_is_one_message_with_the_id_of_its_adk_event(
    config: RunnerConfig | None, expected: list[str]
) -> None:
    root, model = agent(["Hel", "lo"])
    bridge = ADKBridge(root, runner_config=config)
    async with talking(bridge) as talk:
        events = await talk.run(user("u1"))
        stored = [message.id for message in await talk.messages()]
        spoken = [event.id for event in await session_events(bridge) if event.author == "root"]
    assert short(events) == ["RS", "TS m1", *expected, "TE", "RF"]
    assert [event.message_id for event in events if isinstance(event, e.TextMessageStart)] == spoken
    assert stored == ["u1", *spoken]
    assert model.saw == [HELLO]


async def test_text_before_a_call_is_sent_once() -> None:
    root, model = agent(["Let me ", "check.", LOOK], ["Clear."], tools=[look])
    async with talking(root) as talk:
        stream = await talk.say("u1")
    before = ["TS m1", "TC Let me ", "TC check.", "TE"]
    assert stream == ["RS", *before, *TOLD_LOOK, "TS m2", "TC Clear.", "TE", "RF"]
    assert model.saw == [HELLO, [*HELLO, ("model", "Let me check."), *SEEN_LOOK]]


def censor(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
    """Replace a complete response that has a secret, and no partial one."""
    parts = (llm_response.content.parts if llm_response.content else None) or []
    if llm_response.partial or not any("secret" in (part.text or "") for part in parts):
        return None
    calls = [part for part in parts if part.function_call]
    return LlmResponse(content=types.Content(role="model", parts=[text("[censored]"), *calls]))


async def test_a_text_that_a_callback_replaces_after_it_was_streamed_is_corrected_in_the_thread() -> None:
    """ADK's session once had the replaced text, and the thread and every later snapshot the streamed one."""
    turns = (["my ", "secret"], ["no ", "secret ", LOOK], ["Done."])
    root, model = agent(*turns, tools=[look], after_model_callback=censor)
    async with talking(root) as talk:
        assert await talk.say("u1") == ["RS", "TS m1", "TC my ", "TC secret", "TE", "RF"]
        await talk.say("u2")
        messages = [message for message in await talk.messages() if isinstance(message, e.AssistantMessage)]
    assert [(message.content, len(message.tool_calls or ())) for message in messages] == [
        ("[censored]", 0),
        ("[censored]", 1),
        ("Done.", 0),
    ]
    assert model.saw[-1] == [*HELLO, ("model", "[censored]"), *HELLO, ("model", "[censored]"), *SEEN_LOOK]


async def test_a_call_that_comes_partial_and_whole_is_one_call_under_its_final_id() -> None:
    partial = piece(call("look", city="Rome"))
    root, model = agent([partial, reply(call("look", city="Rome"))], ["Clear."], tools=[look])
    bridge = ADKBridge(root)
    async with talking(bridge) as talk:
        events = await talk.run(user("u1"))
        view = await talk.messages()
        [stored] = [one.id for event in await session_events(bridge) for one in event.get_function_calls()]
    assert short(events) == ["RS", *TOLD_LOOK, "TS m1", "TC Clear.", "TE", "RF"]
    assert [type(message).__name__ for message in view] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
    ]
    assert [event.tool_call_id for event in events if isinstance(event, e.ToolCallStart)] == [stored]
    assert model.saw == [HELLO, [*HELLO, *SEEN_LOOK]]


async def test_thoughts_are_reasoning_and_are_not_repeated() -> None:
    root, model = agent([thought("hm"), thought("m"), "A", "B"], ["C"])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "ZS",
            "ZMS",
            "ZMC hm",
            "ZMC m",
            "ZME",
            "ZE",
            "TS m1",
            "TC A",
            "TC B",
            "TE",
            "RF",
        ]
        assert await talk.say("u2", "more") == ["RS", "TS m1", "TC C", "TE", "RF"]
    assert model.saw == [
        HELLO,
        [*HELLO, ("model", ("thought", "hmm")), ("model", "AB"), ("user", "more")],
    ]


async def test_reasoning_ends_before_a_call() -> None:
    root, model = agent([thought("hm"), LOOK], ["Clear."], tools=[look])
    async with talking(root) as talk:
        stream = await talk.say("u1")
    before = ["ZS", "ZMS", "ZMC hm", "ZME", "ZE"]
    assert stream == ["RS", *before, *TOLD_LOOK, "TS m1", "TC Clear.", "TE", "RF"]
    assert model.saw == [HELLO, [*HELLO, ("model", ("thought", "hm")), *SEEN_LOOK]]


SIGNED = ["ZV message z1 dA==", "ZV message m1 dw=="]


@pytest.mark.parametrize(
    ("config", "spoken"),
    [
        (None, ["ZMC hm ", "ZME", "ZE", "TS m1", "TC A ", *SIGNED, "TE"]),
        (whole(), ["ZMC hm ", SIGNED[0], "ZME", "ZE", "TS m1", "TC A ", SIGNED[1], "TE"]),
    ],
    ids=["streamed", "whole"],
)
async def test_signatures_are_shown_with_what_they_sign(config: RunnerConfig | None, spoken: list[str]) -> None:
    signed = [thought("hm "), text("A "), call("look", "c1", city="Rome")]
    for part, signature in zip(signed, (b"t", b"w", b"c"), strict=True):
        part.thought_signature = signature
    root, model = agent(signed, ["C"], tools=[look])
    async with talking(root, runner_config=config) as talk:
        assert await talk.say("u1") == [
            *("RS", "ZS", "ZMS", *spoken),
            *("CS c1 look", 'CA c1 {"city":"Rome"}', "CE c1", "ZV tool-call c1 Yw=="),
            *('CR c1 {"sky":"clear","city":"Rome"}', "TS m2", "TC C", "TE", "RF"),
        ]
        kept = [message.encrypted_value for message in await talk.messages()]
    assert kept == [None, "dA==", "dw==", None, None]
    parts = [part for content in model.requests[1].contents for part in content.parts or []]
    assert [part.thought_signature for part in parts] == [None, b"t", b"w", b"c", None]


async def test_parts_that_are_not_streamed_keep_their_order() -> None:
    root, model = agent([thought("hm"), "A", LOOK, "B"], ["C"], tools=[look])
    async with talking(root, runner_config=whole()) as talk:
        assert await talk.say("u1") == [
            "RS",
            "ZS",
            "ZMS",
            "ZMC hm",
            "ZME",
            "ZE",
            "TS m1",
            "TC A",
            "TE",
            "CS c1 look",
            'CA c1 {"city":"Rome"}',
            "CE c1",
            "TS m1~2",
            "TC B",
            "TE",
            'CR c1 {"sky":"clear","city":"Rome"}',
            "TS m2",
            "TC C",
            "TE",
            "RF",
        ]
    assert model.saw == [
        HELLO,
        [
            *HELLO,
            ("model", ("thought", "hm")),
            ("model", "A"),
            ("model", ("call", "look", {"city": "Rome"})),
            ("model", "B"),
            ("user", ("result", "look", {"sky": "clear", "city": "Rome"})),
        ],
    ]


class Weather(BaseModel):
    city: str


async def test_an_agent_with_an_output_schema_sends_data_instead_of_text() -> None:
    model = Scripted.of(['{"city":', '"Paris"}'], ['{"city":"Rome"}'])
    root = LlmAgent(name="root", model=model, output_schema=Weather, output_key="out")
    async with talking(root) as talk:
        events = await talk.run(user("u1"))
        again = await talk.say("u2", "again")
    assert short(events) == [
        "RS",
        "SD [{'op': 'add', 'path': '/out', 'value': {'city': 'Paris'}}]",
        "X adk:output {'agent': 'root', 'value': {'city': 'Paris'}}",
        "SS {'out': {'city': 'Paris'}}",
        "RF",
    ]
    last = events[-1]
    assert isinstance(last, e.RunFinished)
    assert last.result == {"city": "Paris"}
    assert again == [
        "RS",
        "SD [{'op': 'replace', 'path': '/out', 'value': {'city': 'Rome'}}]",
        "X adk:output {'agent': 'root', 'value': {'city': 'Rome'}}",
        "SS {'out': {'city': 'Rome'}}",
        "RF",
    ]
    assert model.saw == [HELLO, [*HELLO, ("model", '{"city":"Paris"}'), ("user", "again")]]


async def test_with_tools_the_call_that_sets_the_structured_output_is_hidden() -> None:
    root, model = agent([call("set_model_response", "s1", city="Rome")], output_schema=Weather, tools=[look])
    async with talking(root) as talk:
        assert await talk.say("u1") == ["RS", "X adk:output {'agent': 'root', 'value': {'city': 'Rome'}}", "RF"]
    assert model.saw == [HELLO]


def begun(name: str) -> Any:
    return piece(types.Part(function_call=types.FunctionCall(name=name, will_continue=True)))


def pieces(*parts: types.PartialArg) -> Any:
    return piece(types.Part(function_call=types.FunctionCall(partial_args=list(parts), will_continue=True)))


def string(path: str, value: str, *, more: bool = False) -> types.PartialArg:
    return types.PartialArg(json_path=path, string_value=value, will_continue=more or None)


ENDED = piece(types.Part(function_call=types.FunctionCall()))


async def test_arguments_are_streamed_as_the_model_writes_them() -> None:
    script = [
        begun("look"),
        pieces(string("$.city", "Par", more=True)),
        pieces(string("$.city", 'is "2"')),
        ENDED,
        reply(call("look", city='Paris "2"')),
    ]
    root, model = agent(script, ["Clear."], tools=[look])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS c1 look",
            'CA c1 {"city":"',
            'CA c1 Paris \\"2\\""',
            "CA c1 }",
            "CE c1",
            'CR c1 {"sky":"clear","city":"Paris \\"2\\""}',
            "TS m1",
            "TC Clear.",
            "TE",
            "RF",
        ]
    assert model.saw == [
        HELLO,
        [
            *HELLO,
            ("model", ("call", "look", {"city": 'Paris "2"'})),
            ("user", ("result", "look", {"sky": "clear", "city": 'Paris "2"'})),
        ],
    ]


@pytest.mark.parametrize(
    ("written", "arguments", "spoken"),
    [
        (
            [string("$.a", "x"), types.PartialArg(json_path="$.n", number_value=2), string("$.b", "y")],
            {"a": "x", "n": 2, "b": "y"},
            ['{"a":"x"', ',"n"', ':2.0,"b":"y"', "}"],
        ),
        (
            [types.PartialArg(json_path="$.yes", bool_value=True), string("$.a", "x", more=True), string("$.a", "é\n")],
            {"yes": True, "a": "xé\n"},
            ['{"yes"', ':true,"a":"', 'xé\\n"', "}"],
        ),
        (
            [string("$.a", "x"), string("$.deep.b", "y"), string("$.c", "z")],
            {"a": "x", "deep": {"b": "y"}, "c": "z"},
            ['{"a":"x"', ',"deep":{"b":"y"},"c":"z"}'],
        ),
        (
            [string("$.a", "x"), string("$.b", "y"), string("$.a", "x2")],
            {"a": "x2", "b": "y"},
            ['{"a":"x"', ',"b":"y"', ',"a":"x2"}'],
        ),
        ([string("$.list[0]", "x")], {"list": ["x"]}, ['{"list":["x"]}']),
        ([string("$.a", "x")], {"a": "x", "deep": [math.inf]}, ['{"a":"x"', ',"deep":[null]}']),
        ([], {}, ["{}"]),
    ],
    ids=["members", "kinds", "nested", "changed", "list", "infinite", "none"],
)
async def test_streamed_arguments_are_in_the_end_the_models_own(
    written: list[types.PartialArg], arguments: dict[str, Any], spoken: list[str]
) -> None:
    def anything(**received: Any) -> dict[str, Any]:
        """Take anything."""
        return {}

    script = [begun("anything"), *(pieces(one) for one in written), ENDED, reply(call("anything", **arguments))]
    root, model = agent(script, ["Done."], tools=[anything])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS c1 anything",
            *(f"CA c1 {one}" for one in spoken),
            "CE c1",
            "CR c1 {}",
            "TS m1",
            "TC Done.",
            "TE",
            "RF",
        ]
    assert msgspec.json.decode("".join(spoken)).keys() == arguments.keys()
    assert model.saw == [
        HELLO,
        [*HELLO, ("model", ("call", "anything", arguments)), ("user", ("result", "anything", {}))],
    ]


async def test_usage_is_added_up_per_model() -> None:
    counted = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=3, candidates_token_count=2, total_token_count=5, thoughts_token_count=1
    )
    first = reply(call("look", "c1", city="Rome"), usage_metadata=counted, model_version="m-1")
    root, _ = agent([first], [reply(text("Clear."), usage_metadata=counted, model_version="m-1")], tools=[look])
    async with talking(root) as talk:
        last = (await talk.run(user("u1")))[-1]
    assert isinstance(last, e.RunFinished)
    assert last.usage == [
        e.TokenUsage(model="m-1", input_tokens=6, output_tokens=4, total_tokens=10, reasoning_tokens=2)
    ]


async def test_pictures_of_the_user_reach_the_model() -> None:
    root, model = agent(["A cat."])
    picture = e.ImagePart(source=e.DataSource(value="aGk=", mime_type="image/png"))
    link = e.DocumentPart(source=e.UrlSource(value="https://example.com/a.pdf", mime_type="application/pdf"))
    async with talking(root) as talk:
        await talk.run(e.UserMessage(id="u1", content=[e.TextPart(text="What is it?"), picture, link]))
    assert model.saw == [
        [
            ("user", "What is it?"),
            ("user", ("data", "image/png", b"hi")),
            ("user", ("file", "application/pdf", "https://example.com/a.pdf")),
        ]
    ]


async def test_a_file_that_would_be_read_with_the_servers_rights_is_not_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server refuses such a URL first; here it accepts it."""
    monkeypatch.setattr(ADKBridge, "media_url_schemes", {"gs"})
    root, model = agent(["Which file?"])
    link = e.DocumentPart(source=e.UrlSource(value="gs://ours/secret.pdf", mime_type="application/pdf"))
    async with talking(root) as talk:
        await talk.run(e.UserMessage(id="u1", content=[e.TextPart(text="What is it?"), link]))
    expected = "[An attachment that cannot be read here: application/pdf]"
    assert model.saw == [[("user", "What is it?"), ("user", expected)]]


async def test_a_picture_that_cannot_be_decoded_is_named() -> None:
    root, model = agent(["Send it again."])
    broken = e.ImagePart(source=e.DataSource(value="not base64!", mime_type="image/png"))
    async with talking(root) as talk:
        await talk.run(e.UserMessage(id="u1", content=[broken]))
    assert model.saw == [[("user", "[An attachment that cannot be read here: image/png]")]]


async def test_the_applications_context_reaches_the_model_and_stays_out_of_the_conversation() -> None:
    root, model = agent(["A"], ["B"])
    async with served(ADKBridge(root)) as runner:
        for name, context in (("u1", [e.Context(description="page", value="cart")]), ("u2", [])):
            conversation = request(user(name, name))
            received = msgspec.structs.replace(conversation.input, context=context)
            await events_of(runner, await runner.start(dataclasses.replace(conversation, input=received)))
    assert model.saw[0] == [("user", "Context of this request:\n- page: cart"), ("user", "u1")]
    assert model.saw[1] == [("user", "u1"), ("model", "A"), ("user", "u2")]


async def test_a_system_message_of_a_trusted_client_is_an_instruction() -> None:
    root, model = agent(["A"], instruction="Be kind.")
    adapter = ADKBridge(root).create_adapter(PlatformContext(system_prompt_append="Be brief."))
    messages = [e.SystemMessage(id="s", content="Be formal."), user("u1")]
    received = e.RunAgentInput(thread_id="t", run_id="r", messages=messages)
    assert [event async for event in adapter.run(input_to_agui(received))]
    instruction = str(model.requests[0].config.system_instruction)
    assert all(words in instruction for words in ("Be kind.", "Be brief.", "Be formal."))
    assert model.saw == [HELLO]
