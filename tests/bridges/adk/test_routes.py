"""The façade: the document's quick start, extractors, lock, history and state routes, over HTTP (D19, D20, D21)."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from ag_ui.core import MessagesSnapshotEvent, RunErrorEvent, StateSnapshotEvent, TextMessageContentEvent
from fastapi import APIRouter, FastAPI, Request
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events import Event
from google.adk.tools import LongRunningFunctionTool, ToolContext
from google.genai import types

from ambient_runner.adk import (
    ConfigContext,
    HandlerContext,
    RunnerConfig,
    SessionLockConfig,
    SSEService,
    delete_agui_thread,
    get_agui_message_snapshot,
    get_agui_state_snapshot,
    get_agui_thread_list,
    patch_agui_state,
    register_agui_endpoint,
)
from ambient_runner.config import OtlpSettings, TracingSettings
from ambient_runner.errors import ConfigError
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.protocol.events import Custom, decode_event
from ambient_runner.runs.run import Actor
from tests.bridges.adk.scripted import HANG, Scripted, call, piece, text
from tests.bridges.adk.world import agent, short
from tests.machine_speed import unless_hung
from tests.receiver import TRACES, receiving
from tests.server.demo_server import SETTINGS, client_of, error_of, frames, run_body

NO_PATIENCE = SessionLockConfig(lock_retry_times=0)


def by_header(**more: Any) -> ConfigContext:
    """The header names the user; extractors of both kinds, as in the document."""

    async def user_id(content: Any, request: Request) -> str:
        return request.headers.get("X-User-ID", "anonymous")

    return ConfigContext(
        app_name="shop", user_id=user_id, session_id=lambda content, request: content.thread_id, **more
    )


@asynccontextmanager
async def serving(root: Any, config: ConfigContext | None = None, **more: Any) -> AsyncGenerator[Any, None]:
    app = FastAPI()
    service = SSEService(root, RunnerConfig(), config or by_header(), **{"settings": SETTINGS, **more})
    register_agui_endpoint(app, service)
    async with client_of(app) as client:
        client.service = service  # type: ignore[attr-defined]
        yield client


def types_of(response: httpx.Response) -> list[str]:
    return [event["type"] for _, event in frames(response)]


async def post(client: httpx.AsyncClient, words: str = "hi", *, as_user: str = "ada", **more: Any) -> httpx.Response:
    return await client.post("/", json=run_body(words, **more), headers={"X-User-ID": as_user})


async def test_the_quick_start_runs() -> None:
    root, model = agent(["Hel", "lo"])
    async with serving(root) as client:
        response = await post(client)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert types_of(response) == [
        "RUN_STARTED",
        "CUSTOM",  # ambient:capabilities
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert model.saw == [[("user", "hi")]]


async def test_the_settings_for_traces_count_here_too() -> None:
    root, model = agent(["Hello"])
    with receiving() as receiver:
        traced = dataclasses.replace(
            SETTINGS, tracing=TracingSettings(otlp=OtlpSettings(endpoint=receiver.url + TRACES))
        )
        async with serving(root, settings=traced) as client:
            response = await post(client)
        [_, (_, expected), *_] = frames(response)
        roots = {span.trace for span in receiver.spans() if span.name == "invoke_agent default"}
    assert (expected["name"], roots) == ("ambient:trace_id", {expected["value"]["traceId"]})
    assert model.calls == 1


async def test_the_quick_start_runs_as_printed_but_for_its_agent() -> None:
    """ADK asks for a name and for an agent that does something; all else is the document's."""

    class EnterpriseAgent(BaseAgent):
        async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event, None]:
            content = types.Content(role="model", parts=[text(f"For {ctx.session.user_id} of {ctx.session.app_name}")])
            yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)

    async def extract_user_id(content: Any, request: Request) -> str:
        return request.headers.get("X-User-ID", "anonymous")

    async def extract_app_name(content: Any, request: Request) -> str:
        host = request.headers.get("Host", "localhost")
        if "." in host:
            return f"enterprise-{host.split('.')[0]}"
        return "enterprise-default"

    app = FastAPI(title="AI Agent Service")
    config_context = ConfigContext(
        app_name=extract_app_name,
        user_id=extract_user_id,
        session_id=lambda content, req: content.thread_id,
    )
    runner_config = RunnerConfig(use_in_memory_services=True)
    sse_service = SSEService(EnterpriseAgent(name="enterprise"), runner_config, config_context, settings=SETTINGS)
    register_agui_endpoint(app, sse_service)
    async with client_of(app) as client:
        response = await post(client)
    spoken = [event["delta"] for _, event in frames(response) if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert spoken == ["For ada of ", "enterprise-127"]


def test_a_service_needs_to_know_whose_requests_it_gets() -> None:
    root, _ = agent()
    with pytest.raises(ConfigError):
        SSEService(root, RunnerConfig(), settings=SETTINGS)


async def test_the_configurations_may_come_in_either_order_and_plugins_may_be_none() -> None:
    """The ADK AGUI Middleware has `(agent, config_context, runner_config)`; its documentation has the other order."""
    for arguments in (
        (by_header(), RunnerConfig(plugins=None)),
        (by_header(),),
        (RunnerConfig(plugins=None), by_header()),
    ):
        root, _ = agent(["A"])
        app = FastAPI()
        service = SSEService(root, *arguments, settings=SETTINGS)
        register_agui_endpoint(app, service)
        async with client_of(app) as client:
            assert words(await post(client)) == ["RS", "TS m1", "TC A", "TE", "RF"]


async def test_extractors_decide_where_a_firstbelongs() -> None:
    def who(tool_context: ToolContext) -> dict[str, Any]:
        """Say who asks."""
        session = tool_context.session
        return {"app": session.app_name, "user": session.user_id, "session": session.id, **session.state}

    async def session_id(content: Any, request: Request) -> str:
        return f"{request.headers['x-team']}-{content.thread_id}"

    config = ConfigContext(
        app_name=lambda content, request: request.headers["x-team"],
        user_id="ada",
        session_id=session_id,
        extract_initial_state=lambda content, request: {"team": request.headers["x-team"]},
    )
    root, model = agent([call("who", "w1")], ["Done."], tools=[who])
    async with serving(root, config) as client:
        await client.post("/", json=run_body("hi"), headers={"x-team": "red"})
    seen = model.saw[1][-1][1][2]
    assert seen == {"app": "red", "user": "ada", "session": "red-t", "team": "red"}


async def test_a_firstwithout_an_identity_is_refused() -> None:
    root, model = agent(["A"])
    config = ConfigContext(user_id=lambda content, request: request.headers.get("x-user-id", ""))
    async with serving(root, config) as client:
        assert error_of(await client.post("/", json=run_body("hi"))) == (401, "unauthorized")
        assert error_of(await client.get("/thread/list")) == (401, "unauthorized")
    assert model.calls == 0


async def asked_from(service: SSEService, peer: str, **headers: str) -> httpx.Response:
    app = FastAPI()
    register_agui_endpoint(app, service)
    async with client_of(app, client=(peer, 1234)) as client:
        return await client.post("/", json=run_body("hi"), headers=headers)


async def test_a_fixed_user_identifies_no_client_so_only_this_machine_is_served() -> None:
    root, model = agent(["A"], ["B"])
    fixed = ConfigContext(user_id="ada")
    away = await asked_from(SSEService(root, RunnerConfig(), fixed, settings=SETTINGS), "192.0.2.1")
    assert error_of(away) == (403, "forbidden")
    assert "authorize=" in away.json()["error"]["message"]
    assert model.calls == 0
    here = await asked_from(SSEService(root, RunnerConfig(), fixed, settings=SETTINGS), "127.0.0.1")
    assert words(here) == ["RS", "TS m1", "TC A", "TE", "RF"]
    known = SSEService(root, RunnerConfig(), fixed, settings=SETTINGS, authorize=by_token)
    assert words(await asked_from(known, "192.0.2.1", authorization="sesame")) == ["RS", "TS m1", "TC B", "TE", "RF"]
    denied = await asked_from(
        SSEService(root, settings=SETTINGS, config_context=fixed, authorize=by_token), "192.0.2.1"
    )
    assert error_of(denied) == (401, "unauthorized")


def by_token(request: Request) -> Actor | None:
    return Actor() if request.headers.get("authorization") == "sesame" else None


async def test_with_an_authorize_function_other_machines_are_served_too() -> None:
    root, _ = agent(["A"])
    service = SSEService(root, RunnerConfig(), by_header(), settings=SETTINGS)
    response = await asked_from(service, "192.0.2.1", **{"X-User-ID": "ada"})
    assert words(response) == ["RS", "TS m1", "TC A", "TE", "RF"]


async def test_no_user_can_access_the_thread_of_another() -> None:
    root, model = agent(["For ada."], ["For bob."])
    async with serving(root) as client:
        await post(client, "I am ada")
        assert error_of(await client.get("/message_snapshot/t", headers={"X-User-ID": "bob"})) == (
            404,
            "unknown_thread",
        )
        assert error_of(await client.delete("/thread/t", headers={"X-User-ID": "bob"})) == (404, "unknown_thread")
        await post(client, "I am bob", as_user="bob")
    assert model.saw[1] == [("user", "I am bob")]


@asynccontextmanager
async def held(client: httpx.AsyncClient, model: Scripted) -> AsyncGenerator[Any, None]:
    """A run that goes on while the body runs."""
    responses: list[httpx.Response] = []

    async def hold() -> None:
        responses.append(await post(client, "hold"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await model.wait_for_calls()
        yield responses
        runner = await client.service.runtime.ensure_runner()  # type: ignore[attr-defined]
        for key in [active.run.thread for active in runner._active.values()]:
            await runner.stop(key)


def words(response: httpx.Response) -> list[str]:
    """A whole stream in short words, without the introduction that every new thread begins with."""
    spoken = [decode_event(json.dumps(event).encode()) for _, event in frames(response)]
    return short(
        [event for event in spoken if not (isinstance(event, Custom) and event.name == "ambient:capabilities")]
    )


HELD = [("user", "hold")]
STOPPED = ["RS", "TS m1", "TC One", "TE", "RF cancelled"]
LOCKED = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "RUN_ERROR", "message": "Thread is currently locked", "code": "THREAD_IS_LOCKED"},
]


async def test_a_locked_thread_is_reported_in_the_stream() -> None:
    root, model = agent([piece(text("One")), HANG], ["Two"])
    async with serving(root, by_header(session_lock_config=NO_PATIENCE)) as client:
        async with held(client, model) as first:
            for message in ("u2", "u3"):  # a refused request that freed the lock would let the next one in
                locked = await post(client, message=message)
                assert (locked.status_code, [event for _, event in frames(locked)]) == (200, LOCKED)
            other = await post(client, as_user="bob", thread="t")
    assert words(first[0]) == STOPPED
    assert words(other) == ["RS", "TS m1", "TC Two", "TE", "RF"]
    assert model.saw == [HELD, [("user", "hi")]]


async def test_a_lock_belongs_to_one_app_one_user_and_one_thread() -> None:
    root, model = agent([piece(text("One")), HANG], ["Two"], ["Three"], ["Four"])

    def app_name(content: Any, request: Request) -> str:
        return request.headers.get("x-app", "shop")

    config = dataclasses.replace(by_header(session_lock_config=NO_PATIENCE), app_name=app_name)
    async with serving(root, config) as client:
        async with held(client, model) as first:
            others = [
                await post(client, as_user="bob"),
                await post(client, thread="other"),
                await client.post("/", json=run_body("hi"), headers={"X-User-ID": "ada", "X-App": "office"}),
            ]
            assert [event for _, event in frames(await post(client, message="u2"))] == LOCKED
    assert [words(one) for one in others] == [["RS", "TS m1", f"TC {n}", "TE", "RF"] for n in ("Two", "Three", "Four")]
    assert words(first[0]) == STOPPED
    assert model.saw == [HELD, *[[("user", "hi")]] * 3]


async def test_a_lock_is_renewed_while_its_run_is_active() -> None:
    """Longer than the lease of the thread: later requests are refused as well."""
    root, model = agent([piece(text("One")), HANG], ["Two"])
    brief = dataclasses.replace(SETTINGS, lease=0.3)
    async with serving(root, by_header(session_lock_config=NO_PATIENCE), settings=brief) as client:
        async with held(client, model) as first:
            runner = await client.service.runtime.ensure_runner()
            with unless_hung():
                assert not await runner.ledger.wait_released(ThreadKey("shop", "ada", "t"), 1.0)
            assert [event for _, event in frames(await post(client, message="u2"))] == LOCKED
        assert words(await post(client, message="u3")) == ["RS", "TS m1", "TC Two", "TE", "RF"]
    assert words(first[0]) == STOPPED
    assert model.saw == [HELD, [*HELD, ("model", "One"), ("user", "hi")]]


async def test_a_request_waits_for_the_lock_and_continues_as_soon_as_it_is_free() -> None:
    root, model = agent([piece(text("One")), HANG], ["Two"])
    patient = SessionLockConfig(lock_retry_times=3, lock_retry_interval=30.0)
    async with serving(root, by_header(session_lock_config=patient)) as client:
        responses: list[httpx.Response] = []

        async def second() -> None:
            responses.append(await post(client, message="u2"))

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                async with held(client, model) as first:
                    tasks.start_soon(second)
                    await queued(client, 1)
                    assert responses == []
    assert words(first[0]) == STOPPED
    assert words(responses[0]) == ["RS", "TS m1", "TC Two", "TE", "RF"]
    assert model.saw == [HELD, [*HELD, ("model", "One"), ("user", "hi")]]


async def queued(client: Any, count: int) -> None:
    """Wait until so many requests wait for the thread."""
    runner = await client.service.runtime.ensure_runner()
    with unless_hung():
        while (await runner.ledger.get_thread(ThreadKey("shop", "ada", "t"))).queued < count:
            await anyio.lowlevel.checkpoint()


def waiting_agent(done: anyio.Event) -> tuple[LlmAgent, Scripted]:
    """An agent whose answer to `hold` comes after `done`."""

    async def wait() -> dict[str, Any]:
        """Wait."""
        await done.wait()
        return {}

    def answer(llm_request: Any) -> list[Any]:
        last = llm_request.contents[-1].parts[-1]
        return [call("wait", "w1")] if last.text == "hold" else [f"Heard {last.text}"]

    model = Scripted.of(answer, loop=True)
    return LlmAgent(name="root", model=model, tools=[wait]), model


async def test_fifty_requests_on_one_session_are_all_served_in_their_order() -> None:
    """The configured waiting time is a deadline, not a number of wake-ups."""
    done = anyio.Event()
    root, model = waiting_agent(done)
    responses: dict[str, httpx.Response] = {}
    patient = SessionLockConfig(lock_retry_times=3, lock_retry_interval=60.0)
    names = [f"u{number}" for number in range(2, 51)]
    async with serving(root, by_header(session_lock_config=patient)) as client:

        async def ask(name: str, words: str) -> None:
            responses[name] = await post(client, words, message=name)

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, "u1", "hold")
                await model.wait_for_calls()
                for count, name in enumerate(names, start=1):
                    tasks.start_soon(ask, name, name)
                    await queued(client, count)
                done.set()
    assert {name: words(response)[-1] for name, response in responses.items()} == dict.fromkeys(["u1", *names], "RF")
    assert [seen[-1][1] for seen in model.saw[2:]] == names


