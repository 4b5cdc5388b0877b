"""The ADK AGUI Middleware by its import line: names, signatures, its README and its examples with our package name."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import BaseEvent, RunAgentInput, RunErrorEvent, Tool, ToolMessage
from fastapi import APIRouter, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse
from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools import ToolContext
from google.genai import types

from ambient_runner.compat.adk_agui_middleware import (
    SSEService,
    register_agui_endpoint,
    register_agui_history_endpoint,
    register_state_endpoint,
)
from ambient_runner.compat.adk_agui_middleware.base_abc.handler import (
    BaseADKEventHandler,
    BaseADKEventTimeoutHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseInOutHandler,
    BaseTranslateHandler,
    SessionLockHandler,
)
from ambient_runner.compat.adk_agui_middleware.base_abc.sse_service import BaseSSEService
from ambient_runner.compat.adk_agui_middleware.data_model.common import InputInfo, SessionLockConfig
from ambient_runner.compat.adk_agui_middleware.data_model.config import (
    HistoryConfig,
    HistoryPathConfig,
    PathConfig,
    RunnerConfig,
    StateConfig,
    StatePathConfig,
)
from ambient_runner.compat.adk_agui_middleware.data_model.context import ConfigContext, HandlerContext
from ambient_runner.compat.adk_agui_middleware.data_model.event import TranslateEvent
from ambient_runner.compat.adk_agui_middleware.handler.session_lock_handler import DefaultSessionLockHandler
from ambient_runner.compat.adk_agui_middleware.service.history_service import HistoryService
from ambient_runner.compat.adk_agui_middleware.service.state_service import StateService
from ambient_runner.compat.adk_agui_middleware.tools.frontend_tool import FrontendTool, FrontendToolset
from ambient_runner.compat.adk_agui_middleware.tools.shutdown import ShutdownHandler
from ambient_runner.compat.adk_agui_middleware.utils.translate.common import (
    create_translate_replace_adk_event,
    create_translate_retune_event,
)
from ambient_runner.compat.adk_agui_middleware.utils.translate.thinking import (
    ThinkingEventUtil,
    ThinkingMessageEventUtil,
)
from tests.bridges.adk.scripted import HANG, Scripted, call, piece, text
from tests.bridges.adk.test_routes import held, words
from tests.bridges.adk.world import agent
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]")

PACKAGE = "ambient_runner.compat.adk_agui_middleware"
ME = {"X-User-Id": "ada"}

SIGNATURES = {
    "endpoint:register_agui_endpoint": ["app", "sse_service", "path_config"],
    "endpoint:register_agui_history_endpoint": ["app", "history_service", "path_config"],
    "endpoint:register_state_endpoint": ["app", "state_service", "path_config"],
    "service.sse_service:SSEService": ["agent", "config_context", "runner_config", "handler_context"],
    "service.sse_service:SSEService.get_runner": ["self", "agui_content", "request"],
    "service.sse_service:SSEService.event_generator": ["self", "runner", "input_info", "inout_handler"],
    "service.history_service:HistoryService": ["history_config"],
    "service.history_service:HistoryService.list_threads": ["self", "request"],
    "service.history_service:HistoryService.delete_thread": ["self", "request"],
    "service.history_service:HistoryService.get_message_snapshot": ["self", "request"],
    "service.state_service:StateService": ["state_config"],
    "service.state_service:StateService.get_state_snapshot": ["self", "request"],
    "service.state_service:StateService.patch_state": ["self", "request", "state_patch"],
    "base_abc.sse_service:BaseSSEService.get_runner": ["self", "agui_content", "request"],
    "base_abc.handler:SessionLockHandler": ["lock_config"],
    "base_abc.handler:BaseTranslateHandler": ["input_info"],
    "base_abc.handler:BaseTranslateHandler.translate": ["self", "adk_event"],
    "base_abc.handler:BaseADKEventHandler.process": ["self", "event"],
    "base_abc.handler:BaseADKEventTimeoutHandler.process_timeout_fallback": ["self"],
    "base_abc.handler:BaseAGUIEventHandler.process": ["self", "event"],
    "base_abc.handler:BaseAGUIStateSnapshotHandler.process": ["self", "state_snapshot"],
    "base_abc.handler:BaseInOutHandler.output_catch_and_change": ["self", "agui_event"],
    "handler.session_lock_handler:DefaultSessionLockHandler": ["lock_config"],
    "tools.frontend_tool:FrontendTool": ["agui_tool", "agui_queue"],
    "tools.frontend_tool:FrontendToolset": ["tool_filter", "tool_name_prefix"],
    "tools.shutdown:ShutdownHandler.register_shutdown_function": ["self", "shutdown_function"],
    "utils.translate.common:create_translate_replace_adk_event": ["event"],
    "utils.translate.common:create_translate_retune_event": [],
    "utils.translate.thinking:ThinkingMessageEventUtil.generate_thinking_message_event": [
        *("self", "message", "uid", "adk_event"),
    ],
    "event.error_event:AGUIErrorEvent.create_is_locked_error": ["thread_id"],
    "event.error_event:AGUIErrorEvent.create_agent_error_event": ["e"],
}
FIELDS: dict[str, dict[str, Any]] = {
    "data_model.config:PathConfig": {"agui_main_path": ""},
    "data_model.config:HistoryPathConfig": {
        "agui_message_snapshot_path": "/message_snapshot/{thread_id}",
        "agui_thread_list_path": "/thread/list",
        "agui_thread_delete_path": "/thread/{thread_id}",
    },
    "data_model.config:StatePathConfig": {
        "agui_patch_state_path": "/state/{thread_id}",
        "agui_state_snapshot_path": "/state_snapshot/{thread_id}",
    },
    "data_model.config:RunnerConfig": {"use_in_memory_services": True, "plugins": None, "artifact_service": None},
    "data_model.config:HistoryConfig": {
        "user_id": "u",
        "session_id": "s",
        "app_name": "default",
        "get_thread_list": None,
        "retune_on_stream_complete": False,
        "translate_handler": None,
    },
    "data_model.config:StateConfig": {"user_id": "u", "session_id": "s", "app_name": "default", "get_state": None},
    "data_model.context:ConfigContext": {
        "user_id": "u",
        "app_name": "default",
        "convert_run_agent_input": None,
        "event_source_response_mode": False,
        "retune_on_stream_complete": False,
        "is_add_adk_event_in_agui_event": False,
        "auto_remove_agui_raw_event": False,
        "session_lock_config": SessionLockConfig(),
    },
    "data_model.context:HandlerContext": {"translate_handler": None, "in_out_record_handler": None},
    "data_model.common:SessionLockConfig": {"lock_timeout": 300, "lock_retry_times": 3, "lock_retry_interval": 10.0},
    "data_model.event:TranslateEvent": {"agui_event": None, "adk_event": None, "is_retune": False, "is_replace": False},
    "data_model.session:SessionParameter": {"app_name": "a", "user_id": "u", "session_id": "s"},
    "data_model.error:ErrorModel": {"error": "e", "error_description": "d", "trace_id": ""},
    "event.agui_type:ThinkingMessage": {"id": "i", "role": "thinking", "content": "c"},
}
REQUIRED = {"user_id", "session_id", "error", "error_description", "id", "content"}


def resolve(path: str) -> Any:
    """Return the object at `module:name` below the package."""
    module, _, name = path.partition(":")
    return attrgetter(name)(importlib.import_module(f"{PACKAGE}.{module}"))


@pytest.mark.parametrize("path", SIGNATURES)
def test_the_names_are_at_their_paths_with_their_parameters(path: str) -> None:
    parameters = inspect.signature(resolve(path)).parameters.values()
    positional = [one.name for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == SIGNATURES[path]


@pytest.mark.parametrize("path", FIELDS)
def test_the_configurations_have_their_fields_and_defaults(path: str) -> None:
    fields = FIELDS[path]
    required = {"app_name"} if path.endswith(":SessionParameter") else set[str]()
    made = resolve(path)(**{name: value for name, value in fields.items() if name in REQUIRED | required})
    assert {name: getattr(made, name) for name in fields} == fields


async def extract_user_id(_: object, request: Request) -> str:
    return request.headers.get("X-User-Id", "default-user")


def user_of(request: Request) -> str:
    return request.headers.get("X-User-Id", "guest")


def thread_of(request: Request) -> str:
    return str(request.path_params["thread_id"])


def service_for(root: Any, *, config: dict[str, Any] | None = None, **more: Any) -> SSEService:
    context = ConfigContext(app_name="demo-app", user_id=extract_user_id, **(config or {}))
    return SSEService(root, context, **{"settings": SETTINGS, **more})


@asynccontextmanager
async def serving(service: SSEService, path: str = "/agui") -> AsyncGenerator[Any, None]:
    app = FastAPI()
    register_agui_endpoint(app, service, PathConfig(agui_main_path=path))
    async with client_of(app) as client:
        client.service = service  # type: ignore[attr-defined]
        yield client


async def post(client: httpx.AsyncClient, said: str = "hi", path: str = "/agui", **more: Any) -> httpx.Response:
    return await client.post(path, json=run_body(said, **more), headers=ME)


def spoken(answer: str) -> list[str]:
    return ["RS", "TS m1", f"TC {answer}", "TE", "RF"]


async def test_the_readmes_quick_start_runs() -> None:
    root, _ = agent(["Hello"])
    app = FastAPI(title="AI Agent Service", version="1.0.0")
    sse_service = SSEService(
        agent=root,
        config_context=ConfigContext(
            app_name="my-app",
            user_id=extract_user_id,
            session_id=lambda content, req: content.thread_id,
            event_source_response_mode=True,
        ),
        runner_config=RunnerConfig(),
        settings=SETTINGS,
    )
    register_agui_endpoint(app, sse_service, path_config=PathConfig(agui_main_path="/agui"))
    async with client_of(app) as client:
        response = await post(client)
    assert words(response) == spoken("Hello")
    assert "event: RUN_FINISHED" in response.text


async def test_an_app_with_its_own_cors_middleware_decides_which_pages_may_call() -> None:
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["https://page.example"], allow_credentials=True)
    root, _ = agent(["Hello"])
    register_agui_endpoint(app, service_for(root), PathConfig(agui_main_path="/agui"))
    headers = {**ME, "Origin": "https://page.example"}
    async with client_of(app) as client:
        response = await client.post("/agui", json=run_body("hi"), headers=headers)
    assert (response.status_code, response.headers["access-control-allow-credentials"]) == (200, "true")


async def test_the_documents_argument_order_works_too() -> None:
    root, _ = agent(["Hello"])
    context = ConfigContext(user_id=extract_user_id)
    async with serving(SSEService(root, RunnerConfig(), context, settings=SETTINGS)) as client:
        assert words(await post(client)) == spoken("Hello")


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_the_default_path_is_the_root_of_an_app_or_the_prefix_of_a_router(prefix: str) -> None:
    root, _ = agent(["Hello"])
    app = FastAPI()
    router = APIRouter(prefix=prefix) if prefix else app
    register_agui_endpoint(router, service_for(root))
    if isinstance(router, APIRouter):
        app.include_router(router)
    async with client_of(app) as client:
        assert words(await post(client, path=prefix or "/")) == spoken("Hello")


def note(tool_context: ToolContext) -> dict[str, Any]:
    """Note."""
    tool_context.state["threadTitle"] = "Notes"
    tool_context.state["user:secret"] = 1
    return {}


async def format_thread_list(session_list: list[Session]) -> list[dict[str, Any]]:
    """As in the package's example."""
    return [
        {"threadId": one.id, "title": one.state.get("threadTitle"), "at": int(one.last_update_time) > 0}
        for one in session_list
    ]


