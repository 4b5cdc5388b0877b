"""Runs of CopilotKit's pages: their profile, connects, stops, suggestions, and runs that have to wait."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI, Request

from ambient_runner import Settings, add_ambient_endpoints, create_app, current_run
from ambient_runner.bridges.demo import SUGGESTIONS, DemoBridge
from ambient_runner.config import AgentSettings
from ambient_runner.runs.run import RunAttribute
from ambient_runner.server import pending_run, suggestions
from tests.machine_speed import unless_hung
from tests.server.asgi_request import AsgiRequest
from tests.server.demo_server import SETTINGS, client_of, demo, error_of, frames

RUN = "/copilotkit/agent/default/run"
CONNECT = "/copilotkit/agent/default/connect"
SUGGEST = "/copilotkit/agent/default/suggest"
STOP = "/copilotkit/agent/default/stop/t"
QUEUE = {"X-Ambient-On-Busy": "queue"}
SUGGEST_TOOL = {"name": "copilotkitSuggest", "description": "", "parameters": {"type": "object"}}


def body(text: str = "", *, thread: str = "t", run: str = "r", message: str = "u1", **more: Any) -> dict[str, Any]:
    """A run input as CopilotKit's client sends it: it declares no version."""
    messages = [{"id": message, "role": "user", "content": text}] if text else []
    members: dict[str, Any] = {"tools": [], "context": [], "forwardedProps": {}, "state": {}}
    return {"threadId": thread, "runId": run, "messages": messages, **members, **more}


def suggestion_body(*texts: str) -> dict[str, Any]:
    spoken = [{"id": f"u{at}", "role": "user", "content": text} for at, text in enumerate(texts)]
    instruction = {"id": "made-up", "role": "user", "content": "Suggest what the user could say next."}
    choice = {"toolChoice": {"type": "function", "function": {"name": "copilotkitSuggest"}}}
    return body(
        thread="made-up", messages=[*spoken, instruction], tools=[SUGGEST_TOOL], forwardedProps=choice, state={"n": 1}
    )


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return [event for _, event in frames(response)]


def types(response: httpx.Response) -> list[str]:
    return [event["type"] for event in events(response)]


def suggested(response: httpx.Response) -> list[str]:
    return [event["delta"] for event in events(response) if event["type"] == "TOOL_CALL_ARGS"]


async def thread_ids(client: httpx.AsyncClient) -> list[str]:
    return [row["threadId"] for row in (await client.get("/thread/list")).json()["threads"]]