async def test_a_request_is_refused_only_after_the_whole_time_it_may_wait() -> None:
    """Runs that start and end while a request waits do not use up its retries."""
    root, model = agent([piece(text("One")), HANG])
    impatient = SessionLockConfig(lock_retry_times=3, lock_retry_interval=0.1)
    async with serving(root, by_header(session_lock_config=impatient)) as client:
        async with held(client, model):
            began = anyio.current_time()
            assert [event for _, event in frames(await post(client, message="u2"))] == LOCKED
            assert anyio.current_time() - began >= 0.3


async def test_a_run_that_exceeds_the_lock_timeout_while_others_wait_is_stopped_for_the_first_of_them() -> None:
    root, model = agent([piece(text("One")), HANG], ["Two"], ["Three"])
    brief = SessionLockConfig(lock_timeout=1, lock_retry_times=3, lock_retry_interval=60.0)
    responses: list[httpx.Response] = []
    async with serving(root, by_header(session_lock_config=brief)) as client:

        async def ask(message: str) -> None:
            responses.append(await post(client, message, message=message))

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, "u1")
                await model.wait_for_calls()
                tasks.start_soon(ask, "u2")
                await queued(client, 1)
                tasks.start_soon(ask, "u3")
    assert [words(one)[-3:] for one in responses] == [STOPPED[-3:], ["TC Two", "TE", "RF"], ["TC Three", "TE", "RF"]]


