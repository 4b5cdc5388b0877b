"""`ambient_runner.compat.ag_ui_strands`: apps that were written for `ag_ui_strands` 1.0.2, with another import."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from uuid import UUID

import ag_ui.core as ag
import pytest
from fastapi import APIRouter, FastAPI, Header, HTTPException
from fastapi.middleware.cors import CORSMiddleware
from fastapi.security import HTTPAuthorizationCredentials, HTTPBasicCredentials
from strands import ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.plugins import Plugin
from strands.tools.registry import ToolRegistry

import ambient_runner.compat.ag_ui_strands as compat
from ambient_runner.compat.ag_ui_strands import (
    StrandsAgent,
    StrandsAgentConfig,
    ToolBehavior,
    add_strands_fastapi_endpoint,
    create_strands_app,
)
from ambient_runner.runs.run import Actor
from tests.bridges.strands.scripted import ScriptedModel, call, calls, said_user, says, text, tool_result
from tests.bridges.strands.world import agent_of
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

PUBLISHED_NAMES = """
StrandsAgent INTERRUPT_CANCELLED CITATIONS_METADATA_KEY create_proxy_tool sync_proxy_tools sync_template_tools
TemplateToolsSelectionError EXEMPT_EVERY_TEMPLATE_TOOL create_strands_app UrlFetchPolicy UrlFetchPolicyError DEFAULT_URL_FETCH_POLICY
add_strands_fastapi_endpoint InvocationStateProvider add_ping StrandsAgentConfig ToolBehavior ToolCallContext ToolResultContext
ToolStreamEventContext PredictStateMapping SessionManagerProvider TemplateToolsProvider ToolStreamEventHandler Interrupt ResumeEntry
RunFinishedInterruptOutcome RunFinishedSuccessOutcome A2UI_STREAM_KEY A2UI_OPERATIONS_KEY A2UIToolParams A2UIGuidelines BASIC_CATALOG_ID
get_a2ui_tools is_auto_injected_a2ui_tool plan_a2ui_injection
""".split()  # noqa: SIM905
PUBLISHED_MODULES = {
    "a2ui_tool": ["get_a2ui_tools", "plan_a2ui_injection"],
    "agent": ["StrandsAgent", "INTERRUPT_CANCELLED"],
    "config": ["StrandsAgentConfig", "ToolBehavior", "maybe_await", "normalize_predict_state"],
    "endpoint": ["add_strands_fastapi_endpoint", "add_ping"],
    "utils": ["create_strands_app", "UrlFetchPolicy"],
    "types": ["StrandsEventTypes", "StrandsMessage", "StrandsToolCall", "StrandsState"],
    "client_proxy_tool": ["create_proxy_tool", "sync_proxy_tools"],
}
PARAMETERS = {
    StrandsAgent: ["agent", "name", "description", "config", "hooks", "plugins", "agents_by_thread"],
    create_strands_app: [
        *("agent", "path", "ping_path", "origins", "auth", "allow_methods", "allow_headers", "cors_enabled"),
        "invocation_state_provider",
    ],
    add_strands_fastapi_endpoint: ["app", "agent", "path", "auth", "invocation_state_provider"],
    StrandsAgent.run: ["self", "input_data", "invocation_state"],
}
FIELDS = {
    ToolBehavior: [
        *("skip_messages_snapshot", "continue_after_frontend_call", "stop_streaming_after_result", "interrupt_on_call"),
        *("predict_state", "args_streamer", "state_from_args", "state_from_result", "custom_result_handler"),
        "tool_stream_event_handler",
    ],
    StrandsAgentConfig: [
        *("tool_behaviors", "state_context_builder", "thread_agent_kwargs", "template_tools_provider"),
        *("session_manager_provider", "emit_messages_snapshot", "replay_history_into_strands", "url_fetch_policy"),
        "audio_input_supported",
    ],
    compat.ToolStreamEventContext: ["tool_use_id", "tool_name", "stream_data"],
    compat.PredictStateMapping: ["state_key", "tool", "tool_argument"],
    compat.UrlFetchPolicy: [
        *("allowed_schemes", "allow_private_networks", "max_bytes", "timeout", "max_attachments", "max_total_bytes"),
        "max_total_seconds",
    ],
}


def test_every_published_name_exists() -> None:
    assert sorted(compat.__all__) == sorted(PUBLISHED_NAMES)


@pytest.mark.parametrize("module", PUBLISHED_MODULES)
def test_the_modules_that_users_import_have_their_names(module: str) -> None:
    found = importlib.import_module(f"ambient_runner.compat.ag_ui_strands.{module}")
    assert [name for name in PUBLISHED_MODULES[module] if not hasattr(found, name)] == []


@pytest.mark.parametrize("function", PARAMETERS, ids=lambda function: function.__qualname__)
def test_functions_take_the_published_arguments_in_their_order(function: Any) -> None:
    expected = PARAMETERS[function]
    assert list(inspect.signature(function).parameters)[: len(expected)] == expected


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_dataclasses_have_the_published_fields_in_their_order(kind: Any) -> None:
    expected = FIELDS[kind]
    assert [field.name for field in fields(kind)][: len(expected)] == expected


def run_input(text: str = "hi", **options: Any) -> ag.RunAgentInput:
    values = {"messages": [{"id": "u1", "role": "user", "content": text}], **options}
    defaults = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return ag.RunAgentInput.model_validate({**defaults, **values})


async def collect(agent: StrandsAgent, given: ag.RunAgentInput, **options: Any) -> list[Any]:
    with unless_hung():
        return [event async for event in agent.run(given, **options)]


def kinds(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


async def post(app: FastAPI, path: str, body: dict[str, Any], **options: Any) -> Any:
    async with client_of(app) as client:
        with unless_hung():
            return await client.post(path, json=body, **options)


seen: list[Any] = []


@tool(context=True)
def who(tool_context: ToolContext) -> str:
    """Return the user of a request."""
    seen.append(tool_context.invocation_state.get("user"))
    return "you"


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def asks_who() -> ScriptedModel:
    return ScriptedModel(calls(call("c1", "who")), says("you"))


async def test_invocation_state_reaches_the_tools() -> None:
    agent = StrandsAgent(agent_of(asks_who(), who), "helper")
    await collect(agent, run_input(), invocation_state={"user": "ada"})
    assert seen == ["ada"]


async def test_the_endpoint_derives_invocation_state_from_the_request() -> None:
    async def provide(request: Any, given: ag.RunAgentInput) -> dict[str, Any]:
        return {"user": f"{request.headers['x-user']} in {given.thread_id}"}

    app = FastAPI()
    agent = StrandsAgent(agent_of(asks_who(), who), "helper")
    add_strands_fastapi_endpoint(
        app, agent, "chat", invocation_state_provider=provide, tags=["agents"], settings=SETTINGS
    )
    response = await post(app, "/chat", run_body("hi"), headers={"X-User": "ada"})
    assert response.status_code == 200
    assert seen == ["ada in t"]


async def test_a_provider_that_fails_starts_no_run() -> None:
    model = asks_who()
    app = create_strands_app(
        StrandsAgent(agent_of(model, who), "helper"),
        invocation_state_provider=lambda request, given: "ada",  # type: ignore[arg-type,return-value]
        settings=SETTINGS,
    )
    assert (await post(app, "/", run_body("hi"))).status_code == 500
    assert model.saw == []


class _Counts(HookProvider):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def register_hooks(self, registry: HookRegistry, **options: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, lambda event: self.calls.append(event.tool_use["name"]))


class _Adds(Plugin):
    name = "adds-weather"

    def init_agent(self, agent: Any) -> None:
        agent.tool_registry.process_tools([get_weather])


async def test_hooks_and_plugins_are_those_of_every_threads_agent() -> None:
    model, counts = ScriptedModel(script=_weather_once), _Counts()
    agent = StrandsAgent(agent_of(model), "helper", hooks=[counts], plugins=[_Adds()])
    for thread in ("a", "b"):
        assert "TOOL_CALL_RESULT" in kinds(await collect(agent, run_input(threadId=thread)))
    assert counts.calls == ["get_weather", "get_weather"]
    assert model.specs[0] == ["get_weather"]


def _weather_once(messages: list[Any]) -> Any:
    asked = any("toolUse" in block for message in messages for block in message["content"])
    return says("sunny") if asked else calls(call("c1", "get_weather", '{"city": "Rome"}'))


async def test_thread_agent_kwargs_replace_arguments_of_the_template() -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))
    config = StrandsAgentConfig(
        thread_agent_kwargs=lambda given: {"conversation_manager": SlidingWindowConversationManager(window_size=2)}
    )
    agent = StrandsAgent(agent_of(model), "helper", config=config)
    history = [{"id": f"m{i}", "role": ("user", "assistant")[i % 2], "content": f"{i}"} for i in range(9)]
    await collect(agent, run_input(messages=history))
    assert len(model.saw[0]) == 3


async def test_thread_agent_kwargs_do_not_replace_what_keeps_threads_apart(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(says("ok"))
    config = StrandsAgentConfig(thread_agent_kwargs=lambda given: {"tools": []})
    await collect(StrandsAgent(agent_of(model, get_weather), "helper", config=config), run_input())
    assert model.specs == [["get_weather"]]
    assert "thread_agent_kwargs" in caplog.text


async def test_thread_agent_kwargs_that_do_not_exist_fail_the_run() -> None:
    config = StrandsAgentConfig(thread_agent_kwargs=lambda given: {"nonsense": 1})
    events = await collect(StrandsAgent(agent_of(ScriptedModel()), "helper", config=config), run_input())
    assert kinds(events) == ["RUN_STARTED", "RUN_ERROR"]


async def test_agents_by_thread_is_shared_between_wrappers() -> None:
    agents: dict[str, Any] = {}
    model = ScriptedModel(says("one"), says("two"))
    template = agent_of(model)
    await collect(StrandsAgent(template, "helper", agents_by_thread=agents), run_input())
    first = agents["t"]
    await collect(StrandsAgent(template, "helper", agents_by_thread=agents), run_input())
    assert agents == {"t": first}
    assert len(model.saw) == 2


async def test_a_tools_stream_is_handled_by_the_hook() -> None:
    @tool
    async def plan() -> Any:
        """Plans in steps."""
        yield {"state": {"step": 1}}
        yield "half"
        yield "planned"

    async def handle(context: compat.ToolStreamEventContext) -> Any:
        yield ag.CustomEvent(name="progress", value=[context.tool_name, context.tool_use_id, context.stream_data])

    model = ScriptedModel(calls(call("c1", "plan")), says("done"))
    config = StrandsAgentConfig({"plan": ToolBehavior(tool_stream_event_handler=handle)})
    events = await collect(StrandsAgent(agent_of(model, plan), "helper", config=config), run_input())
    assert [event.value for event in events if event.type == ag.EventType.CUSTOM] == [
        ["plan", "c1", {"state": {"step": 1}}],
        ["plan", "c1", "half"],
        ["plan", "c1", "planned"],
    ]
    assert kinds(events).count("STATE_SNAPSHOT") == 1  # the state that the client sent


async def test_messages_snapshots_can_be_turned_off() -> None:
    model = ScriptedModel(script=_weather_once)
    config = StrandsAgentConfig(emit_messages_snapshot=False)
    events = await collect(StrandsAgent(agent_of(model, get_weather), "helper", config=config), run_input())
    assert "MESSAGES_SNAPSHOT" not in kinds(events)
    assert "TOOL_CALL_RESULT" in kinds(events)


async def test_the_tools_of_a_request_are_selected() -> None:
    def select(given: ag.RunAgentInput) -> list[Any] | None:
        return None if given.forwarded_props.get("role") == "admin" else [get_weather, "unknown"]

    model = ScriptedModel(calls(call("c1", "who")), says("no"), says("yes"))
    config = StrandsAgentConfig(template_tools_provider=select)
    agent = StrandsAgent(agent_of(model, who, get_weather), "helper", config=config)
    await collect(agent, run_input())
    await collect(agent, run_input(threadId="other", forwardedProps={"role": "admin"}))
    assert model.specs == [["get_weather"], ["get_weather"], ["who", "get_weather"]]
    assert seen == []
    assert model.saw[1][-1]["content"][0]["toolResult"]["status"] == "error"


@pytest.mark.parametrize("selection", ["get_weather", {"get_weather": False}, 3, [3]])
async def test_a_selection_that_is_none_withholds_everything(selection: Any) -> None:
    model = ScriptedModel(says("no"))
    config = StrandsAgentConfig(template_tools_provider=lambda given: selection)
    events = await collect(StrandsAgent(agent_of(model, get_weather), "helper", config=config), run_input())
    assert events[-1].code == "template_tools_provider_error"
    assert model.saw == []


async def test_an_agent_may_keep_its_own_history() -> None:
    model = ScriptedModel(says("one"), says("two"))
    agent = StrandsAgent(agent_of(model), "helper", config=StrandsAgentConfig(replay_history_into_strands=False))
    await collect(agent, run_input("first"))
    await collect(agent, run_input(messages=[{"id": "u2", "role": "user", "content": "second"}]))
    assert [message["role"] for message in model.saw[1]] == ["user", "assistant", "user"]


async def test_an_interrupt_returns_the_answer_as_a_response() -> None:
    @tool(context=True)
    def book(tool_context: ToolContext) -> str:
        """Books after asking."""
        answer = tool_context.interrupt("confirm", reason="sure?")
        return "cancelled" if answer == compat.INTERRUPT_CANCELLED else f"got {answer['response']['ok']}"

    for status, payload, expected in (("resolved", {"ok": 1}, "got 1"), ("cancelled", None, "cancelled")):
        model = ScriptedModel(calls(call("c1", "book")), says("done"))
        agent = StrandsAgent(agent_of(model, book), "helper")
        outcome = (await collect(agent, run_input()))[-1].outcome
        assert isinstance(outcome, compat.RunFinishedInterruptOutcome)
        entry = compat.ResumeEntry(interrupt_id=outcome.interrupts[0].id, status=status, payload=payload)  # type: ignore[arg-type]
        await collect(agent, run_input().model_copy(update={"resume": [entry]}))
        assert model.saw[1][-1] == said_user(tool_result("c1", expected))


async def check_key(x_key: str = Header("")) -> Any:
    if x_key not in {"ada", "bob", "shared"}:
        raise HTTPException(401, "Who are you?")
    return x_key if x_key != "shared" else Actor(tenant="acme", owner="ops")


async def test_auth_is_a_fastapi_dependency_and_names_the_owner() -> None:
    model = ScriptedModel(script=lambda messages: says(str(len(messages))))
    app = create_strands_app(StrandsAgent(agent_of(model), "helper"), auth=check_key, settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            refused = await client.post("/", json=run_body("hi"))
            allowed = [
                await client.post("/", json=run_body("hi", runId=f"r-{key}"), headers={"X-Key": key})
                for key in ("ada", "bob", "shared")
            ]
            ping = await client.get("/ping")
    assert (refused.status_code, refused.json()["error"]["message"]) == (401, "Who are you?")
    assert [response.status_code for response in allowed] == [200, 200, 200]
    deltas = [event["delta"] for response in allowed for _, event in frames(response) if "delta" in event]
    assert deltas == ["1", "1", "1"]  # one thread id, three owners
    assert ping.json() == {"status": "healthy"}


async def test_a_caller_without_a_name_has_the_threads_of_its_credentials() -> None:
    async def check(authorization: str = Header("")) -> None:
        if not authorization:
            raise HTTPException(401)

    model = ScriptedModel(script=lambda messages: says(str(len(messages))))
    app = create_strands_app(StrandsAgent(agent_of(model), "helper"), auth=check, settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            responses = [
                await client.post(
                    "/", json=run_body("hi", runId=f"r{i}", message=f"u{i}"), headers={"Authorization": f"Bearer {key}"}
                )
                for i, key in enumerate(("ada", "bob", "ada"))
            ]
    assert [response.status_code for response in responses] == [200, 200, 200]
    deltas = [event["delta"] for response in responses for _, event in frames(response) if "delta" in event]
    assert deltas == ["1", "1", "3"]


@dataclass
class User:
    user_id: Any = None
    name: str = "the same for all"


async def texts_by_owner(results: dict[str, Any], **headers: str) -> list[Any]:
    """Post one message for each key, all to thread `t`, and return the text: the number of messages that the model saw, else the status."""

    def check(x_key: str = Header("")) -> Any:
        return results[x_key]

    model = ScriptedModel(script=lambda messages: says(str(len(messages))))
    app = create_strands_app(StrandsAgent(agent_of(model), "helper"), auth=check, settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            answers = [
                await client.post("/", json=run_body("hi", message=f"u-{key}"), headers={"X-Key": key, **headers})
                for key in results
            ]
    return [_delta(answer) if answer.status_code == 200 else answer.status_code for answer in answers]


def _delta(answer: Any) -> str:
    return next(event["delta"] for _, event in frames(answer) if "delta" in event)


@pytest.mark.parametrize(
    ("ada", "bob"),
    [
        (User("ada"), User("bob")),
        (User(1), User(2)),
        (User(UUID(int=1)), User(UUID(int=2))),
        ({"sub": "ada"}, {"sub": "bob"}),
        ({"id": 0, "role": "admin"}, {"id": 1, "role": "admin"}),
        (HTTPBasicCredentials(username="ada", password="x"), HTTPBasicCredentials(username="bob", password="x")),
    ],
)
async def test_the_owner_is_the_id_of_the_user_that_auth_returns(ada: Any, bob: Any) -> None:
    assert await texts_by_owner({"a": ada, "b": bob, "a again": ada}) == ["1", "1", "3"]


@pytest.mark.parametrize("result", [User(), User(""), {"role": "admin"}, object(), ["ada"], User(["ada"])])
async def test_a_user_without_an_id_is_refused_and_shares_no_thread(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """All users without an id once had the same owner."""
    assert await texts_by_owner({"a": result}, Authorization="Basic cHJveHk6eA==") == [500]
    assert "Return an Actor" in caplog.text


@pytest.mark.parametrize("result", [None, True, ""])
async def test_without_a_result_and_without_credentials_in_the_header_a_request_is_refused(result: Any) -> None:
    assert await texts_by_owner({"a": result, "b": result}, Cookie="session=1") == [500, 500]


@pytest.mark.parametrize("result", [None, True, HTTPAuthorizationCredentials(scheme="Bearer", credentials="x")])
async def test_without_a_result_the_credentials_of_the_header_are_the_owner(result: Any) -> None:
    headers = {"Authorization": "Basic cHJveHk6eA=="}
    assert await texts_by_owner({"a": result, "b": result}, **headers) == ["1", "3"]


async def test_each_api_key_has_its_own_threads_behind_a_proxy_with_one_authorization() -> None:
    async def check(x_api_key: str = Header("")) -> None:
        del x_api_key

    model = ScriptedModel(script=lambda messages: says(str(len(messages))))
    app = create_strands_app(StrandsAgent(agent_of(model), "helper"), auth=check, settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            answers = [
                await client.post(
                    "/",
                    json=run_body("hi", message=key),
                    headers={"Authorization": "Basic cHJveHk6eA==", "X-API-Key": key},
                )
                for key in ("ada", "bob")
            ]
    assert [_delta(answer) for answer in answers] == ["1", "1"]


async def test_the_ping_may_be_elsewhere_or_nowhere() -> None:
    agent = StrandsAgent(agent_of(ScriptedModel()), "helper")
    for path, statuses in (("/healthz", (404, 200)), (None, (404, 404))):
        app = create_strands_app(agent, ping_path=path, settings=SETTINGS)
        async with client_of(app) as client:
            assert ((await client.get("/ping")).status_code, (await client.get("/healthz")).status_code) == statuses


PAGE, LOCAL = "https://page.example", "http://localhost:3000"


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, {LOCAL}),
        ({"origins": [PAGE]}, {PAGE, LOCAL}),
        ({"origins": ["*"]}, {PAGE, LOCAL}),
        ({"cors_enabled": False}, set()),
    ],
)
async def test_pages_may_call_as_the_app_says_and_never_with_credentials(options: Any, allowed: set[str]) -> None:
    app = create_strands_app(StrandsAgent(agent_of(ScriptedModel()), "helper"), settings=SETTINGS, **options)
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-key"}
    async with client_of(app) as client:
        answers = {origin: await client.options("/", headers={"Origin": origin, **asked}) for origin in (PAGE, LOCAL)}
    granted = {origin for origin, answer in answers.items() if "access-control-allow-origin" in answer.headers}
    assert granted == allowed
    assert all("access-control-allow-credentials" not in answer.headers for answer in answers.values())
    assert all("*" in answers[origin].headers["access-control-allow-headers"] for origin in granted)


async def test_an_app_with_its_own_cors_middleware_decides_alone() -> None:
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=[PAGE], allow_methods=["*"], allow_headers=["*"])
    agent = StrandsAgent(agent_of(ScriptedModel(says("hi"))), "helper")
    add_strands_fastapi_endpoint(app, agent, "/chat", settings=SETTINGS)
    response = await post(app, "/chat", run_body("hi"), headers={"Origin": PAGE})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, PAGE)


@pytest.mark.parametrize("has_own", [True, False])
async def test_without_cors_of_the_package_pages_are_refused_unless_the_app_has_its_own(has_own: bool) -> None:
    """Both once accepted requests of every page."""
    apps = [FastAPI(), create_strands_app(_greeter(), "/chat", cors_enabled=False, settings=SETTINGS)]
    add_strands_fastapi_endpoint(apps[0], _greeter(), "/chat", settings=SETTINGS)
    for app in apps:
        if has_own:
            app.add_middleware(CORSMiddleware, allow_origins=[PAGE])
        response = await post(app, "/chat", run_body("hi"), headers={"Origin": PAGE})
        assert response.status_code == (200 if has_own else 403)
        assert response.headers.get("access-control-allow-origin") == (PAGE if has_own else None)


def _greeter() -> StrandsAgent:
    return StrandsAgent(agent_of(ScriptedModel(says("hi"))), "helper")


async def test_an_endpoint_may_be_on_a_router_and_have_dependencies() -> None:
    async def refuse() -> None:
        raise HTTPException(418)

    from fastapi import Depends

    router = APIRouter(prefix="/api")
    agent = StrandsAgent(agent_of(ScriptedModel()), "helper")
    add_strands_fastapi_endpoint(router, agent, "/chat", dependencies=[Depends(refuse)], settings=SETTINGS)
    app = FastAPI()
    app.include_router(router)
    assert (await post(app, "/api/chat", run_body("hi"))).status_code == 418


def test_an_a2ui_configuration_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    StrandsAgentConfig(a2ui={"inject_a2ui_tool": True})
    assert "A2UI" in caplog.text


async def test_the_a2ui_tool_tells_the_model_that_a2ui_is_not_supported(caplog: pytest.LogCaptureFixture) -> None:
    """An import of the A2UI names once failed, and with it every agent of a server."""
    model = ScriptedModel(calls(call("c1", "generate_a2ui", '{"intent": "create"}')), says("Sorry."))
    a2ui_tool = compat.get_a2ui_tools(
        {"model": model, "default_catalog_id": compat.BASIC_CATALOG_ID, "recovery": {"maxAttempts": 3}}
    )
    assert "A2UI" in caplog.text
    events = await collect(StrandsAgent(agent_of(model, a2ui_tool), "helper"), run_input())
    assert [event.content for event in events if event.type == ag.EventType.TOOL_CALL_RESULT] == [
        "A2UI is not supported here. Answer in text."
    ]
    assert kinds(events)[-1] == "RUN_FINISHED"
    plan = compat.plan_a2ui_injection(model=model, input=run_input(), existing_tool_names=[], config={})
    assert (plan, compat.is_auto_injected_a2ui_tool(a2ui_tool)) == (None, False)


def client_tool(name: str) -> ag.Tool:
    return ag.Tool(name=name, description=f"The {name}.", parameters={"type": "object", "properties": {}})


def test_proxy_tools_follow_the_clients_tools_and_leave_the_agents_alone() -> None:
    registry = ToolRegistry()
    registry.process_tools([get_weather])
    first = compat.sync_proxy_tools(registry, [client_tool("paint"), client_tool("get_weather")], set())
    assert (first, sorted(registry.registry)) == ({"paint"}, ["get_weather", "paint"])
    kept = compat.sync_proxy_tools(registry, [client_tool("draw")], first, exempt_names={"paint"})
    assert kept == {"draw", "paint"}
    assert compat.sync_proxy_tools(registry, [], kept) == set()
    assert list(registry.registry) == ["get_weather"]


@pytest.mark.parametrize("continues", [True, False])
async def test_a_proxy_tool_in_an_agent_of_your_own_is_the_clients(continues: bool) -> None:
    proxy = compat.create_proxy_tool(client_tool("paint"), continue_after_frontend_call=continues)
    model = ScriptedModel(calls(text("Well:"), call("f1", "paint", "{}")), says("done"))
    agent = agent_of(model, proxy)
    result = await agent.invoke_async("paint")
    assert result.stop_reason == ("end_turn" if continues else "interrupt")


def test_template_tools_are_removed_and_restored() -> None:
    registry = ToolRegistry()
    registry.process_tools([get_weather, who])
    tools = list(registry.registry.values())
    assert compat.sync_template_tools(registry, tools, ["who"]) == {"who"}
    assert compat.sync_template_tools(registry, tools, [], exempt_names={"who"}) == {"who"}
    everything = compat.EXEMPT_EVERY_TEMPLATE_TOOL
    assert compat.sync_template_tools(registry, tools, [], exempt_names=everything) == {"who", "get_weather"}
    assert compat.sync_template_tools(registry, tools, None) == {"who", "get_weather"}
    with pytest.raises(compat.TemplateToolsSelectionError):
        compat.sync_template_tools(registry, tools, "who")


def test_the_package_does_not_need_the_published_one() -> None:
    source = Path(inspect.getfile(compat)).parent
    assert [path.name for path in source.glob("*.py") if "import ag_ui_strands" in path.read_text()] == []