def with_history(app: FastAPI | APIRouter, **more: Any) -> None:
    identity: dict[str, Any] = {"app_name": "demo-app", "user_id": user_of, "session_id": thread_of}
    identity |= {name: more.pop(name) for name in ("session_service",) if name in more}
    register_agui_history_endpoint(app, HistoryService(HistoryConfig(**identity, **more)))
    register_state_endpoint(app, StateService(StateConfig(**identity)))


async def test_the_history_and_state_example_runs() -> None:
    root, _ = agent([call("note", "n1")], ["Done."], tools=[note])
    app = FastAPI(title="AGUI Context + History + State")
    with_history(app, get_thread_list=format_thread_list)
    register_agui_endpoint(app=app, sse_service=service_for(root), path_config=PathConfig(agui_main_path="/agui"))
    async with client_of(app) as client:
        assert words(await post(client))[-1] == "RF"
        listed = (await client.get("/thread/list", headers=ME)).json()
        nobody = (await client.get("/thread/list", headers={"X-User-Id": "bob"})).json()
        messages = (await client.get("/message_snapshot/t", headers=ME)).json()
        changes = [{"op": "replace", "path": "/threadTitle", "value": "More"}]
        patched = (await client.patch("/state/t", json=changes, headers=ME)).json()
        state = (await client.get("/state_snapshot/t", headers=ME)).json()
        missing = [
            (await client.request(method, path, headers=ME, json=[] if method == "PATCH" else None)).status_code
            for method, path in (
                ("GET", "/message_snapshot/none"),
                ("GET", "/state_snapshot/none"),
                ("PATCH", "/state/none"),
            )
        ]
        deleted = [(await client.delete(f"/thread/{one}", headers=ME)).json() for one in ("t", "none")]
        assert (await client.get("/thread/list", headers=ME)).json() == []
    assert listed == [{"threadId": "t", "title": "Notes", "at": True}]
    assert nobody == []
    assert [one["role"] for one in messages["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert (patched, state["snapshot"]) == ({"status": "updated"}, {"threadTitle": "More"})
    assert missing == [404, 404, 404]
    assert deleted == [{"status": "deleted"}] * 2


def identified_user(request: Request) -> str:
    return request.headers.get("X-User-Id", "")


def state_service() -> StateService:
    return StateService(StateConfig(app_name="demo-app", user_id=identified_user, session_id=thread_of))


@asynccontextmanager
async def with_state_routes(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client of an app with the state routes and one run on the thread t."""
    root, _ = agent([call("note", "n1")], ["Done."], tools=[note])
    register_state_endpoint(app, state_service())
    register_agui_endpoint(app=app, sse_service=service_for(root), path_config=PathConfig(agui_main_path="/agui"))
    async with client_of(app) as client:
        await post(client)
        yield client


JSON = {"Content-Type": "application/json"}
BAD_PATCHES = {
    b'[{"op":"add","path":"/k","value":"%b"}]' % (b"x" * 1_100_000): (413, "too_large"),
    b"{": (400, "invalid_patch"),
    b"{}": (400, "invalid_patch"),
    b"[1]": (400, "invalid_patch"),
    b"\xff\xfe": (400, "invalid_patch"),
    b'[{"op":"add","path":"/n","value":NaN}]': (400, "invalid_patch"),
    b'[{"op":"add","path":"/n","value":"\\ud800"}]': (400, "invalid_patch"),
    b'[{"op":"add","path":"/n","value":%b}]' % (b"9" * 5000): (400, "invalid_patch"),
    b"[" * 200_000 + b"]" * 200_000: (400, "invalid_patch"),
}


@pytest.mark.parametrize("body", BAD_PATCHES, ids=lambda body: repr(body[-30:]))
async def test_a_patch_is_refused_without_a_user_first_and_then_by_its_size_and_content(body: bytes) -> None:
    """The body was parsed before the user was known, whatever its size; NaN was accepted, and half a surrogate pair was 500."""
    async with with_state_routes(FastAPI()) as client:
        nobody = await client.patch("/state/t", content=body, headers=JSON)
        refused = await client.patch("/state/t", content=body, headers=JSON | ME)
        state = (await client.get("/state_snapshot/t", headers=ME)).json()
    assert (nobody.status_code, nobody.json()["detail"]["code"]) == (401, "unauthorized")
    assert (refused.status_code, refused.json()["detail"]["code"]) == BAD_PATCHES[body]
    assert state["snapshot"] == {"threadTitle": "Notes"}


async def test_the_body_of_a_patch_without_a_user_is_not_read() -> None:
    read: list[int] = []

    async def body() -> AsyncGenerator[bytes, None]:
        for number in range(3):
            read.append(number)
            yield b" " * 65536

    async with with_state_routes(FastAPI()) as client:
        nobody = await client.patch("/state/t", content=body(), headers=JSON)
    assert (nobody.status_code, read) == (401, [])


async def test_a_patch_passed_by_code_is_checked_like_one_of_a_request() -> None:
    patches: list[Any] = ["\ud800", float("nan"), object()]
    async with with_state_routes(app := FastAPI()) as client:

        @app.patch("/own/{thread_id}/{at}")
        async def own(request: Request, thread_id: str, at: int) -> dict[str, str]:
            service = state_service()
            service.threads.app = app
            return await service.patch_state(request, [{"op": "add", "path": "/n", "value": patches[at]}])

        codes = [(await client.patch(f"/own/t/{at}", headers=ME)).status_code for at in range(3)]
    assert codes == [400] * 3


async def test_custom_paths_and_functions_for_the_state_work() -> None:
    async def get_state(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "seen": True}

    root, _ = agent(["Hello"])
    app, router = FastAPI(), APIRouter(prefix="/api")
    identity: dict[str, Any] = {"app_name": "demo-app", "user_id": "ada", "session_id": thread_of}
    history, states = HistoryConfig(**identity), StateConfig(**identity, get_state=get_state)
    register_agui_endpoint(router, service_for(root), PathConfig(agui_main_path="/run"))
    paths = HistoryPathConfig(agui_thread_list_path="/threads", agui_message_snapshot_path="/threads/{thread_id}")
    register_agui_history_endpoint(router, HistoryService(history), paths)
    state_paths = StatePathConfig(agui_state_snapshot_path="/threads/{thread_id}/state")
    register_state_endpoint(router, StateService(states), state_paths)
    app.include_router(router)
    async with client_of(app) as client:
        await post(client, path="/api/run", state={"a": 1})
        assert (await client.get("/api/threads")).json() == [{"threadId": "t"}]
        assert len((await client.get("/api/threads/t")).json()["messages"]) == 2
        assert (await client.get("/api/threads/t/state")).json()["snapshot"] == {"a": 1, "seen": True}


async def test_a_history_with_a_fixed_user_is_for_this_machine_only() -> None:
    root, _ = agent()
    app = FastAPI()
    register_agui_endpoint(app, service_for(root))
    identity: dict[str, Any] = {"app_name": "demo-app", "user_id": "ada", "session_id": thread_of}
    register_agui_history_endpoint(app, HistoryService(HistoryConfig(**identity)))
    async with client_of(app, client=("192.0.2.1", 1234)) as client:
        assert (await client.get("/thread/list")).status_code == 403


async def test_sessions_from_before_the_move_are_listed_read_continued_and_deleted() -> None:
    sessions = InMemorySessionService()
    for name in ("old", "older"):
        session = await sessions.create_session(
            app_name="demo-app", user_id="ada", session_id=name, state={"a": 1, "user:b": 2}
        )
        for author, said in (("user", "one"), ("root", "two")):
            content = types.Content(role="user" if author == "user" else "model", parts=[text(said)])
            await sessions.append_event(session, Event(author=author, invocation_id="i1", content=content))
    root, model = agent(["three"])
    app = FastAPI()
    register_agui_endpoint(app, service_for(root, runner_config=RunnerConfig(session_service=sessions)))
    with_history(app, session_service=sessions)
    async with client_of(app) as client:
        assert {one["threadId"] for one in (await client.get("/thread/list", headers=ME)).json()} == {"old", "older"}
        before = (await client.get("/message_snapshot/old", headers=ME)).json()["messages"]
        assert (await client.get("/state_snapshot/old", headers=ME)).json()["snapshot"] == {"a": 1}
        assert words(await post(client, path="/", thread="old"))[-1] == "RF"
        after = (await client.get("/message_snapshot/old", headers=ME)).json()["messages"]
        await client.delete("/thread/older", headers=ME)
        assert [one["threadId"] for one in (await client.get("/thread/list", headers=ME)).json()] == ["old"]
    assert [(one["role"], one["content"]) for one in before] == [("user", "one"), ("assistant", "two")]
    assert after[:2] == before
    assert [one["content"] for one in after] == ["one", "two", "hi", "three"]
    assert model.saw == [[("user", "one"), ("model", "two"), ("user", "hi")]]
    left = await sessions.list_sessions(app_name="demo-app", user_id="ada")
    assert [one.id for one in left.sessions] == ["old"]


class Lifecycle:
    """The handlers of the package's fourth example, which write down that they were called."""

    trace: list[str] = []

    class Lock(SessionLockHandler):
        def __init__(self, lock_config: SessionLockConfig) -> None:
            self.lock_timeout = lock_config.lock_timeout

        async def lock(self, input_info: InputInfo) -> bool:
            Lifecycle.trace.append(f"lock {input_info.app_name}:{input_info.user_id}:{input_info.session_id}")
            return True

        async def unlock(self, input_info: InputInfo) -> None:
            Lifecycle.trace.append("unlock")

        async def get_locked_message(self, input_info: InputInfo) -> RunErrorEvent:
            raise NotImplementedError

    class ADKEvents(BaseADKEventHandler):
        def __init__(self, input_info: InputInfo | None) -> None:
            self.info = input_info

        async def process(self, event: Event) -> AsyncGenerator[Event | None, None]:
            Lifecycle.trace.append(f"adk {event.author} {self.info.user_id if self.info else ''}")
            yield event

    class Timeout(BaseADKEventTimeoutHandler):
        def __init__(self, input_info: InputInfo | None) -> None:
            self.info = input_info

        async def get_timeout(self) -> int:
            return 30

        async def process_timeout_fallback(self) -> AsyncGenerator[Event | None, None]:
            raise NotImplementedError
            yield

    class Translate(BaseTranslateHandler):
        def __init__(self, input_info: InputInfo | None) -> None:
            self.info = input_info

        async def translate(self, adk_event: Event) -> AsyncGenerator[TranslateEvent, None]:
            Lifecycle.trace.append("translate")
            if False:
                yield TranslateEvent()

    class AGUIEvents(BaseAGUIEventHandler):
        def __init__(self, input_info: InputInfo | None) -> None:
            self.info = input_info

        async def process(self, event: BaseEvent) -> AsyncGenerator[BaseEvent | None, None]:
            yield event

    class State(BaseAGUIStateSnapshotHandler):
        def __init__(self, input_info: InputInfo | None) -> None:
            self.info = input_info

        async def process(self, state_snapshot: dict[str, Any]) -> dict[str, Any] | None:
            return {**state_snapshot, "filtered": True}

    class Recorder(BaseInOutHandler):
        async def input_record(self, input_info: InputInfo) -> None:
            Lifecycle.trace.append("input")

        async def output_record(self, agui_event: BaseEvent) -> None:
            Lifecycle.trace.append(f"output {agui_event.type.value}")

        async def output_catch_and_change(self, agui_event: BaseEvent) -> BaseEvent:
            return agui_event


async def test_the_lifecycle_example_runs() -> None:
    Lifecycle.trace.clear()
    handlers = HandlerContext(
        session_lock_handler=Lifecycle.Lock,
        adk_event_handler=Lifecycle.ADKEvents,
        adk_event_timeout_handler=Lifecycle.Timeout,
        translate_handler=Lifecycle.Translate,
        agui_event_handler=Lifecycle.AGUIEvents,
        agui_state_snapshot_handler=Lifecycle.State,
        in_out_record_handler=Lifecycle.Recorder,
    )
    root, _ = agent(["Hello"])
    async with serving(service_for(root, handler_context=handlers), "/lifecycle/agui") as client:
        response = await post(client, path="/lifecycle/agui")
    assert words(response) == ["RS", "TS m1", "TC Hello", "TE", "SS {'filtered': True}", "RF"]
    assert Lifecycle.trace[:3] == ["input", "lock demo-app:ada:t", "output RUN_STARTED"]
    assert Lifecycle.trace[-1] == "unlock"
    assert {"adk root ada", "translate", "output RUN_FINISHED"} < {*Lifecycle.trace}


async def test_the_input_example_answers_a_pending_call() -> None:
    from tests.bridges.adk.test_waiting import ASK

    async def preprocess(run_agent_input: RunAgentInput, function_call_info: dict[str, str]) -> RunAgentInput:
        if function_call_info:
            call_id, name = next(iter(function_call_info.items()))
            last = run_agent_input.messages[-1].id
            note = ToolMessage(role="tool", id=last, tool_call_id=call_id, content=str({"tool": name}))
            run_agent_input.messages.append(note)
        return run_agent_input

    root, model = agent([call("ask", "l1", question="?")], ["Done."], tools=[ASK])
    async with serving(service_for(root, config={"convert_run_agent_input": preprocess})) as client:
        assert words(await post(client))[-1] == "RF waits for l1"
        assert words(await post(client, "go on", message="u2")) == ["RS", "CR l1 {'tool': 'ask'}", *spoken("Done.")[1:]]
    assert model.calls == 2


async def test_a_subclass_of_the_default_lock_says_its_own_words() -> None:
    class Polite(DefaultSessionLockHandler):
        async def get_locked_message(self, input_info: InputInfo) -> RunErrorEvent:
            return RunErrorEvent(message="Please wait.", code=str(self.lock_config.lock_retry_times))

    root, model = agent([piece(text("One")), HANG])
    config = {"session_lock_config": SessionLockConfig(lock_retry_times=0)}
    service = service_for(root, config=config, handler_context=HandlerContext(session_lock_handler=Polite))
    app = FastAPI()
    register_agui_endpoint(app, service)
    async with client_of(app) as client:
        client.service = service  # type: ignore[attr-defined]
        async with held(client, model):
            locked = frames(await client.post("/", json=run_body("hi", message="u2"), headers={"X-User-ID": "ada"}))
    assert locked[-1][1] == {"type": "RUN_ERROR", "message": "Please wait.", "code": "0"}


async def test_the_extractors_of_a_subclass_identify_the_request() -> None:
    class Tenant(SSEService):
        async def extract_user_id(self, agui_content: RunAgentInput, request: Request) -> str:
            return f"{request.headers['x-tenant']}-{await super().extract_user_id(agui_content, request)}"

    def who(tool_context: ToolContext) -> dict[str, Any]:
        """Return the user."""
        return {"user": tool_context.session.user_id}

    root, model = agent([call("who", "w1")], ["Done."], tools=[who])
    service = Tenant(root, ConfigContext(user_id="ada"), settings=SETTINGS)
    async with serving(service) as client:
        await client.post("/agui", json=run_body("hi"), headers={"x-tenant": "red"})
    assert model.saw[1][-1][1][2] == {"user": "red-ada"}


async def test_a_route_of_your_own_starts_a_run_with_the_input_it_passes() -> None:
    root, model = agent(["Hello"])
    service = service_for(root)
    app = FastAPI()

    @app.post("/mine")
    async def mine(agui_content: RunAgentInput, request: Request) -> Any:
        for message in agui_content.messages:
            message.content = "changed"
        return await service.event_generator(*await service.get_runner(agui_content, request))

    async with client_of(app) as client:
        assert words(await post(client, path="/mine")) == spoken("Hello")
        refused = await client.post("/mine", json={**run_body("x"), "messages": []}, headers=ME)
    assert model.saw == [[("user", "changed")]]
    assert refused.status_code == 422


async def test_a_service_of_your_own_is_served() -> None:
    class Echo(BaseSSEService):
        async def get_runner(self, agui_content: RunAgentInput, request: Request) -> Any:
            return None, agui_content, None

        async def event_generator(self, runner: Any, input_info: Any, inout_handler: Any = None) -> Any:
            return PlainTextResponse(input_info.thread_id)

    app = FastAPI()
    register_agui_endpoint(app, Echo())
    async with client_of(app) as client:
        assert (await post(client, path="/")).text == "t"


async def test_thoughts_of_a_translate_handler_are_reasoning() -> None:
    class Thinking(BaseTranslateHandler):
        def __init__(self, input_info: InputInfo | None) -> None: ...

        async def translate(self, adk_event: Event) -> AsyncGenerator[TranslateEvent, None]:
            if adk_event.partial:
                yield ThinkingEventUtil.create_thinking_event_start()
                async for each in ThinkingMessageEventUtil().generate_thinking_message_event("Hm.", uid="x"):
                    yield each
                yield ThinkingEventUtil.create_thinking_event_end()
                yield create_translate_retune_event()
            else:
                changed = adk_event.model_copy(update={"content": types.Content(role="model", parts=[text("Hey")])})
                yield create_translate_replace_adk_event(changed)

    root, _ = agent(["Hello"], ["Hello"])
    handlers = HandlerContext(translate_handler=Thinking)
    # A `user_id` function serves other machines, whose clients see no reasoning by default.
    service = service_for(root, handler_context=handlers, settings=dataclasses.replace(SETTINGS, audience="open"))
    async with serving(service) as client:
        for message in ("u1", "u2"):
            assert words(await post(client, message=message)) == [
                *("RS", "ZS", "ZMS", "ZMC Hm.", "ZME", "ZE", "TS m1", "TC Hey", "TE", "RF"),
            ]


async def test_shutdown_functions_are_called_once_when_the_app_ends() -> None:
    called: list[str] = []

    async def failing() -> None:
        raise RuntimeError("first")

    async def close() -> None:
        called.append("closed")

    root, _ = agent()
    ShutdownHandler().register_shutdown_function(failing)
    ShutdownHandler().register_shutdown_function(close)
    async with serving(service_for(root)):
        assert called == []
    await ShutdownHandler().close()
    assert called == ["closed"]


def client_tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "description": name, "parameters": {"type": "object"}} for name in names]


async def test_only_agents_with_a_frontend_toolset_get_the_tools_it_offers() -> None:
    greeter_model = Scripted.of([call("hello_sayHello", "h1")])
    greeter = LlmAgent(
        name="greeter",
        description="greets",
        model=greeter_model,
        tools=[FrontendToolset(tool_filter=["sayHello"], tool_name_prefix="hello_")],
    )
    root, model = agent([call("transfer_to_agent", "t1", agent_name="greeter")], sub_agents=[greeter])
    async with serving(service_for(root)) as client:
        said = await post(client, tools=client_tools("sayHello", "sayGoodbye"))
    assert words(said)[-4:] == ["CS h1 hello_sayHello", "CA h1 {}", "CE h1", "RF waits for h1"]
    assert [name for name in model.requests[0].tools_dict if name != "transfer_to_agent"] == []
    assert [name for name in greeter_model.requests[0].tools_dict if "say" in name] == ["hello_sayHello"]


@pytest.mark.parametrize(
    ("toolset", "offered"),
    [
        (FrontendToolset(), {"paint", "erase"}),
        (FrontendToolset(tool_filter=lambda tool: tool.name == "paint"), {"paint"}),
        (FrontendToolset(lambda tool, context: tool.name.startswith(context.agent_name[:1])), set()),
        (FrontendToolset(["x_paint"], "x_"), {"x_paint"}),
    ],
    ids=["all", "function", "function-of-context", "prefixed-name"],
)
async def test_a_frontend_toolset_chooses_tools(toolset: FrontendToolset, offered: set[str]) -> None:
    root, model = agent(["A"], ["B"], tools=[toolset])
    async with serving(service_for(root)) as client:
        await post(client, tools=client_tools("paint", "erase"))
        await post(client, message="u2")
    assert [{*request.tools_dict} for request in model.requests] == [offered, set()]


def test_a_frontend_tool_declares_the_schema_of_the_client() -> None:
    tool = FrontendTool(Tool(name="paint", description="Paint.", parameters=None), agui_queue=None)
    assert (tool.name, tool.description, tool.is_long_running) == ("paint", "Paint.", True)


def test_a_thought_keeps_its_id() -> None:
    made = ThinkingMessageEventUtil.create_thinking_message_content_event("Hm.", "x").agui_event
    assert (made.thinking_id, made.message_id, made.delta, made.type.value) == (
        *("x", "x", "Hm.", "REASONING_MESSAGE_CONTENT"),
    )


def test_errors_name_no_cause() -> None:
    from ambient_runner.compat.adk_agui_middleware.event.error_event import AGUIErrorEvent

    made = AGUIErrorEvent.create_agent_error_event(ValueError("secret"))
    assert (made.code, "secret" in made.message) == ("AGENT_ERROR", False)


def test_no_module_of_ours_needs_the_published_package() -> None:
    package = Path(importlib.import_module(PACKAGE).__file__ or "").parent
    for path in package.rglob("*.py"):
        name = ".".join(path.relative_to(package).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        importlib.import_module(f"{PACKAGE}.{name}" if name else PACKAGE)