async def test_a_run_that_holds_the_lock_for_too_long_is_stopped() -> None:
    root, model = agent([piece(text("One")), HANG], ["Two"])
    brief = SessionLockConfig(lock_timeout=0.0, lock_retry_times=0)
    async with serving(root, by_header(session_lock_config=brief)) as client:
        async with held(client, model) as first:
            with unless_hung():
                second = await post(client, message="u2")
    assert words(first[0]) == STOPPED
    assert words(second) == ["RS", "TS m1", "TC Two", "TE", "RF"]
    assert model.saw == [HELD, [*HELD, ("model", "One"), ("user", "hi")]]


class Turnstile:
    """A user's lock: it admits one request at a time for each thread and records its calls."""

    def __init__(self, *, opens: bool = True) -> None:
        self.log: list[str] = []
        self.inside: set[str] = set()
        self._opens = opens

    async def lock(self, info: Any) -> bool:
        let_in = self._opens and info.session_id not in self.inside
        self.log.append(f"lock {info.session_id} {let_in}")
        if let_in:
            self.inside.add(info.session_id)
        return let_in

    def unlock(self, info: Any) -> None:
        self.log.append(f"unlock {info.session_id}")
        self.inside.discard(info.session_id)

    async def get_locked_message(self, info: Any) -> RunErrorEvent:
        return RunErrorEvent(message=f"{info.session_id} is taken", code="MINE")


