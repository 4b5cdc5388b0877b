"""Threads never mix, agents are made after a template or by a function, and sessions own their history (cases A18 and A21)."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import ag_ui.core as ag
import anyio
import pytest
from ag_ui.encoder import EventEncoder
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.handlers.callback_handler import PrintingCallbackHandler
from strands.hooks import BeforeModelCallEvent
from strands.plugins import Plugin
from strands.session import FileSessionManager

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.strands.agent import StrandsAgent
from ambient_runner.bridges.strands.agent_clone import clone_agent
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.errors import ConfigError, InvalidInput, ThreadBusy
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.runs.run import Actor, current_run
from tests.bridges.strands.scripted import (
    ScriptedModel,
    call,
    calls,
    said_assistant,
    said_user,
    says,
    tool_result,
    tool_use,
)
from tests.bridges.strands.world import TOOL, Thread, agent_of, strands, tool_message, verify, yes
from tests.bridges.strands.world import summarize as words
from tests.machine_speed import unless_hung
from tests.world import events_of, request, structs_of, user


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool(context=True)
def book(city: str, tool_context: ToolContext) -> str:
    """Books a trip after asking."""
    return f"booked {city}: {tool_context.interrupt('confirm', reason=city)}"


async def test_threads_do_not_read_each_other() -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))
    async with strands(agent_of(model)) as alice:
        bob = Thread(alice.runner, name="bob")
        await alice.say("I am Alice")
        await bob.say("I am Bob")
        await alice.say("who am I?")
    assert model.saw == [
        [said_user("I am Alice")],
        [said_user("I am Bob")],
        [said_user("I am Alice"), said_assistant("ok"), said_user("who am I?")],
    ]


@pytest.mark.parametrize("has_session", [False, True], ids=["no session", "session"])
async def test_after_a_fork_the_model_sees_what_was_before_the_message_and_the_new_one(
    tmp_path: Path, has_session: bool
) -> None:
    answers = [says(text) for text in ("Sun.", "Yes.", "No.", "So.")]
    model = ScriptedModel(calls(call("c1", "get_weather", '{"city": "Rome"}')), *answers)
    async with strands(agent_of(model, get_weather), sessions(tmp_path) if has_session else None) as thread:
        await thread.say("weather?")
        await thread.say("sure?")
        fork = Thread(thread.runner, name="fork")
        await fork.run(user("n1", "really?"), fork=ForkOrigin(thread_id="t", message_id="u2"))
        await fork.run(user("n2", "and now?"))
    copied = [
        said_user("weather?"),
        said_assistant(tool_use("c1", "get_weather", {"city": "Rome"})),
        said_user(tool_result("c1", "sunny in Rome")),
        said_assistant("Sun."),
    ]
    assert model.saw[3:] == [
        [*copied, said_user("really?")],
        [*copied, said_user("really?"), said_assistant("No."), said_user("and now?")],
    ]


async def test_threads_run_at_the_same_time_and_one_thread_runs_once() -> None:
    go = anyio.Event()
    model = ScriptedModel(script=lambda messages: [go, *says("ok")])
    async with strands(agent_of(model)) as thread:
        streams: list[list[str]] = []

        async def talk(name: str) -> None:
            streams.append(await Thread(thread.runner, name=name).say("hi"))

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                for name in "abc":
                    tasks.start_soon(talk, name)
                await model.wait_for_calls(3)
                with pytest.raises(ThreadBusy):
                    await thread.runner.start(request(user("u9"), thread="a"))
                go.set()
    assert [stream[-1] for stream in streams] == ["RF success"] * 3


def agui_input(*messages: e.Message, thread: str = "t", **more: Any) -> ag.RunAgentInput:
    return input_to_agui(e.RunAgentInput(thread_id=thread, run_id="r", messages=list(messages), **more))


async def alone(agent: StrandsAgent, *messages: e.Message, **more: Any) -> list[e.Event]:
    events = [event async for event in structs_of(agent.run(agui_input(*messages, **more)))]
    verify(events)
    return events


async def test_alone_a_second_run_of_a_thread_is_refused_and_the_first_continues() -> None:
    go = anyio.Event()
    agent = StrandsAgent(agent_of(ScriptedModel([go, *says("ok")])))
    with unless_hung():
        async with anyio.create_task_group() as tasks:
            first: list[list[e.Event]] = []

            async def run() -> None:
                first.append(await alone(agent, user("u1"), state={"a": 1}))

            tasks.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            assert words(await alone(agent, user("u2"))) == ["RE thread_busy"]
            go.set()
    assert words(first[0])[-1] == "RF success"


async def test_alone_an_agent_frames_its_runs_and_keeps_interrupts_in_mind() -> None:
    model = ScriptedModel(calls(call("c1", "book", '{"city": "Rome"}')), says("ok"))
    agent = StrandsAgent(agent_of(model, book), name="mine", description="Mine.")
    first = await alone(agent, user("u1", "go"))
    assert words(first) == ["SS {}", "CS c1 book < m1", 'CA c1 {"city": "Rome"}', "CE c1", "RF asks confirm"]
    assert isinstance(first[0], e.RunStarted)
    end = first[-1]
    assert isinstance(end, e.RunFinished)
    assert isinstance(end.outcome, e.Interrupted)
    made = e.AssistantMessage(
        id="a1", tool_calls=[e.ToolCall(id="c1", function=e.FunctionCall(name="book", arguments='{"city": "Rome"}'))]
    )
    second = await alone(agent, user("u1", "go"), made, resume=[yes(end.outcome.interrupts[0], "yes")])
    assert words(second) == ["SS {}", 'CR c1 "booked Rome: yes"', "MS", "TS m1", 'TC m1 "ok"', "TE m1", "RF success"]
    (snapshot,) = [one for one in second if isinstance(one, e.MessagesSnapshot)]
    assert [type(one) for one in snapshot.messages] == [e.UserMessage, e.AssistantMessage, e.ToolMessage]
    await agent.aclose()


async def test_alone_a_failure_is_an_event() -> None:
    agent = StrandsAgent(agent_of(ScriptedModel([RuntimeError("secret")], says("ok"))))
    failed = await alone(agent, user("u1"))
    assert words(failed) == ["SS {}", "RE strands_force_stop"]
    assert "secret" not in repr(failed)
    assert words(await alone(agent, user("u2")))[-1] == "RF success"


async def test_alone_only_so_many_threads_are_kept_and_none_loses_anything() -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))
    made: list[str] = []

    def make(first: ag.RunAgentInput) -> Agent:
        made.append(first.thread_id)
        return agent_of(model)

    agent = StrandsAgent(make, threads=2)
    for thread in ("a", "b", "c", "a"):
        await alone(
            agent, user("u1", thread), e.AssistantMessage(id="a1", content="ok"), user("u2", "and?"), thread=thread
        )
    assert made == ["a", "b", "c", "a"]
    assert model.saw[3] == [said_user("a"), said_assistant("ok"), said_user("and?")]


async def test_without_anything_to_answer_a_startis_refused_unless_there_is_a_default() -> None:
    model = ScriptedModel(says("ok"), says("ok"))
    async with strands(agent_of(model)) as thread:
        with pytest.raises(InvalidInput):
            await thread.run()
    assert words(await alone(StrandsAgent(agent_of(model)))) == ["SS {}", "RE no_user_message"]
    config = StrandsAgentConfig(default_prompt="Hello")
    async with strands(agent_of(model), config) as thread:
        assert (await thread.run())[-1] == "RF success"
    assert words(await alone(StrandsAgent(agent_of(model), config=config)))[-1] == "RF success"
    assert model.saw == [[said_user("Hello")]] * 2


async def test_a_factory_may_take_the_input_or_not_and_may_be_awaited() -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))

    async def later() -> Agent:
        return agent_of(model)

    for factory in (lambda: agent_of(model), lambda first: agent_of(model), later):
        assert words(await alone(StrandsAgent(factory), user("u1")))[-1] == "RF success"


async def test_a_factory_is_called_with_no_more_than_it_needs() -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))
    received: list[Any] = []

    def with_a_default(model_id: Any = "small") -> Agent:
        received.append(model_id)
        return agent_of(model)

    def with_options(**options: Any) -> Agent:
        received.append(options)
        return agent_of(model)

    for factory in (with_a_default, with_options):
        assert words(await alone(StrandsAgent(factory), user("u1")))[-1] == "RF success"
    assert received == ["small", {}]


@pytest.mark.parametrize("wrong", ["agent", 1, None])
def test_an_object_that_is_not_an_agent_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        StrandsAgent(wrong)


def test_a_template_with_a_session_is_refused(tmp_path: Path) -> None:
    session = FileSessionManager(session_id="one", storage_dir=str(tmp_path))
    with pytest.raises(ConfigError):
        StrandsAgent(Agent(model=ScriptedModel(), session_manager=session, callback_handler=None))


@pytest.mark.parametrize("held", [{"context_manager": "auto"}, {"background_tasks": True}], ids=str)
async def test_a_template_that_cannot_be_had_twice_is_refused_and_a_function_makes_it(held: dict[str, Any]) -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))
    with pytest.raises(ConfigError):
        StrandsAgent(agent_of(model, **held))
    assert words(await alone(StrandsAgent(lambda: agent_of(model, **held)), user("u1")))[-1] == "RF success"


class Forecast(BaseModel):
    city: str


async def test_an_agent_made_after_a_template_is_like_it_and_shares_nothing_that_changes() -> None:
    seen: list[str] = []

    def look(event: BeforeModelCallEvent) -> None:
        seen.append("hook")

    class Extra(Plugin):
        name = "extra"

        @tool
        def extra(self) -> str:
            """An extra tool."""
            return "extra"

    model = ScriptedModel(says("a"), says("b"))
    helper = agent_of(ScriptedModel(), name="helper", description="Helps.")
    template = Agent(
        model=model,
        tools=[get_weather, helper.as_tool(name="helper")],
        system_prompt="Be kind.",
        name="template",
        description="A template.",
        agent_id="the-agent",
        state={"n": 1},
        hooks=[look],
        plugins=[Extra()],
        trace_attributes={"a": "b"},
        conversation_manager=SlidingWindowConversationManager(window_size=7),
        structured_output_model=Forecast,
    )
    made = clone_agent(template, instructions="Be brief.")
    assert made.system_prompt == "Be kind.\nBe brief."
    assert sorted(made.tool_names) == sorted(template.tool_names) == ["extra", "get_weather", "helper"]
    assert (made.name, made.description, made.agent_id) == ("template", "A template.", "the-agent")
    assert (made.state.get(), made.trace_attributes) == ({"n": 1}, {"a": "b"})
    assert not isinstance(made.callback_handler, PrintingCallbackHandler)
    assert made.conversation_manager is not template.conversation_manager
    made.state.set("n", 2)
    made.messages.append({"role": "user", "content": [{"text": "hi"}]})
    assert (template.state.get(), template.messages) == ({"n": 1}, [])
    again = clone_agent(template)
    assert again.tool_registry.registry["helper"] is not made.tool_registry.registry["helper"]


async def test_hooks_of_a_template_run_once_for_every_thread() -> None:
    seen: list[str] = []

    def look(event: BeforeModelCallEvent) -> None:
        seen.append(event.agent.messages[0]["content"][0]["text"])

    agent = agent_of(ScriptedModel(says("a"), says("b")))
    agent.hooks.add_callback(BeforeModelCallEvent, look)
    async with strands(agent) as thread:
        await thread.say("one")
        await Thread(thread.runner, name="other").say("two")
    assert seen == ["one", "two"]


async def test_what_a_tool_keeps_in_the_agents_state_survives_a_restart(tmp_path: Path) -> None:
    @tool(context=True)
    def count(tool_context: ToolContext) -> str:
        """Counts."""
        number = (tool_context.agent.state.get("n") or 0) + 1
        tool_context.agent.state.set("n", number)
        return str(number)

    turns = [turn for at in range(3) for turn in (calls(call(f"c{at}", "count")), says("ok"))]
    model = ScriptedModel(*turns)
    for at in range(3):
        async with strands(agent_of(model, count), store=tmp_path / "ledger.db") as thread:
            thread.count = at
            assert f'CR c{at} "{at + 1}"' in await thread.say("count")
    assert len(model.saw) == 6


async def test_a_key_a_tool_deletes_from_the_agents_state_stays_deleted() -> None:
    @tool(context=True)
    def forget(tool_context: ToolContext) -> str:
        """Forgets."""
        tool_context.agent.state.delete("n")
        return "forgotten"

    model = ScriptedModel(calls(call("c1", "forget")), says("ok"), says("ok"))
    seen: list[Any] = []
    agent = agent_of(model, forget, state={"n": 1}, hooks=[_seeing(seen)])
    async with strands(agent) as thread:
        await thread.say("forget")
        await thread.say("and?")
    assert seen == [{"n": 1}, {}, {}]


def _seeing(seen: list[Any]) -> Any:
    def look(event: BeforeModelCallEvent) -> None:
        seen.append(event.agent.state.get())

    return look


@pytest.mark.parametrize("content", ["", []])
async def test_a_request_without_a_user_message_is_refused(content: Any) -> None:
    agent = StrandsAgent(agent_of(ScriptedModel()))
    assert words(await alone(agent, e.UserMessage(id="u1", content=content))) == ["SS {}", "RE no_user_message"]


async def test_the_platforms_instructions_reach_the_model() -> None:
    model = ScriptedModel(says("ok"))
    context = PlatformContext(system_prompt_append="Be brief.")
    adapter = StrandsBridge(agent_of(model, system_prompt="Be kind.")).create_adapter(context)
    async with aclosing(structs_of(adapter.run(agui_input(user("u1"))))) as events:
        assert isinstance([event async for event in events][-1], e.RunFinished)
    assert model.prompts == ["Be kind.\nBe brief."]


async def test_the_context_of_a_startreaches_the_model_and_not_the_history() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", '{"city": "x"}')), says("a"), says("b"))
    contexts: list[Any] = []

    def look(event: BeforeModelCallEvent) -> None:
        contexts.append(event.agent.state.get("agui_context"))

    agent = agent_of(model, get_weather, hooks=[look])
    async with strands(agent) as thread:
        await thread.say("one", context=[e.Context(description="theme", value="dark")])
        await thread.say("two")
    spoken = {"text": "Context of this request:\n- theme: dark"}
    assert model.saw[0] == [said_user("one", spoken)]
    assert model.saw[1][-1] == said_user(tool_result("c1", "sunny in x"), spoken)
    assert spoken not in [block for message in model.saw[2] for block in message["content"]]
    assert contexts == [[{"description": "theme", "value": "dark"}]] * 2 + [None]


async def test_what_a_user_attaches_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StrandsBridge, "media_url_schemes", {"http", "s3"})  # The server refuses them otherwise.
    model = ScriptedModel(says("ok"))
    data = base64.b64encode(b"bytes").decode()
    content = [
        e.TextPart(text="look"),
        e.ImagePart(source=e.DataSource(value=data, mime_type="image/jpg")),
        e.DocumentPart(
            source=e.DataSource(value=data, mime_type="application/pdf"), metadata={"filename": "my report.v2.pdf"}
        ),
        e.VideoPart(source=e.UrlSource(value="s3://bucket/a.mp4", mime_type="video/mp4")),
        e.ImagePart(source=e.UrlSource(value="http://169.254.169.254/latest", mime_type="image/png")),
        e.AudioPart(source=e.DataSource(value="not base64!", mime_type="audio/wav")),
    ]
    async with strands(agent_of(model)) as thread:
        await thread.say(content)
    assert model.saw[0][0]["content"] == [
        {"text": "look"},
        {"image": {"format": "jpeg", "source": {"bytes": b"bytes"}}},
        {"document": {"format": "pdf", "source": {"bytes": b"bytes"}, "name": "my report-v2-3"}},
        {"text": "[An attachment that cannot be read here: video/mp4]"},
        {"text": "[An attachment that cannot be read here: image/png]"},
        {"text": "[An attachment that cannot be read here: audio/wav]"},
    ]


def sessions(directory: Path) -> StrandsAgentConfig:
    def provide(first: ag.RunAgentInput) -> FileSessionManager:
        name = hashlib.sha256(repr(current_run().thread).encode()).hexdigest()
        return FileSessionManager(session_id=name, storage_dir=str(directory))

    return StrandsAgentConfig(session_manager_provider=provide)


async def test_a_session_owns_the_history_across_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", '{"city": "x"}')), says("sunny"), says("bye"))
    for at, text in enumerate(("weather?", "thanks")):
        async with strands(agent_of(model, get_weather), sessions(tmp_path), store=tmp_path / "ledger.db") as thread:
            thread.count = at
            assert (await thread.say(text))[-1] == "RF success"
    assert model.saw[2] == [
        said_user("weather?"),
        said_assistant(tool_use("c1", "get_weather", {"city": "x"})),
        said_user(tool_result("c1", "sunny in x")),
        said_assistant("sunny"),
        said_user("thanks"),
    ]


async def test_a_session_named_as_documented_is_no_other_users(tmp_path: Path) -> None:
    model = ScriptedModel(says("a"), says("b"))
    async with strands(agent_of(model), sessions(tmp_path)) as thread:
        for owner in ("ada", "bob"):
            start = dataclasses.replace(request(e.UserMessage(id="u1", content=owner)), actor=Actor(owner=owner))
            with unless_hung():
                await events_of(thread.runner, await thread.runner.start(start))
    assert model.saw == [[said_user("ada")], [said_user("bob")]]


async def test_the_context_of_a_startis_not_that_of_the_next(tmp_path: Path) -> None:
    contexts: list[Any] = []

    @tool(context=True)
    def look(tool_context: ToolContext) -> str:
        """What is the context?"""
        contexts.append(tool_context.agent.state.get("agui_context"))
        return "seen"

    model = ScriptedModel(calls(call("c1", "look")), says("a"), calls(call("c2", "look")), says("b"))
    async with strands(agent_of(model, look), sessions(tmp_path)) as thread:
        await thread.say("one", context=[e.Context(description="page", value="private")])
        await thread.say("two")
    assert contexts == [[{"description": "page", "value": "private"}], None]


async def test_a_session_waits_for_the_client_across_a_restart(tmp_path: Path) -> None:
    both = calls(call("f1", "change_background", "{}"), call("c1", "get_weather", '{"city": "x"}'))
    model = ScriptedModel(both, says("done"), says("bye"))
    agent, config, store = agent_of(model, get_weather), sessions(tmp_path), tmp_path / "ledger.db"
    async with strands(agent, config, store=store, tools=[TOOL]) as thread:
        assert (await thread.say("go"))[-1] == "RF waits for f1"
    async with strands(agent, config, store=store, tools=[TOOL]) as thread:
        assert await thread.answer(f1="red") == ["TS m1", 'TC m1 "done"', "TE m1", "MS", "RF success"]
    async with strands(agent, config, store=store, tools=[TOOL]) as thread:
        thread.count = 1
        await thread.say("thanks")
    history = [
        said_user("go"),
        said_assistant(tool_use("f1", "change_background"), tool_use("c1", "get_weather", {"city": "x"})),
        said_user(tool_result("f1", "red"), tool_result("c1", "sunny in x")),
    ]
    assert model.saw[1:] == [history, [*history, said_assistant("done"), said_user("thanks")]]


async def test_a_session_continues_with_a_new_message_instead_of_a_result(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("f1", "change_background", "{}")), says("fine"))
    async with strands(agent_of(model), sessions(tmp_path), tools=[TOOL]) as thread:
        await thread.say("go")
        assert (await thread.say("never mind"))[-1] == "RF success"
    assert model.saw[1][2]["content"][0]["toolResult"]["status"] == "error"
    assert model.saw[1][-1]["content"][-1] == {"text": "never mind"}


async def test_a_session_remembers_its_interrupt_across_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("c1", "book", '{"city": "Rome"}')), says("done"))
    agent, config, store = agent_of(model, book), sessions(tmp_path), tmp_path / "ledger.db"
    async with strands(agent, config, store=store) as thread:
        assert (await thread.say("go"))[-1] == "RF asks confirm"
        (question,) = thread.interrupts
    async with strands(agent, config, store=store) as thread:
        assert (await thread.resume(yes(question, "yes")))[0] == 'CR c1 "booked Rome: yes"'
    assert model.saw[1][-1] == said_user(tool_result("c1", "booked Rome: yes"))


async def test_an_interrupt_that_is_no_longer_known_has_its_own_error() -> None:
    resume = [e.ResumeEntry(interrupt_id="v1:x#1", status="resolved", payload=1)]
    agent = StrandsAgent(agent_of(ScriptedModel()))
    assert words(await alone(agent, user("u1"), tool_message("c1", ""), resume=resume)) == [
        "SS {}",
        "RE interrupt_lost",
    ]


async def test_structured_output_is_the_result_of_the_run() -> None:
    model = ScriptedModel(calls(call("c1", "Forecast", '{"city": "Rome"}')))
    async with strands(agent_of(model, structured_output_model=Forecast)) as thread:
        await thread.say("go")
        end = thread.events[-1]
    assert isinstance(end, e.RunFinished)
    assert end.result == {"city": "Rome"}


async def test_alone_an_agent_yields_models_that_the_encoder_of_ag_ui_accepts() -> None:
    """Apps such as Bedrock AgentCore's pass the events of `run` to `EventEncoder`."""
    agent = StrandsAgent(agent_of(ScriptedModel(says("one"))))
    run = agent.run(agui_input(user("u1")))
    frames = [EventEncoder().encode(event) async for event in run]
    assert [json.loads(frame.removeprefix("data: "))["type"] for frame in frames][:: len(frames) - 1] == [
        "RUN_STARTED",
        "RUN_FINISHED",
    ]
