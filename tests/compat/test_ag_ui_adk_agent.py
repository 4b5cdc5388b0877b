"""`ADKAgent` alone: what `run` yields and what the model sees, on the real SDK with a scripted model."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    Context,
    EventType,
    FunctionCall,
    RunAgentInput,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ag_ui.encoder import EventEncoder
from google.adk.agents import LlmAgent, RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool, ToolContext

from ambient_runner.compat.ag_ui_adk import (
    CONTEXT_STATE_KEY,
    ADKAgent,
    AGUIToolset,
    EventTranslator,
    PredictStateMapping,
    SessionManager,
    adk_events_to_messages,
    get_a2ui_tool,
    is_auto_injected_a2ui_tool,
    plan_a2ui_injection,
)
from tests.bridges.adk.scripted import HANG, Scripted, call
from tests.machine_speed import unless_hung

SAY_HELLO = Tool(name="sayHello", description="Greet", parameters={"type": "object", "properties": {}})
SAY_BYE = Tool(name="sayBye", description="Part", parameters={"type": "object", "properties": {}})


def run_input(*messages: Any, **options: Any) -> RunAgentInput:
    said = messages or (UserMessage(id="1", content="Hello!"),)
    given: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwarded_props": {}, **options}
    return RunAgentInput(thread_id="t", run_id="r", messages=list(said), **given)


async def collect(agent: ADKAgent, given: RunAgentInput) -> list[BaseEvent]:
    with unless_hung():
        return [event async for event in agent.run(given)]


def types_of(events: list[BaseEvent]) -> list[str]:
    return [event.type.value for event in events]


async def test_run_yields_a_whole_run_of_models_that_the_encoder_accepts() -> None:
    agent = ADKAgent(LlmAgent(name="assistant", model=Scripted.of(["Hi", " there"])), app_name="demo", user_id="ada")
    events = await collect(agent, run_input())
    assert types_of(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert all(EventEncoder().encode(event).startswith("data: {") for event in events)
    await agent.close()


async def test_the_session_is_that_of_the_app_the_user_and_the_thread() -> None:
    service = InMemorySessionService()
    manager = SessionManager(session_service=service)
    agent = ADKAgent(
        LlmAgent(name="assistant", model=Scripted.of(["Hi"])),
        app_name_extractor=lambda given: f"app-{given.state['tenant']}",
        user_id_extractor=lambda given: given.state["user"],
        session_manager=manager,
    )
    await collect(agent, run_input(state={"tenant": "x", "user": "ada"}))
    session = await manager.get_session("t", "app-x", "ada")
    assert session is not None
    messages = adk_events_to_messages(session.events)
    assert [(message.role, message.content) for message in messages] == [("user", "Hello!"), ("assistant", "Hi")]


async def test_the_second_run_continues_the_first() -> None:
    model = Scripted.of(["Hi"], ["Ada"])
    agent = ADKAgent(LlmAgent(name="assistant", model=model), user_id="ada")
    first = await collect(agent, run_input(UserMessage(id="1", content="I am Ada")))
    reply = next(event for event in first if event.type is EventType.TEXT_MESSAGE_START)
    history = [
        UserMessage(id="1", content="I am Ada"),
        AssistantMessage(id=reply.message_id, content="Hi"),  # type: ignore[attr-defined]
        UserMessage(id="2", content="Who am I?"),
    ]
    await collect(agent, run_input(*history))
    assert model.saw[1] == [("user", "I am Ada"), ("model", "Hi"), ("user", "Who am I?")]


async def test_only_agents_with_a_toolset_get_the_clients_tools_filtered_and_prefixed() -> None:
    model = Scripted.of(["ok"])
    inner = LlmAgent(name="inner", model=Scripted.of(["never"]))
    toolset = AGUIToolset(tool_filter=["sayHello"], tool_name_prefix="page")
    agent = ADKAgent(LlmAgent(name="root", model=model, tools=[toolset], sub_agents=[inner]), user_id="ada")
    await collect(agent, run_input(tools=[SAY_HELLO, SAY_BYE]))
    assert {"page_sayHello"} == {name for name in model.requests[0].tools_dict if "say" in name}


@pytest.mark.parametrize("tools", [[], [AGUIToolset(tool_filter=lambda tool, context=None: tool.name.endswith("Bye"))]])
async def test_without_a_toolset_that_offers_it_an_agent_has_no_client_tool(tools: list[Any]) -> None:
    model = Scripted.of(["ok"])
    agent = ADKAgent(LlmAgent(name="root", model=model, tools=tools), user_id="ada")
    await collect(agent, run_input(tools=[SAY_HELLO, SAY_BYE]))
    assert set(model.requests[0].tools_dict) == ({"sayBye"} if tools else set())


@pytest.mark.filterwarnings("ignore:.EXPERIMENTAL. ResumabilityConfig")
async def test_a_client_tool_pauses_the_run_and_its_result_continues_it() -> None:
    model = Scripted.of([call("sayHello", "c1")], ["done"])
    app = App(
        name="demo",
        root_agent=LlmAgent(name="root", model=model, tools=[AGUIToolset()]),
        resumability_config=ResumabilityConfig(is_resumable=True),
    )
    agent = ADKAgent.from_app(app, user_id="ada")
    first = await collect(agent, run_input(tools=[SAY_HELLO]))
    assert types_of(first)[1:] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"]
    asked = AssistantMessage(
        id="m", tool_calls=[ToolCall(id="c1", function=FunctionCall(name="sayHello", arguments="{}"))]
    )
    answer = ToolMessage(id="a", tool_call_id="c1", content='{"greeted": true}')
    second = await collect(agent, run_input(UserMessage(id="1", content="Hello!"), asked, answer, tools=[SAY_HELLO]))
    assert types_of(second)[-1] == "RUN_FINISHED"
    assert model.saw[1][-1] == ("user", ("result", "sayHello", {"greeted": True}))


async def test_the_context_of_a_run_is_in_the_state_and_in_the_run_configuration() -> None:
    seen: list[Any] = []

    def instruction(context: Any) -> str:
        seen.append((context.state.get(CONTEXT_STATE_KEY), context.run_config.custom_metadata))
        return "Help."

    def look(tool_context: ToolContext) -> str:
        seen.append(tool_context.state.get(CONTEXT_STATE_KEY))
        return "seen"

    model = Scripted.of([call("look", "c1")], ["ok"])
    agent = ADKAgent(LlmAgent(name="root", model=model, instruction=instruction, tools=[look]), user_id="ada")
    events = await collect(agent, run_input(context=[Context(description="page", value="invoice 7")]))
    item = [{"description": "page", "value": "invoice 7"}]
    assert seen[:2] == [(item, {"ag_ui_context": item}), item]
    assert "CUSTOM" not in types_of(events)
    assert not any(CONTEXT_STATE_KEY in event.model_dump_json() for event in events)


async def test_the_run_configuration_of_the_factory_is_used() -> None:
    def configure(given: RunAgentInput) -> RunConfig:
        return RunConfig(max_llm_calls=1 if given.state else 5)

    model = Scripted.of([call("look", "c1")], ["ok"], loop=False)
    agent = ADKAgent(
        LlmAgent(name="root", model=model, tools=[FunctionTool(_look)]), user_id="ada", run_config_factory=configure
    )
    events = await collect(agent, run_input(state={"short": True}))
    assert types_of(events)[-1] == "RUN_ERROR"


def _look() -> str:
    return "seen"


_look.__name__ = "look"


def _pay(amount: int) -> str:
    return f"paid {amount}"


@pytest.mark.parametrize("answer", [True, False])
async def test_a_confirmation_is_a_tool_call_that_a_tool_message_answers(answer: bool) -> None:
    model = Scripted.of([call("_pay", "c1", amount=3)], ["ok"])
    tools = [FunctionTool(_pay, require_confirmation=True)]
    agent = ADKAgent(LlmAgent(name="root", model=model, tools=tools), user_id="ada")
    first = await collect(agent, run_input())
    started = [event for event in first if event.type is EventType.TOOL_CALL_START]
    assert [event.tool_call_name for event in started] == ["_pay", "adk_request_confirmation"]  # type: ignore[attr-defined]
    assert first[-1].outcome.type == "success"  # type: ignore[attr-defined]
    confirmation = started[1].tool_call_id  # type: ignore[attr-defined]
    calls = [
        ToolCall(id="c1", function=FunctionCall(name="_pay", arguments='{"amount": 3}')),
        ToolCall(id=confirmation, function=FunctionCall(name="adk_request_confirmation", arguments="{}")),
    ]
    history = [UserMessage(id="1", content="Hello!"), AssistantMessage(id="m", tool_calls=calls)]
    content = '{"confirmed": true}' if answer else '{"confirmed": false}'
    second = await collect(agent, run_input(*history, ToolMessage(id="a", tool_call_id=confirmation, content=content)))
    results = [event.content for event in second if event.type is EventType.TOOL_CALL_RESULT]  # type: ignore[attr-defined]
    assert ("paid 3" in results) is answer
    assert types_of(second)[-1] == "RUN_FINISHED"


async def test_with_emit_interrupt_outcome_a_confirmation_is_an_interrupt() -> None:
    model = Scripted.of([call("_pay", "c1", amount=3)], ["ok"])
    tools = [FunctionTool(_pay, require_confirmation=True)]
    agent = ADKAgent(LlmAgent(name="root", model=model, tools=tools), user_id="ada", emit_interrupt_outcome=True)
    events = await collect(agent, run_input())
    assert events[-1].outcome.type == "interrupt"  # type: ignore[attr-defined]


async def test_a_failure_is_the_last_event_and_not_an_exception() -> None:
    agent = ADKAgent(LlmAgent(name="root", model=Scripted.of(RuntimeError("secret"))), user_id="ada")
    events = await collect(agent, run_input())
    assert types_of(events) == ["RUN_STARTED", "RUN_ERROR"]
    assert "secret" not in events[-1].model_dump_json()


async def test_a_run_that_takes_too_long_ends_with_an_error() -> None:
    model = Scripted.of(["Hi", HANG])
    agent = ADKAgent(LlmAgent(name="root", model=model), user_id="ada", execution_timeout_seconds=0)
    events = await collect(agent, run_input())
    assert types_of(events)[-1] == "RUN_ERROR"
    assert model.playing == 0


async def test_a_second_run_of_a_busy_thread_is_refused_and_does_not_end_the_first() -> None:
    model = Scripted.of(["Hi", HANG])
    agent = ADKAgent(LlmAgent(name="root", model=model), user_id="ada")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, agent, run_input())
        await model.wait_for_calls()
        refused = [await collect(agent, run_input(UserMessage(id="2", content="again"))) for _ in range(2)]
        tasks.cancel_scope.cancel()
    assert [types_of(events) for events in refused] == [["RUN_STARTED", "RUN_ERROR"]] * 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"app_name": "a", "app_name_extractor": str}, ValueError),
        ({"user_id": "a", "user_id_extractor": str}, ValueError),
        ({"session_service": InMemorySessionService(), "session_manager": SessionManager()}, ValueError),
        ({"capabilities": ["x"]}, TypeError),
        ({"capabilities": {"x": object()}}, ValueError),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ADKAgent(LlmAgent(name="root", model=Scripted.of()), **options)


async def test_a_session_manager_reads_and_changes_state() -> None:
    manager = SessionManager()
    _, session_id = await manager.get_or_create_session("t", "app", "ada", {"a": 1, "b": 2})
    where = (session_id, "app", "ada")
    assert await manager.update_session_state(*where, {"a": 3})
    assert await manager.set_state_value(*where, "c", 4)
    assert await manager.remove_state_keys(*where, ["b"])
    assert await manager.get_session_state(*where) == {"a": 3, "b": None, "c": 4}
    assert await manager.get_state_value(*where, "d", 9) == 9
    assert not await manager.update_session_state("other", "app", "ada", {})
    assert (manager.get_session_count(), manager.get_user_session_count("bob")) == (1, 0)


async def test_the_translator_yields_models_for_events_of_adk() -> None:
    service = InMemorySessionService()
    agent = ADKAgent(
        LlmAgent(name="root", model=Scripted.of(["Hi"])), app_name="a", user_id="ada", session_service=service
    )
    await collect(agent, run_input())
    session = await service.get_session(app_name="a", user_id="ada", session_id="t")
    assert session is not None
    translator = EventTranslator()
    translated = [event for native in session.events async for event in translator.translate(native, "t", "r")]
    assert types_of(translated) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert [event async for event in translator.force_close_streaming_message()] == []


def _write(document: str) -> str:
    return "written"


@pytest.mark.parametrize("confirms", [True, False])
async def test_a_predicted_change_is_confirmed_by_the_client(confirms: bool) -> None:
    model = Scripted.of([call("_write", "c1", document="Hi")], ["Here it is."], ["Fine."])
    mapping = PredictStateMapping("document", "_write", "document", emit_confirm_tool=confirms)
    agent = ADKAgent(LlmAgent(name="root", model=model, tools=[_write]), user_id="ada", predict_state=[mapping])
    events = await collect(agent, run_input())
    predicted = [event.value for event in events if event.type is EventType.CUSTOM]  # type: ignore[attr-defined]
    assert predicted == [[{"state_key": "document", "tool": "_write", "tool_argument": "document"}]]
    started = [event for event in events if event.type is EventType.TOOL_CALL_START]
    assert [event.tool_call_name for event in started] == ["_write", *(["confirm_changes"] if confirms else [])]  # type: ignore[attr-defined]
    if not confirms:
        return
    confirmation = started[1].tool_call_id  # type: ignore[attr-defined]
    function = FunctionCall(name="confirm_changes", arguments="{}")
    asked = AssistantMessage(id="m", tool_calls=[ToolCall(id=confirmation, function=function)])
    answer = ToolMessage(id="a", tool_call_id=confirmation, content='{"accepted": true}')
    await collect(agent, run_input(UserMessage(id="1", content="Hello!"), asked, answer))
    assert model.saw[2][-1] == ("user", "I accept the changes.")


async def test_the_a2ui_tool_tells_the_model_that_a2ui_is_not_supported(caplog: pytest.LogCaptureFixture) -> None:
    """An import of the A2UI names once failed, and with it every agent of a server."""
    model = Scripted.of([call("generate_a2ui", "c1")], ["Sorry."])
    a2ui_tool = get_a2ui_tool({"model": model, "default_catalog_id": "catalog", "recovery": {"maxAttempts": 3}})
    assert "A2UI" in caplog.text
    root = LlmAgent(name="a2ui", model=model, tools=[a2ui_tool, AGUIToolset()])
    events = await collect(ADKAgent(root, app_name="demo", user_id="ada"), run_input())
    assert types_of(events)[-1] == "RUN_FINISHED"
    assert model.saw[1][-1] == (
        "user",
        ("result", "generate_a2ui", {"result": "A2UI is not supported here. Answer in text."}),
    )
    plan = plan_a2ui_injection(model=model, input=run_input(), existing_tool_names=[], config={})
    assert (plan, is_auto_injected_a2ui_tool(a2ui_tool)) == (None, False)