async def test_a_lock_handler_is_called_first_and_released_at_the_end() -> None:
    lock = Turnstile()
    root, model = agent(["One"], ["Two"])
    async with serving(root, handler_context=HandlerContext(session_lock_handler=lock)) as client:
        spoken = [words(await post(client)), words(await post(client, message="u2"))]
    assert spoken == [["RS", "TS m1", f"TC {word}", "TE", "RF"] for word in ("One", "Two")]
    assert model.saw == [[("user", "hi")], [("user", "hi"), ("model", "One"), ("user", "hi")]]
    assert lock.log == ["lock t True", "unlock t", "lock t True", "unlock t"]


async def test_handlers_of_the_published_shape_get_the_request_and_the_lock_configuration() -> None:
    made: dict[str, Any] = {}

    class Lock(Turnstile):
        def __init__(self, lock_config: SessionLockConfig) -> None:
            super().__init__()
            made["lock"] = lock_config

    class Translate:
        def __init__(self, input_info: Any) -> None:
            made["user"], made["header"] = input_info.user_id, input_info.request.headers["x-user-id"]

        async def translate(self, adk_event: Event) -> Any:
            if False:
                yield

    root, _ = agent(["One"])
    handlers = HandlerContext(session_lock_handler=Lock, translate_handler=Translate)
    async with serving(root, by_header(session_lock_config=NO_PATIENCE), handler_context=handlers) as client:
        assert words(await post(client)) == ["RS", "TS m1", "TC One", "TE", "RF"]
    assert made == {"lock": NO_PATIENCE, "user": "ada", "header": "ada"}