async def user_texts(client: httpx.AsyncClient) -> list[str]:
    messages = (await client.get("/message_snapshot/t")).json()["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]


@asynccontextmanager
async def demo_app(settings: Settings = SETTINGS) -> AsyncGenerator[tuple[FastAPI, httpx.AsyncClient], None]:
    app = create_app(settings, {"demo": DemoBridge(), "other": DemoBridge()})
    async with client_of(app) as client:
        yield app, client


@asynccontextmanager
async def hanging(app: FastAPI, **more: Any) -> AsyncGenerator[AsgiRequest, None]:
    """A page whose run hangs. On exit the run has been stopped and the page has its end."""
    page = AsgiRequest(app, RUN, body("hang", run="hangs", message="hang", **more))
    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(page.run)
            await page.shows(b"hanging")
            yield page


async def test_a_run_has_the_profile_of_the_client_in_copilotkit() -> None:
    async with demo() as client:
        assert "SUBAGENT_STARTED" in types(await client.post(RUN, json=body("subagent")))
        # A client that declares nothing elsewhere gets steps.
        plain = await client.post("/", json=body("subagent", thread="plain"))
        assert "SUBAGENT_STARTED" not in types(plain)
    async with demo(dataclasses.replace(SETTINGS, client="0.0.49")) as client:
        assert "SUBAGENT_STARTED" not in types(await client.post(RUN, json=body("subagent")))


async def test_the_agent_default_is_the_first_one_and_each_has_its_name() -> None:
    async with demo() as client:
        for agent in ("default", "demo", "other"):
            answer = await client.post(f"/copilotkit/agent/{agent}/run", json=body("say hi", thread=agent))
            assert types(answer)[-1] == "RUN_FINISHED"
        agents = {row["threadId"]: row["agent"] for row in (await client.get("/thread/list")).json()["threads"]}
    assert agents == {"default": "demo", "demo": "demo", "other": "other"}


async def test_a_run_id_that_was_used_before_starts_another_run() -> None:
    async with demo() as client:
        for message in ("u1", "u2"):
            assert types(await client.post(RUN, json=body("say hi", message=message)))[-1] == "RUN_FINISHED"
        assert await user_texts(client) == ["say hi", "say hi"]


async def test_a_connect_to_an_unknown_thread_is_empty_and_creates_none() -> None:
    async with demo() as client:
        assert events(await client.post(CONNECT, json=body())) == []
        assert await thread_ids(client) == []


async def test_a_connect_ends_with_the_thread_and_repeats_no_error() -> None:
    async with demo() as client:
        assert types(await client.post(RUN, json=body("crash")))[-1] == "RUN_ERROR"
        connected = events(await client.post(CONNECT, json=body()))
        snapshot = (await client.get("/message_snapshot/t")).json()
    assert [event["type"] for event in connected] == [
        *("RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "CUSTOM", "RUN_FINISHED")
    ]
    assert connected[1]["messages"] == snapshot["messages"]
    assert "outcome" not in connected[-1]


async def test_a_connect_brings_open_interrupts_back() -> None:
    async with demo() as client:
        asked = events(await client.post(RUN, json=body("approve it")))[-1]["outcome"]
        assert events(await client.post(CONNECT, json=body()))[-1]["outcome"] == asked
    assert asked["type"] == "interrupt"


async def test_a_connect_during_a_run_joins_it_and_ends_with_it() -> None:
    async with demo_app() as (app, client), hanging(app) as page:
        other = AsgiRequest(app, CONNECT, body())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.run)
            await other.shows(b"hanging")
            assert (await client.post(STOP)).json()["stopped"] is True
    assert other.body.endswith(page.body)
    assert b'"code":"abort"' in page.body.splitlines()[-2]


async def test_a_connect_to_the_thread_of_another_agent_is_refused() -> None:
    async with demo() as client:
        await client.post(RUN, json=body("say hi"))
        answer = await client.post("/copilotkit/agent/other/connect", json=body())
    assert (answer.status_code, answer.json()["error"]) == (409, "other_agent")


async def test_a_stop_ends_the_run_that_it_names_and_no_other() -> None:
    async with demo_app() as (app, client), hanging(app) as page:
        for other in ({"runId": "earlier"}, {"runId": "r"}):
            answer = await client.post(STOP, json=other)
            assert (answer.status_code, answer.json()["stopped"]) == (200, False)
        answer = await client.post(STOP, json={"runId": "hangs"})
        assert answer.json() == {
            "stopped": True,
            "interrupt": {"type": "RUN_ERROR", "message": "The run was stopped.", "code": "STOPPED"},
        }
    assert page.body.count(b"RUN_ERROR") == 1


async def test_a_page_that_sent_the_same_message_stops_the_run_it_joined_by_its_own_id() -> None:
    async with demo_app() as (app, client), hanging(app) as page:
        second = AsgiRequest(app, RUN, body("hang", run="second", message="hang"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.run)
            await second.shows(b"hanging")
            assert (await client.post(STOP, json={"runId": "second"})).json()["stopped"] is True
    assert second.body == page.body


async def test_a_late_stop_stops_nothing() -> None:
    async with demo() as client:
        await client.post(RUN, json=body("approve it", run="asks"))
        for stop in ({"runId": "asks"}, None):
            assert (await client.post(STOP, json=stop)).json()["stopped"] is False
        # The interrupt is still there.
        assert events(await client.post(CONNECT, json=body()))[-1]["outcome"]["type"] == "interrupt"
        unknown = await client.post("/copilotkit/agent/default/stop/unknown")
    assert (unknown.status_code, unknown.json()["stopped"]) == (200, False)


async def test_a_stop_reaches_a_thread_whose_id_has_a_slash() -> None:
    async with demo_app() as (app, client), hanging(app, thread="a/b"):
        answer = await client.post("/copilotkit/agent/default/stop/a%2Fb", json={"runId": "hangs"})
    assert answer.json()["stopped"] is True


async def test_a_run_that_waits_has_its_headers_first_and_then_its_events() -> None:
    async with demo_app() as (app, client), hanging(app):
        queued = AsgiRequest(app, RUN, body("say my turn", run="queued"), QUEUE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queued.run)
            await queued.shows(b": waiting\n\n")
            assert (queued.status, b"data:" in queued.body) == (200, False)
            await client.post(STOP, json={"runId": "hangs"})
    assert queued.body.count(b'"RUN_STARTED"') == queued.body.count(b'"RUN_FINISHED"') == 1
    assert queued.body.startswith(b": waiting\n\nid: ")


async def test_a_refusal_after_waiting_is_the_end_of_the_stream() -> None:
    settings = dataclasses.replace(SETTINGS, queue_wait=2 * pending_run.IMMEDIATE_TIMEOUT)
    async with demo_app(settings) as (app, client), hanging(app):
        refused = await client.post(RUN, json=body("say my turn", run="queued"), headers=QUEUE)
        await client.post(STOP, json={"runId": "hangs"})
    started, error = events(refused)
    assert started == {"type": "RUN_STARTED", "threadId": "t", "runId": "queued"}
    assert (error["type"], error["code"]) == ("RUN_ERROR", "thread_busy")


async def test_a_refusal_at_once_is_a_status() -> None:
    settings = dataclasses.replace(SETTINGS, queue_depth=1)
    async with demo_app(settings) as (app, client), hanging(app):
        queued = AsgiRequest(app, RUN, body("say my turn", run="queued"), QUEUE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queued.run)
            await queued.shows(b": waiting")
            for headers in (QUEUE, {}):
                answer = await client.post(RUN, json=body("say too much", message="u9"), headers=headers)
                assert (answer.status_code, answer.json()["error"]) == (409, "thread_busy")
            await client.post(STOP, json={"runId": "hangs"})


async def test_a_page_that_leaves_the_queue_starts_nothing() -> None:
    async with demo_app() as (app, client), hanging(app):
        queued = AsgiRequest(app, RUN, body("say never", run="queued"), QUEUE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queued.run)
            await queued.shows(b": waiting")
            queued.leave()
        await client.post(STOP, json={"runId": "hangs"})
        await client.post(RUN, json=body("say next", message="u2"), headers=QUEUE)
        assert await user_texts(client) == ["hang", "say next"]


async def test_a_run_that_waits_is_stopped_before_it_begins() -> None:
    async with demo_app() as (app, client), hanging(app):
        queued = AsgiRequest(app, RUN, body("say never", run="queued"), QUEUE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queued.run)
            await queued.shows(b": waiting")
            assert (await client.post(STOP, json={"runId": "queued"})).json()["stopped"] is True
        await client.post(STOP, json={"runId": "hangs"})
        assert await user_texts(client) == ["hang"]
    assert queued.body.splitlines()[-2].endswith(
        b'{"type":"RUN_ERROR","message":"The run was stopped before it began.","code":"abort"}'
    )


async def test_a_run_continues_when_its_page_leaves_whatever_the_setting() -> None:
    async with demo_app(dataclasses.replace(SETTINGS, on_disconnect="stop")) as (app, client):
        page = AsgiRequest(app, RUN, body("count 20 every 20ms"))
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(page.run)
                await page.shows(b'"2 "')
                page.leave()
            # A page that loads now joins the run, and gets all of it.
            end = events(await client.post(CONNECT, json=body()))[-2:]
    assert [event["type"] for event in end] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert end[0]["messages"][-1]["content"].endswith("19 20 ")


async def test_a_run_gets_the_attributes_of_its_request() -> None:
    tenant = RunAttribute[str]("tenant")
    seen: list[str | None] = []

    class Asking(DemoBridge):
        def create_adapter(self, ctx: Any) -> Any:
            seen.append(tenant.get(current_run()))
            return super().create_adapter(ctx)

    async def prepare(request: Request, run_input: Any) -> dict[RunAttribute[Any], Any]:
        return {tenant: request.headers["x-tenant"]}

    app = FastAPI()
    add_ambient_endpoints(app, Asking(), settings=SETTINGS, prepare_run=prepare)
    async with client_of(app) as client:
        assert types(await client.post(RUN, json=body("say hi"), headers={"x-tenant": "acme"}))[-1] == "RUN_FINISHED"
    assert seen == ["acme"]


async def test_the_demo_agent_suggests_its_commands_and_no_thread_comes_of_it() -> None:
    async with demo() as client:
        answer = await client.post(SUGGEST, json=suggestion_body("think"))
        as_run = await client.post(RUN, json=suggestion_body("think"))
        assert await thread_ids(client) == []
    rest = [command for command in SUGGESTIONS if command != "think"]
    rows = ",".join(f'{{"title":"{command}","message":"{command}"}}' for command in rest)
    assert suggested(answer) == [f'{{"suggestions":[{rows}]}}']
    assert events(as_run) == events(answer)


def with_suggestions(setting: Any) -> Settings:
    return dataclasses.replace(SETTINGS, agents=(AgentSettings(name="demo", suggestions=setting),))


async def test_the_setting_wins_over_the_agents_own_suggestions() -> None:
    async with demo(with_suggestions(("Make tea",))) as client:
        assert suggested(await client.post(SUGGEST, json=suggestion_body())) == [
            '{"suggestions":[{"title":"Make tea","message":"Make tea"}]}'
        ]
    async with demo(with_suggestions(())) as client:
        assert types(await client.post(SUGGEST, json=suggestion_body())) == ["RUN_STARTED", "RUN_FINISHED"]


SEEN: list[Any] = []


async def suggest_seen(messages: Sequence[Any], state: Any) -> list[Any]:
    SEEN.append(([(message.role, message.content) for message in messages], state))
    return [{"title": "Again", "message": f"{messages[-1].content} please"}, "Stop"]


async def suggest_badly(messages: Sequence[Any], state: Any) -> list[Any]:
    return [{"title": "no message"}]


async def suggest_forever(messages: Sequence[Any], state: Any) -> list[Any]:
    await anyio.sleep_forever()
    return []


async def suggest_a_secret(messages: Sequence[Any], state: Any) -> list[Any]:
    return ["use correct-horse-battery-91"]


async def test_a_function_gets_the_conversation_and_the_state() -> None:
    SEEN.clear()
    async with demo(with_suggestions(f"{__name__}:suggest_seen")) as client:
        assert suggested(await client.post(SUGGEST, json=suggestion_body("hi"))) == [
            '{"suggestions":[{"title":"Again","message":"hi please"},{"title":"Stop","message":"Stop"}]}'
        ]
    assert SEEN == [([("user", "hi")], {"n": 1})]


@pytest.mark.parametrize("function", ["suggest_badly", "suggest_forever"])
async def test_a_function_that_fails_or_takes_too_long_suggests_nothing(
    function: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(suggestions, "TIMEOUT", 0.05)
    async with demo(with_suggestions(f"{__name__}:{function}")) as client:
        with unless_hung():
            assert types(await client.post(SUGGEST, json=suggestion_body())) == ["RUN_STARTED", "RUN_FINISHED"]
    assert "demo" in caplog.text


async def test_a_suggestion_shows_no_secret() -> None:
    settings = dataclasses.replace(
        with_suggestions(f"{__name__}:suggest_a_secret"), secrets=("correct-horse-battery-91",)
    )
    async with demo(settings) as client:
        [delta] = suggested(await client.post(SUGGEST, json=suggestion_body()))
    assert "horse" not in delta


async def test_an_invalid_run_input_is_refused_with_a_status() -> None:
    async with demo() as client:
        for path in (RUN, CONNECT, SUGGEST):
            answer = await client.post(path, json={"threadId": "t"})
            assert (answer.status_code, answer.json()["error"]) == (422, "invalid_input")
        assert error_of(await client.post("/", json={"threadId": "t"})) == (422, "invalid_input")
