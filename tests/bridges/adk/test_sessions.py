"""ADK's session and the thread: restarts, rewinds, stored sessions, two replicas (D17, D23, D24)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.sessions import BaseSessionService, DatabaseSessionService
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.genai import types

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import RunnerConfig
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol import events as e
from tests.bridges.adk.scripted import HANG, Scripted, call, piece, text
from tests.bridges.adk.world import Talk, agent, questions, short, talking, yes
from tests.world import KEY, structs_of, user


def ask(question: str) -> None:
    """Ask a person."""


def pay(amount: int) -> dict[str, Any]:
    """Pay."""
    return {"paid": amount}


def look(city: str) -> dict[str, Any]:
    """Look."""
    return {"sky": "clear"}


ASK = LongRunningFunctionTool(ask)
PAY = FunctionTool(pay, require_confirmation=True)
PAINT = e.Tool(name="paint", description="Paint.", parameters={"type": "object"})


def stored(service: BaseSessionService) -> RunnerConfig:
    return RunnerConfig(session_service=service)


@asynccontextmanager
async def database(path: Path) -> AsyncGenerator[DatabaseSessionService, None]:
    service = DatabaseSessionService(f"sqlite+aiosqlite:///{path}")
    try:
        yield service
    finally:
        await service.close()


def spoken(words: str) -> list[str]:
    """A run with this text, of which the last word is held back."""
    before, space, last = words.rpartition(" ")
    return ["RS", "TS m1", *([f"TC {before} "] if space else ()), f"TC {last}", "TE", "RF"]


async def test_a_restart_rebuilds_what_the_model_knew() -> None:
    root, model = agent(["Let me see.", call("look", "c1", city="Rome")], ["Clear."], ["Bye."], tools=[look])
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            await talk.say("u1", "Weather?")
        async with talking(root, ledger) as talk:
            assert await talk.say("u2", "Thanks") == ["RS", "TS m1", "TC Bye.", "TE", "RF"]
    assert model.saw[2] == [
        ("user", "Weather?"),
        ("model", "Let me see."),
        ("model", ("call", "look", {"city": "Rome"})),
        ("user", ("result", "look", {"sky": "clear"})),
        ("model", "Clear."),
        ("user", "Thanks"),
    ]


async def test_a_waiting_call_is_answered_after_a_restart() -> None:
    root, model = agent(
        ["Hm. ", call("ask", "l1", question="?"), call("look", "c1", city="Rome")], ["Done."], tools=[ASK, look]
    )
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            assert (await talk.say("u1"))[-1] == "RF waits for l1"
        async with talking(root, ledger) as talk:
            assert await talk.answer(("l1", "yes")) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    assert model.saw[1] == [
        ("user", "hi"),
        ("model", "Hm. "),
        ("model", ("call", "ask", {"question": "?"})),
        ("model", ("call", "look", {"city": "Rome"})),
        ("user", ("result", "look", {"sky": "clear"})),
        ("user", ("result", "ask", {"result": "yes"})),
    ]


async def test_a_confirmation_can_be_answered_after_a_restart() -> None:
    root, model = agent(["Hello."], [call("pay", "p1", amount=3)], ["Paid."], tools=[PAY])
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            await talk.say("u1")
            [question] = questions(await talk.run(user("u2", "Pay!")))
        async with talking(root, ledger) as talk:
            assert await talk.resume(yes(question)) == ["RS", 'CR p1 {"paid":3}', "TS m1", "TC Paid.", "TE", "RF"]
    assert model.saw[2] == [
        ("user", "hi"),
        ("model", "Hello."),
        ("user", "Pay!"),
        ("model", ("call", "pay", {"amount": 3})),
        ("user", ("result", "pay", {"paid": 3})),
    ]


async def test_a_new_message_after_a_restart_abandons_the_call_that_waited() -> None:
    root, model = agent([call("ask", "l1", question="?")], ["Fine."], tools=[ASK])
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            await talk.say("u1")
        async with talking(root, ledger) as talk:
            await talk.say("u2", "never mind")
    assert model.saw[1][-2:] == [
        ("user", ("result", "ask", {"error": "This call was cancelled: it was never answered."})),
        ("user", "never mind"),
    ]


async def test_the_agent_a_conversation_was_handed_to_continues_after_a_restart() -> None:
    helper_model = Scripted.of(["I am here."], ["Still here."])
    helper = LlmAgent(name="helper", description="h", model=helper_model)
    root, model = agent([call("transfer_to_agent", "t1", agent_name="helper")], sub_agents=[helper])
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            await talk.say("u1")
        async with talking(root, ledger) as talk:
            assert await talk.say("u2", "go on") == ["RS", "TS m1 helper", "TC Still ", "TC here.", "TE", "RF"]
    assert (model.calls, helper_model.calls) == (1, 2)
    assert helper_model.saw[1][-2:] == [("model", "I am here."), ("user", "go on")]


async def test_messages_of_parallel_agents_are_known_after_a_restart() -> None:
    models = {name: Scripted.of([f"{name} says"], ["more"]) for name in ("one", "two")}
    both = ParallelAgent(name="both", sub_agents=[LlmAgent(name=name, model=model) for name, model in models.items()])
    async with MemoryLedger() as ledger:
        async with talking(both, ledger) as talk:
            await talk.say("u1")
        async with talking(both, ledger) as talk:
            await talk.say("u2", "and?")
    expected = " ".join(str(seen) for _, seen in models["one"].saw[1])
    assert "one says" in expected
    assert "two says" in expected


async def test_a_stopped_answer_is_part_of_the_conversation() -> None:
    root, model = agent(["First."], [piece(text("Half of ")), HANG], ["Fine."])
    async with talking(root) as talk:
        await talk.say("u1")
        stopped = await talk.stop(await talk.begin(user("u2", "go"), until=e.TextMessageContent))
        assert short(stopped) == ["RS", "TS m1", "TC Half of ", "TE", "RF cancelled"]
        assert await talk.say("u3", "again") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    conversation = [("user", "hi"), ("model", "First."), ("user", "go")]
    assert model.saw == [[("user", "hi")], conversation, [*conversation, ("model", "Half of "), ("user", "again")]]


@pytest.mark.parametrize("kind", ["memory", "database"])
async def test_a_rewound_thread_is_rewound_for_the_model(kind: str, tmp_path: Path) -> None:
    root, model = agent(["One."], ["Two."], ["Other two."], ["Three."])
    async with database(tmp_path / "adk.db") as service:
        bridge = ADKBridge(root, runner_config=stored(service) if kind == "database" else None)
        async with talking(bridge) as talk:
            answers = [
                await talk.say("u1", "first"),
                await talk.say("u2", "second"),
                short(await talk.run(user("u1", "first"), user("u2", "second"))),
                await talk.say("u3", "third"),
            ]
            kept = [getattr(message, "content", None) for message in await talk.messages()]
    assert answers == [spoken(words) for words in ("One.", "Two.", "Other two.", "Three.")]
    assert kept == ["first", "One.", "second", "Other two.", "third", "Three."]
    second = [("user", "first"), ("model", "One."), ("user", "second")]
    assert model.saw == [second[:1], second, second, [*second, ("model", "Other two."), ("user", "third")]]


@pytest.mark.parametrize("kind", ["memory", "database"])
async def test_after_a_fork_the_model_sees_what_was_before_the_message_and_the_new_one(
    kind: str, tmp_path: Path
) -> None:
    root, model = agent(
        ["Let me see.", call("look", "c1", city="Rome")],
        *[[text] for text in ("Clear.", "Yes.", "No.", "So.")],
        tools=[look],
    )
    async with database(tmp_path / "adk.db") as service:
        bridge = ADKBridge(root, runner_config=stored(service) if kind == "database" else None)
        async with talking(bridge) as talk:
            await talk.say("u1", "Weather?")
            await talk.say("u2", "Sure?")
            fork = Talk(talk.runner, "fork")
            await fork.say("n1", "Really?", fork=ForkOrigin(thread_id="t", message_id="u2"))
            await fork.say("n2", "And now?")
    copied = [
        ("user", "Weather?"),
        ("model", "Let me see."),
        ("model", ("call", "look", {"city": "Rome"})),
        ("user", ("result", "look", {"sky": "clear"})),
        ("model", "Clear."),
    ]
    assert model.saw[3:] == [
        [*copied, ("user", "Really?")],
        [*copied, ("user", "Really?"), ("model", "No."), ("user", "And now?")],
    ]


async def test_a_thread_rewound_to_its_beginning_has_an_empty_session() -> None:
    root, model = agent(["One."], ["Two."], ["Again."])
    async with talking(root) as talk:
        assert await talk.say("u1", "first") == spoken("One.")
        assert await talk.say("u2", "second") == spoken("Two.")
        assert short(await talk.run(user("u1", "first"))) == spoken("Again.")
    first = [("user", "first")]
    assert model.saw == [first, [*first, ("model", "One."), ("user", "second")], first]


async def test_a_stored_session_is_used_and_never_stale(tmp_path: Path) -> None:
    def note(tool_context: ToolContext) -> dict[str, Any]:
        """Note."""
        tool_context.state["noted"] = True
        return {}

    root, model = agent(
        ["A"], [call("note", "n1")], ["B"], [call("ask", "l1", question="?")], ["C"], ["D"], tools=[note, ASK]
    )
    words: list[list[str]] = []
    async with MemoryLedger() as ledger:
        for number in range(5):
            async with database(tmp_path / "adk.db") as service:
                async with talking(root, ledger, runner_config=stored(service)) as talk:
                    if number == 3:
                        words.append(await talk.answer(("l1", "yes"), state={"noted": False}))
                    else:
                        words.append(await talk.say(f"u{number}", f"say {number}", state={"mine": number}))
    assert words == [
        ["RS", "SS {'mine': 0}", "TS m1", "TC A", "TE", "RF"],
        [
            *("RS", "SS {'mine': 1}", "CS n1 note", "CA n1 {}", "CE n1", "CR n1 {}"),
            "SD [{'op': 'add', 'path': '/noted', 'value': True}]",
            *("TS m1", "TC B", "TE", "SS {'mine': 1, 'noted': True}", "RF"),
        ],
        ["RS", "SS {'mine': 2}", "CS l1 ask", 'CA l1 {"question":"?"}', "CE l1", "RF waits for l1"],
        ["RS", "SS {'noted': False}", "TS m1", "TC C", "TE", "RF"],
        ["RS", "SS {'mine': 4}", "TS m1", "TC D", "TE", "RF"],
    ]
    whole = [
        ("user", "say 0"),
        ("model", "A"),
        ("user", "say 1"),
        ("model", ("call", "note", {})),
        ("user", ("result", "note", {})),
        ("model", "B"),
        ("user", "say 2"),
        ("model", ("call", "ask", {"question": "?"})),
        ("user", ("result", "ask", {"result": "yes"})),
        ("model", "C"),
        ("user", "say 4"),
    ]
    assert model.saw == [whole[:length] for length in (1, 3, 5, 7, 9, 11)]


async def test_a_session_that_was_there_before_the_thread_is_adopted(tmp_path: Path) -> None:
    from google.adk.events import Event

    root, model = agent(["Yes."])
    async with database(tmp_path / "adk.db") as service:
        session = await service.create_session(app_name="root", user_id="local", session_id="t", state={"old": 1})
        for author, words in (("user", "Remember 7."), ("root", "I do.")):
            content = types.Content(role="user" if author == "user" else "model", parts=[text(words)])
            await service.append_event(session, Event(author=author, invocation_id="e-0", content=content))
        async with talking(root, runner_config=stored(service)) as talk:
            spoken = await talk.say("u1", "Do you?")
    assert model.saw[0] == [("user", "Remember 7."), ("model", "I do."), ("user", "Do you?")]
    assert spoken[-2:] == ["SS {'old': 1}", "RF"]


async def test_erasing_a_thread_erases_the_stored_session(tmp_path: Path) -> None:
    root, _ = agent(["One."])
    async with database(tmp_path / "adk.db") as service:
        bridge = ADKBridge(root, runner_config=stored(service))
        async with talking(bridge) as talk:
            await talk.say("u1")
            await talk.runner.erase_thread(KEY)
            place = bridge.session_location(ThreadKey("default", "local", "t"))
            found = await service.get_session(app_name=place.app, user_id=place.user, session_id=place.session)
    assert found is None


async def test_an_idle_thread_leaves_nothing_in_memory() -> None:
    root, _ = agent(["One."], ["Two."])
    bridge = ADKBridge(root)
    async with talking(bridge) as talk:
        await talk.say("u1")
        await talk.runner.agents["agent"].aclose()
        place = bridge.session_location(KEY)
        found = await bridge.config.get_session_service().get_session(
            app_name=place.app, user_id=place.user, session_id=place.session
        )
        assert found is None
        assert (await talk.say("u2"))[-1] == "RF"


async def test_an_adapter_works_without_a_server() -> None:
    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.protocol.agui_models import input_to_agui

    root, model = agent(["One."], ["Two."])
    adapter = ADKBridge(root).create_adapter(PlatformContext(session_id="t"))
    messages: list[e.Message] = [user("u1")]
    for number in (1, 2):
        received = e.RunAgentInput(thread_id="t", run_id=f"r{number}", messages=messages)
        events = [event async for event in structs_of(adapter.run(input_to_agui(received)))]
        words = "".join(event.delta for event in events if isinstance(event, e.TextMessageContent))
        start = next(event for event in events if isinstance(event, e.TextMessageStart))
        messages = [*messages, e.AssistantMessage(id=start.message_id, content=words), user(f"v{number}", "more")]
        assert not any(isinstance(event, e.Custom) for event in events)
    assert model.saw[1] == [("user", "hi"), ("model", "One."), ("user", "more")]


async def test_the_signature_of_a_thought_survives_a_restart() -> None:
    signed = call("ask", "l1", question="?")
    signed.thought_signature = b"\xff\xfe\x00"
    root, model = agent([signed], ["Done."], tools=[ASK])
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            await talk.say("u1")
        async with talking(root, ledger) as talk:
            assert (await talk.answer(("l1", "yes")))[-1] == "RF"
    parts = [part for content in model.requests[1].contents for part in content.parts or []]
    assert [part.thought_signature for part in parts if part.function_call] == [b"\xff\xfe\x00"]


async def test_an_expired_interrupt_does_not_block_later_messages() -> None:
    root, model = agent([call("pay", "p1", amount=3)], [call("ask", "l1", question="?")], ["Done."], tools=[PAY, ASK])
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            [question] = questions(await talk.run(user("u1")))
            cancelled = e.ResumeEntry(interrupt_id=question.id, status="cancelled")
            first = await talk.run(user("u2", "something else"), resume=[cancelled])
            assert short(first)[-1] == "RF waits for l1"
            assert (await talk.answer(("l1", "yes")))[-1] == "RF"
    assert model.calls == 3


@pytest.mark.parametrize("kind", ["memory", "database"])
@pytest.mark.parametrize("rewinds", [False, True], ids=["later", "rewound"])
async def test_a_call_of_the_client_under_an_id_the_model_has_used_before_is_answered(
    kind: str, rewinds: bool, tmp_path: Path
) -> None:
    """Some models count their calls from zero in every turn."""
    root, model = agent([call("paint", "call_0")], ["A"], [call("paint", "call_0")], ["B"])
    async with database(tmp_path / "adk.db") as service:
        bridge = ADKBridge(root, runner_config=stored(service) if kind == "database" else None)
        async with talking(bridge) as talk:
            assert await talk.say("u1", tools=[PAINT]) == [
                *("RS", "CS call_0 paint", "CA call_0 {}", "CE call_0", "RF waits for call_0")
            ]
            assert await talk.answer(("call_0", "red"), tools=[PAINT]) == spoken("A")
            conversation = await talk.say("u1" if rewinds else "u2", tools=[PAINT])
            answered = await talk.answer(("call_0~2", "blue"), tools=[PAINT])
    assert conversation == ["RS", "CS call_0~2 paint", "CA call_0~2 {}", "CE call_0~2", "RF waits for call_0~2"]
    assert answered == spoken("B")
    called = ("model", ("call", "paint", {}))
    red = [("user", "hi"), called, ("user", ("result", "paint", {"result": "red"}))]
    before = [] if rewinds else [*red, ("model", "A")]
    blue = [*before, ("user", "hi"), called, ("user", ("result", "paint", {"result": "blue"}))]
    assert model.saw == [[("user", "hi")], red, [*before, ("user", "hi")], blue]


async def test_signatures_are_given_back_when_a_conversation_is_rebuilt() -> None:
    signed = [text("Let me see."), call("look", "c1", city="Rome")]
    for part, signature in zip(signed, (b"w", b"\xff\x00"), strict=True):
        part.thought_signature = signature
    root, model = agent(signed, ["Clear."], ["Bye."], tools=[look])
    async with MemoryLedger() as ledger:
        async with talking(root, ledger) as talk:
            await talk.say("u1", "Weather?")
        async with talking(root, ledger) as talk:
            assert await talk.say("u2", "Thanks") == spoken("Bye.")
    parts = [part for content in model.requests[2].contents for part in content.parts or []]
    assert [part.thought_signature for part in parts] == [None, b"w", b"\xff\x00", None, None, None]


async def test_an_id_a_model_uses_again_is_another_call() -> None:
    root, model = agent(
        [call("look", "call_0", city="Rome")], ["A"], [call("look", "call_0", city="Oslo")], ["B"], tools=[look]
    )
    async with talking(root) as talk:
        await talk.say("u1")
        assert (await talk.say("u2"))[1:5] == [
            "CS call_0~2 look",
            'CA call_0~2 {"city":"Oslo"}',
            "CE call_0~2",
            'CR call_0~2 {"sky":"clear"}',
        ]
    assert model.calls == 4