async def test_a_refused_request_never_releases_the_lock_of_another() -> None:
    lock = Turnstile()
    root, model = agent([piece(text("One")), HANG], ["Two"])
    handlers = HandlerContext(session_lock_handler=lock)
    async with serving(root, by_header(session_lock_config=NO_PATIENCE), handler_context=handlers) as client:
        async with held(client, model) as first:
            for number in (2, 3):
                refusal = await post(client, message=f"u{number}")
                mine = {"type": "RUN_ERROR", "message": "t is taken", "code": "MINE"}
                assert [event for _, event in frames(refusal)] == [LOCKED[0], mine]
            assert lock.log == ["lock t True", "lock t False", "lock t False"]
        assert words(await post(client, message="u4")) == ["RS", "TS m1", "TC Two", "TE", "RF"]
    assert words(first[0]) == STOPPED
    assert lock.log == ["lock t True", "lock t False", "lock t False", "unlock t", "lock t True", "unlock t"]
    assert model.saw == [HELD, [*HELD, ("model", "One"), ("user", "hi")]]


async def test_a_refusal_is_a_run_error_whatever_the_handler_says() -> None:
    class Odd(Turnstile):
        async def get_locked_message(self, info: Any) -> Any:
            return TextMessageContentEvent(message_id="m", delta="Go away.")

    root, model = agent(["One"])
    async with serving(root, handler_context=HandlerContext(session_lock_handler=Odd(opens=False))) as client:
        assert [event for _, event in frames(await post(client))] == LOCKED
    assert model.calls == 0


