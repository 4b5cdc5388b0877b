"""The routes that start runs: their answers to requests that are incomplete or wrong, and rewinds."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from urllib.parse import unquote

import httpx
import pytest

from ambient_runner import create_app
from ambient_runner.bridges.demo import DemoBridge
from tests.server.demo_server import SETTINGS, client_of, demo, error_of, frames, run_body


def sentence(response: httpx.Response) -> str:
    return response.json()["error"]["message"]


async def test_a_slash_at_the_end_of_an_agents_address_changes_nothing() -> None:
    async with demo() as client:
        response = await client.post("/agents/other/", json=run_body("say hi"))
        threads = (await client.get("/thread/list")).json()["threads"]
    assert (response.status_code, [thread["agent"] for thread in threads]) == (200, ["other"])


@pytest.mark.parametrize("content", [b"{}", b"not json", b""])
async def test_an_unknown_agent_is_reported_before_any_error_in_the_body(content: bytes) -> None:
    async with demo() as client:
        response = await client.post("/agents/nobody", content=content)
    assert error_of(response) == (404, "unknown_agent")


async def test_a_body_without_messages_is_refused_with_one_that_is_taken() -> None:
    async with demo() as client:
        response = await client.post("/", json={})
        said = sentence(response)
        example = json.loads(said[said.index("{") : said.rindex("}") + 1])
        taken = await client.post("/", json=example)
    assert error_of(response) == (422, "invalid_input")
    assert taken.status_code == 200


async def test_a_message_with_an_unknown_role_is_named_when_there_is_nothing_to_answer() -> None:
    strange = {"id": "u2", "role": "usr", "content": "say hi"}
    async with demo() as client:
        first = await client.post("/", json={"messages": [strange]})
        await client.post("/", json=run_body("say hi"))
        later = await client.post("/", json={"threadId": "t", "messages": [strange]})
    for response in (first, later):
        assert error_of(response) == (422, "invalid_input")
        assert "messages[0] was left out" in sentence(response)
        assert ("usr" in sentence(response), "user" in sentence(response)) == (False, True)


async def test_a_refusal_without_such_a_message_mentions_none() -> None:
    async with demo() as client:
        response = await client.post("/", json={"messages": [], "mood": "good"})
    assert error_of(response) == (422, "invalid_input")
    assert "left out" not in sentence(response)


async def test_a_known_message_id_rewinds_the_thread_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ambient_runner")
    async with demo() as client:
        await client.post("/", json=run_body("say one"))
        await client.post("/", json=run_body("say two", message="u2"))
        assert _rewinds(caplog) == []
        again = frames(await client.post("/", json=run_body("say other")))
        messages = (await client.get("/message_snapshot/t")).json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert [message["content"] for message in messages] == ["say one", "one"]
    assert [(record.levelno, record.args[-1]) for record in _rewinds(caplog)] == [(logging.INFO, 3)]  # type: ignore[index]
    assert again[-1][1]["outcome"] == {"type": "success"}


def _rewinds(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "ambient_runner.runs.run_starter"]


async def test_ids_may_be_left_out() -> None:
    asked = {"messages": [{"role": "user", "content": "say hi"}]}
    async with demo() as client:
        first = await client.post("/", json=asked)
        thread = first.headers["X-Ambient-Thread"]
        for _ in range(2):
            await client.post("/", json={"threadId": thread, **asked})
        messages = (await client.get(f"/message_snapshot/{thread}")).json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3


@pytest.mark.parametrize("thread", [" t", "t ", "a b", "100%", "ä"])
async def test_m13_the_header_with_the_threads_id_survives_http(thread: str) -> None:
    """HTTP strips spaces at the ends of a header: the client read the id of another thread."""
    async with demo() as client:
        answer = await client.post("/", json=run_body("say hi") | {"threadId": thread})
    header = answer.headers["X-Ambient-Thread"]
    assert unquote(header.strip()) == thread
    assert " " not in header


@pytest.mark.parametrize("path", ["/chat", "/docs", "/threads", "/repos/status"])
async def test_a_request_to_an_unknown_route_gets_the_routes_that_start_runs(path: str) -> None:
    async with demo() as client:
        response = await client.get(path)
    assert error_of(response) == (404, "not_found")
    assert "`POST /`" in sentence(response)


async def test_an_open_interrupt_is_cancelled_by_a_stop_and_the_thread_accepts_messages() -> None:
    async with demo() as client:
        asked = [event for _, event in frames(await client.post("/", json=run_body("approve the deploy")))]
        (question,) = asked[-1]["outcome"]["interrupts"]
        refused = await client.post("/", json=run_body("say hi", message="u2"))
        stopped = await client.post("/interrupt", json={"threadId": "t"})
        answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
        late = await client.post("/", json={"threadId": "t", "runId": "r", "resume": [answer]})
        again = await client.post("/interrupt", json={"threadId": "t"})
        said = await client.post("/", json=run_body("say hi", message="u2"))
        history = frames(await client.get("/threads/t/events?until=idle"))
    assert error_of(refused) == (409, "pending_interrupts")
    assert (stopped.status_code, stopped.json()["threadId"]) == (200, "t")
    assert (error_of(late), error_of(again)) == ((409, "nothing_to_resume"), (409, "nothing_running"))
    assert said.status_code == 200
    assert [event["value"] for _, event in history if event.get("name") == "ambient:interrupts_cancelled"] == [
        {"interruptIds": [question["id"]]}
    ]


ASYNC = {"Prefer": "respond-async"}


async def test_a_client_that_follows_the_thread_is_answered_as_soon_as_its_run_has_begun() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("say one"))
        answer = await client.post("/", json=run_body("say two", message="u2") | {"runId": "mine"}, headers=ASYNC)
        accepted = answer.json()
        run = frames(await client.get("/threads/t/events", params={"after": accepted["after"], "until": "idle"}))
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "respond-async"
    assert (answer.headers["x-ambient-run"], answer.headers["x-ambient-thread"]) == (accepted["run"], "t")
    assert accepted == {"threadId": "t", "run": accepted["run"], "runId": "mine", "after": accepted["after"]}
    assert (run[0][1]["type"], run[0][1]["runId"]) == ("RUN_STARTED", "mine")
    assert run[-1][1]["type"] == "RUN_FINISHED"


async def test_the_first_run_of_a_thread_can_be_followed_from_its_answer() -> None:
    async with demo() as client:
        body = {"messages": [{"role": "user", "content": "say hi"}]}
        accepted = (await client.post("/agents/other", json=body, headers=ASYNC)).json()
        run = frames(
            await client.get(
                f"/threads/{accepted['threadId']}/events", params={"after": accepted["after"], "until": "idle"}
            )
        )
    assert accepted["after"].endswith(".0")
    assert (run[0][1]["runId"], run[-1][1]["type"]) == (accepted["runId"], "RUN_FINISHED")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("respond-async", 202),
        ("wait=5, Respond-Async; x=1", 202),
        ("handling=lenient", 200),
        ("respond-asynchronously", 200),
        ("", 200),
    ],
)
async def test_only_the_preference_of_that_name_is_applied(header: str, status: int) -> None:
    async with demo() as client:
        answer = await client.post("/", json=run_body("say hi"), headers={"Prefer": header})
    assert (answer.status_code, "preference-applied" in answer.headers) == (status, status == 202)


async def test_a_run_that_nobody_reads_goes_on_and_is_not_superseded() -> None:
    async with demo() as client:
        headers = {**ASYNC, "X-Ambient-On-Disconnect": "stop"}
        begun = (await client.post("/", json=run_body("hang"), headers=headers)).json()
        busy = [await client.post("/", json=run_body("say hi", message="u2"), headers=each) for each in (ASYNC, {})]
        [run] = (await client.get("/threads/t/runs")).json()["runs"]
        await client.post("/interrupt", json={"threadId": "t"})
    assert [error_of(each) for each in busy] == [(409, "thread_busy")] * 2
    assert (run["run"], run["status"]) == (begun["run"], "running")


async def test_a_repeated_request_is_answered_with_the_run_it_started() -> None:
    async with demo() as client:
        headers = {**ASYNC, "Idempotency-Key": "once"}
        body = {"threadId": "t", "messages": [{"id": "u1", "role": "user", "content": "hang"}]}
        first, second = [(await client.post("/", json=body, headers=headers)).json() for _ in range(2)]
        other = await client.post("/", json={**body, "state": {"a": 1}}, headers=headers)
        runs = (await client.get("/threads/t/runs")).json()["runs"]
        await client.post("/interrupt", json={"threadId": "t"})
    assert second == first
    assert error_of(other) == (409, "key_reused")
    assert [run["runId"] for run in runs] == [first["runId"]]


@pytest.mark.parametrize(
    ("path", "body", "refusal"),
    [
        ("/agents/nobody", run_body("say hi"), (404, "unknown_agent")),
        ("/", run_body("say hi", messages=[]), (422, "invalid_input")),
        ("/?snapshots=2", run_body("say hi"), (422, "invalid_input")),
    ],
)
async def test_a_refusal_does_not_depend_on_the_preference(
    path: str, body: dict[str, object], refusal: tuple[int, str]
) -> None:
    async with demo() as client:
        refused = await client.post(path, json=body, headers=ASYNC)
        assert error_of(refused) == refusal
        assert (await client.get("/thread/list")).json()["threads"] == []


async def test_a_page_of_another_origin_may_send_the_preference() -> None:
    app = create_app(replace(SETTINGS, allowed_origins=("https://page.example",)), {"demo": DemoBridge()})
    async with client_of(app) as client:
        answer = await client.options(
            "/", headers={"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
        )
    assert "Prefer" in answer.headers["access-control-allow-headers"].split(", ")