async def test_a_run_that_never_started_releases_its_lock() -> None:
    lock = Turnstile()
    root, model = agent(["One"])

    def refusing(handler: Any) -> Any:
        """Middleware that never asks the agent."""

        async def handle(run: Any) -> AsyncGenerator[Any, None]:
            raise RuntimeError("not today")
            yield

        return handle

    handlers = HandlerContext(session_lock_handler=lock)
    async with serving(root, handler_context=handlers, middleware=[refusing]) as client:
        assert types_of(await post(client))[-1] == "RUN_ERROR"
    assert lock.log == ["lock t True", "unlock t"]
    assert model.calls == 0


async def test_a_lock_handler_that_allows_everyone_does_not_bypass_our_lock() -> None:
    class Open:
        def lock(self, info: Any) -> bool:
            return True

        def unlock(self, info: Any) -> None: ...

    root, model = agent([piece(text("One")), HANG])
    handlers = HandlerContext(session_lock_handler=Open)
    async with serving(root, by_header(session_lock_config=NO_PATIENCE), handler_context=handlers) as client:
        async with held(client, model) as first:
            assert [event for _, event in frames(await post(client, message="u2"))] == LOCKED
    assert words(first[0]) == STOPPED
    assert model.saw == [HELD]


def note(tool_context: ToolContext) -> dict[str, Any]:
    """Note."""
    tool_context.state["noted"] = 1
    tool_context.state["user:secret"] = 2
    return {}


async def test_the_history_routes_list_read_patch_and_erase() -> None:
    def ask(question: str) -> None:
        """Ask."""

    root, model = agent(
        ["Let me ", call("note", "n1")],
        [call("ask", "l1", question="?")],
        ["Done."],
        tools=[note, LongRunningFunctionTool(ask)],
    )
    me = {"X-User-ID": "ada"}
    async with serving(root) as client:
        first = await post(client)
        answer = {"id": "r1", "role": "tool", "toolCallId": "l1", "content": "yes"}
        body = {**run_body("x"), "messages": [answer]}
        answered = await client.post("/", json=body, headers=me)
        await post(client, as_user="bob", thread="other")
        listed = await client.get("/thread/list", headers=me)
        messages = (await client.get("/message_snapshot/t", headers=me)).json()
        state = (await client.get("/state_snapshot/t", headers=me)).json()
        changes = [
            {"op": "test", "path": "/noted", "value": 1},
            {"op": "replace", "path": "/noted", "value": 5},
            {"op": "add", "path": "/more", "value": True},
        ]
        patched = await client.patch("/state/t", json=changes, headers=me)
        removed = await client.patch("/state/t", json=[{"op": "remove", "path": "/noted"}], headers=me)
        after = (await client.get("/state_snapshot/t", headers=me)).json()
        wrong = [
            error_of(await client.patch("/state/t", json=patch, headers=me))
            for patch in (
                [{"op": "replace", "path": "noted", "value": 1}],
                [{"op": "remove", "path": "/nothing"}],
                [{"op": "test", "path": "/more", "value": False}],
                {"op": "add"},
            )
        ]
        missing = [
            error_of(await client.request(method, path, headers=me, json=None if method != "PATCH" else []))
            for method, path in (
                ("GET", "/message_snapshot/none"),
                ("GET", "/state_snapshot/none"),
                ("PATCH", "/state/none"),
                ("DELETE", "/thread/none"),
            )
        ]
        deleted = await client.delete("/thread/t", headers=me)
        empty = await client.get("/thread/list", headers=me)
    assert listed.json() == [{"threadId": "t"}]
    assert words(first) == [
        *("RS", "TS m1", "TC Let me ", "TE", "CS n1 note", "CA n1 {}", "CE n1", "CR n1 {}"),
        "SD [{'op': 'add', 'path': '/noted', 'value': 1}]",
        *("CS l1 ask", 'CA l1 {"question":"?"}', "CE l1", "SS {'noted': 1}", "RF waits for l1"),
    ]
    assert words(answered) == ["RS", "TS m1", "TC Done.", "TE", "RF"]
    received = [
        ("user", "hi"),
        ("model", "Let me "),
        ("model", ("call", "note", {})),
        ("user", ("result", "note", {})),
        ("model", ("call", "ask", {"question": "?"})),
        ("user", ("result", "ask", {"result": "yes"})),
    ]
    assert model.saw == [received[:1], received[:4], received, [("user", "hi")]]
    streamed = [event for response in (first, answered) for _, event in frames(response)]
    [spoken, done] = [event["messageId"] for event in streamed if event["type"] == "TEXT_MESSAGE_START"]
    [noted] = [event["messageId"] for event in streamed if event["type"] == "TOOL_CALL_RESULT"]
    [_, carrier] = [event["parentMessageId"] for event in streamed if event["type"] == "TOOL_CALL_START"]
    calls = [
        {"id": "n1", "type": "function", "function": {"name": "note", "arguments": "{}"}},
        {"id": "l1", "type": "function", "function": {"name": "ask", "arguments": '{"question":"?"}'}},
    ]
    assert messages == {
        "type": "MESSAGES_SNAPSHOT",
        "messages": [
            {"id": "u1", "role": "user", "content": "hi"},
            {"id": spoken, "role": "assistant", "content": "Let me ", "toolCalls": calls[:1]},
            {"id": noted, "role": "tool", "toolCallId": "n1", "content": "{}"},
            {"id": carrier, "role": "assistant", "toolCalls": calls[1:]},
            answer,
            {"id": done, "role": "assistant", "content": "Done."},
        ],
    }
    assert state == {"type": "STATE_SNAPSHOT", "snapshot": {"noted": 1}}
    assert patched.json() == removed.json() == {"status": "updated"}
    assert after["snapshot"] == {"more": True}
    assert wrong == [(400, "invalid_patch"), (409, "patch_conflict"), (409, "patch_conflict"), (400, "invalid_patch")]
    assert missing == [(404, "unknown_thread")] * 4
    assert deleted.json() == {"status": "deleted"}
    assert empty.json() == []


async def test_a_patch_is_refused_without_a_user_before_its_body_is_read() -> None:
    read: list[bytes] = []

    async def body() -> AsyncGenerator[bytes, None]:
        read.append(b"[")
        yield b"["

    async def nobody(content: Any, request: Request) -> str:
        return ""

    root, _ = agent(["Done."])
    async with serving(root, ConfigContext(app_name="x", user_id=nobody)) as client:
        refused = await client.patch("/state/t", content=body(), headers={"Content-Type": "application/json"})
    assert (error_of(refused), read) == ((401, "unauthorized"), [])


async def test_the_five_helper_functions_return_the_same() -> None:
    root, model = agent([call("note", "n1")], ["Done."], tools=[note])
    app = FastAPI()
    service = SSEService(root, RunnerConfig(), by_header(), settings=SETTINGS)
    register_agui_endpoint(app, service, history=False)
    found: dict[str, Any] = {}

    @app.get("/mine/{thread_id}")
    async def mine(request: Request, thread_id: str) -> dict[str, str]:
        found["threads"] = await get_agui_thread_list(service, request)
        found["messages"] = await get_agui_message_snapshot(service, request, thread_id)
        change = [{"op": "add", "path": "/more", "value": 1}]
        found["patched"] = await patch_agui_state(service, request, thread_id, change)
        found["state"] = await get_agui_state_snapshot(service, request, thread_id)
        return await delete_agui_thread(service, request, thread_id)

    async with client_of(app) as client:
        await post(client)
        response = await client.get("/mine/t", headers={"X-User-ID": "ada"})
        assert (await client.get("/thread/list")).status_code == 404
    assert response.json() == {"status": "deleted"}
    assert found["threads"] == [{"threadId": "t"}]
    assert found["patched"] == {"status": "updated"}
    assert isinstance(found["messages"], MessagesSnapshotEvent)
    assert [message.role for message in found["messages"].messages] == ["user", "assistant", "tool", "assistant"]
    assert model.saw == [
        [("user", "hi")],
        [("user", "hi"), ("model", ("call", "note", {})), ("user", ("result", "note", {}))],
    ]
    assert isinstance(found["state"], StateSnapshotEvent)
    assert found["state"].snapshot == {"noted": 1, "more": 1}


async def test_the_helper_functions_answer_404_for_an_unknown_thread() -> None:
    """In a route of the application, an unknown thread was a 500."""
    root, _ = agent()
    app, router = FastAPI(), APIRouter(prefix="/mine")
    service = SSEService(root, RunnerConfig(), by_header(), settings=SETTINGS)
    register_agui_endpoint(app, service, history=False)

    @router.get("/{thread_id}/messages")
    async def messages(request: Request, thread_id: str) -> Any:
        return await get_agui_message_snapshot(service, request, thread_id)

    @router.get("/{thread_id}/state")
    async def state(request: Request, thread_id: str) -> Any:
        return await get_agui_state_snapshot(service, request, thread_id)

    @router.delete("/{thread_id}")
    async def delete(request: Request, thread_id: str) -> Any:
        return await delete_agui_thread(service, request, thread_id)

    @router.patch("/{thread_id}")
    async def patch(request: Request, thread_id: str) -> Any:
        return await patch_agui_state(service, request, thread_id, [])

    app.include_router(router)
    async with client_of(app) as client:
        responses = [
            await client.request(method, path, headers={"X-User-ID": "ada"})
            for method, path in (
                ("GET", "/mine/none/messages"),
                ("GET", "/mine/none/state"),
                ("DELETE", "/mine/none"),
                ("PATCH", "/mine/none"),
            )
        ]
    assert [(one.status_code, one.json()["detail"]["code"]) for one in responses] == [(404, "unknown_thread")] * 4


async def test_a_patch_reaches_the_agent() -> None:
    def read(tool_context: ToolContext) -> dict[str, Any]:
        """Read."""
        return {"color": tool_context.state.get("color")}

    root, model = agent(["A"], [call("read", "s1")], ["B"], tools=[read])
    me = {"X-User-ID": "ada"}
    async with serving(root) as client:
        await post(client)
        await client.patch("/state/t", json=[{"op": "add", "path": "/color", "value": "red"}], headers=me)
        await post(client, message="u2")
    assert model.saw[2][-1] == ("user", ("result", "read", {"color": "red"}))


@pytest.mark.parametrize("lines", [False, True], ids=["plain", "event-source"])
async def test_frames_have_their_type_in_the_data_whatever_the_mode(lines: bool) -> None:
    root, model = agent(["Hi"])
    async with serving(root, by_header(event_source_response_mode=lines)) as client:
        response = await post(client)
    assert model.saw == [[("user", "hi")]]
    assert words(response) == ["RS", "TS m1", "TC Hi", "TE", "RF"]
    blocks = [block for block in response.text.split("\n\n") if block]
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        assert ("event" in fields) is lines
        assert '"type":"' in fields["data"]
        assert fields.get("event", "") in fields["data"]
        assert "id" in fields


async def test_the_recorder_hears_of_the_input_before_the_lock_and_of_a_refusal_too() -> None:
    trace: list[str] = []

    class Recorder:
        def input_record(self, info: Any) -> None:
            trace.append(f"input {info.user_id} {info.request.headers['x-user-id']}")

        def output_record(self, event: Any) -> None:
            trace.append(event.type.value)

        def output_catch_and_change(self, event: Any) -> Any:
            return event

    class Closed(Turnstile):
        async def lock(self, info: Any) -> bool:
            trace.append("lock")
            return False

    root, model = agent(["One"])
    handlers = HandlerContext(in_out_record_handler=Recorder, session_lock_handler=Closed())
    async with serving(root, handler_context=handlers) as client:
        await post(client)
    assert trace == ["input ada ada", "lock", "RUN_STARTED", "RUN_ERROR"]
    assert model.calls == 0


async def test_nothing_a_client_sends_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    root, _ = agent(["One"])
    async with serving(root) as client:
        headers = {"X-User-ID": "ada", "Authorization": "Bearer the-token-1234"}
        await client.post("/", json=run_body("the-words-5678"), headers=headers)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("ambient_runner")]
    assert not any("the-token-1234" in line or "the-words-5678" in line for line in ours)


async def test_the_app_drains_with_its_lifespan_and_no_signal_handler_is_touched() -> None:
    import signal

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    root, model = agent([piece(text("One")), HANG])
    responses: list[httpx.Response] = []
    app = FastAPI()
    service = SSEService(root, RunnerConfig(), by_header(), settings=SETTINGS)
    register_agui_endpoint(app, service)
    with unless_hung():
        async with anyio.create_task_group() as tasks, client_of(app) as client:

            async def hold() -> None:
                responses.append(await post(client))

            tasks.start_soon(hold)
            await model.wait_for_calls()
            await service.runtime.drain()
    assert types_of(responses[0])[-1] == "RUN_ERROR"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before
