from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest

from ambient_runner import create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.ledger.records import RUNTIME, Fact, ThreadKey
from ambient_runner.protocol.events import RunStarted, encode_event
from ambient_runner.server.runtime import ServerRuntime
from tests.server.demo_server import SETTINGS, client_of, demo, error_of, frames, run_body


@asynccontextmanager
async def with_threads(count: int) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A server that has threads `0`, `1`, … already."""
    app = create_app(SETTINGS, {"demo": DemoBridge()})
    begun = Fact(owner=RUNTIME, kind="", body=encode_event(RunStarted(thread_id="t", run_id="r")))
    async with client_of(app) as client:
        runtime: ServerRuntime = app.state.ambient
        ledger = (await runtime.ensure_runner()).ledger
        for number in range(count):
            async with await ledger.acquire_lease(ThreadKey("default", "local", str(number)), "k") as writer:
                await writer.begin_run([begun], run_id="r", agent="demo", claim=None)
                await writer.finish_run()
        yield client


async def pages(client: httpx.AsyncClient, limit: int) -> list[list[str]]:
    """The thread ids of one page after another, until there is no next one."""
    found: list[list[str]] = []
    before: dict[str, str] = {}
    while True:
        page = (await client.get("/thread/list", params={"limit": limit, **before})).json()
        found.append([thread["threadId"] for thread in page["threads"]])
        if page["next"] is None:
            return found
        before = {"before": page["next"]}


@pytest.mark.parametrize("limit", [0, 1, 2, 5, 5000])
async def test_paging_through_the_threads_loses_none(limit: int) -> None:
    async with with_threads(5) as client:
        found = await pages(client, limit)
    assert [name for page in found for name in page] == ["4", "3", "2", "1", "0"]
    assert limit == 0 or all(len(page) <= limit for page in found)


async def test_a_limit_above_the_largest_page_gives_several_pages() -> None:
    async with with_threads(1001) as client:
        found = await pages(client, 5000)
    assert sorted(int(name) for page in found for name in page) == list(range(1001))
    assert len(found) == 2


@pytest.mark.parametrize("number", ["-1", "x", "1.5", "", "9" * 30])
async def test_a_limit_that_is_not_a_number_is_refused(number: str) -> None:
    async with demo() as client:
        assert error_of(await client.get("/thread/list", params={"limit": number})) == (422, "invalid_input")


@pytest.mark.parametrize(
    "body",
    [
        b'[{"op": "add", "path": "/a", "value": ' + b"[" * 500 + b"]" * 500 + b"}]",
        b'[{"op": "add", "path": "/a", "value": ' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}]",
        b"[" * 500 + b"]" * 500,
        b'[{"op": "add", "op": "remove", "path": "/a", "value": 1}]',
        b'[{"op": "add", "path": "/a", "value": {"k": 1, "k": 2}}]',
        b'[{"op": "add", "path": "/a", "value": NaN}]',
        b'[{"op": "add", "path": "/a"',
        b'{"op": "add", "path": "/a", "value": 1}',
        b'[{"op": "paint", "path": "/a", "value": 1}]',
        b"[5]",
        b"",
    ],
    ids=[
        "deep lists",
        "deep objects",
        "deep patch",
        "operation twice",
        "key twice",
        "not a number",
        "cut off",
        "no list",
        "unknown operation",
        "no operation",
        "empty",
    ],
)
async def test_an_invalid_patch_is_refused_and_changes_nothing(body: bytes) -> None:
    async with demo() as client:
        await client.post("/", json=run_body("state"))
        before = (await client.get("/state_snapshot/t")).json()
        answer = await client.patch("/state/t", content=body, headers={"Content-Type": "application/json"})
        after = (await client.get("/state_snapshot/t")).json()
    assert error_of(answer) == (400, "invalid_patch")
    assert after == before


async def test_a_patch_nested_as_deep_as_a_body_may_be_is_taken() -> None:
    value: object = 1
    for _ in range(40):
        value = [value]
    async with demo() as client:
        await client.post("/", json=run_body("state"))
        answer = await client.patch("/state/t", json=[{"op": "add", "path": "/note", "value": value}])
    assert answer.status_code == 200
    assert answer.json()["snapshot"]["note"] == value


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "replace", "path": "", "value": "x"}],
        [{"op": "add", "path": "", "value": [1]}],
        [{"op": "add", "path": "", "value": None}],
        [{"op": "remove", "path": ""}],
        [{"op": "add", "path": "/note", "value": "x"}, {"op": "copy", "from": "/note", "path": ""}],
        [{"op": "add", "path": "/note", "value": 1}, {"op": "move", "from": "/note", "path": ""}],
    ],
    ids=["text", "list", "nothing", "removed", "copied", "moved"],
)
async def test_a_patch_cannot_make_the_state_anything_but_an_object(operations: list[dict[str, object]]) -> None:
    async with demo() as client:
        await client.post("/", json=run_body("hello", state={"note": "mine"}))
        answer = await client.patch("/state/t", json=operations)
        after = (await client.get("/state_snapshot/t")).json()
        again = await client.patch("/state/t", json=[{"op": "add", "path": "/more", "value": 1}])
    assert error_of(answer) == (409, "patch_conflict")
    assert after["snapshot"] == {"note": "mine"}
    assert again.json()["snapshot"] == {"note": "mine", "more": 1}


async def test_a_patch_of_the_whole_state_may_give_another_object() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("hello", state={"note": "mine"}))
        answer = await client.patch("/state/t", json=[{"op": "replace", "path": "", "value": {"other": 1}}])
    assert answer.json()["snapshot"] == {"other": 1}


async def test_a_list_that_a_client_sent_as_state_is_patched_as_a_list() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("hello", state=[1]))
        answer = await client.patch("/state/t", json=[{"op": "add", "path": "/-", "value": 2}])
        text = await client.patch("/state/t", json=[{"op": "replace", "path": "", "value": "x"}])
    assert answer.json()["snapshot"] == [1, 2]
    assert error_of(text) == (409, "patch_conflict")


NOTE = [{"op": "add", "path": "/note", "value": "mine"}]


async def test_the_state_cannot_be_patched_while_a_question_is_open() -> None:
    async with demo() as client:
        asked = frames(await client.post("/", json=run_body("approve it", state={"a": 1})))
        (question,) = asked[-1][1]["outcome"]["interrupts"]
        refused = await client.patch("/state/t", json=NOTE)
        after = (await client.get("/state_snapshot/t")).json()["snapshot"]
        answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
        await client.post("/", json={**run_body("", message="u2"), "messages": [], "resume": [answer]})
        patched = await client.patch("/state/t", json=NOTE)
    assert error_of(refused) == (409, "pending_interrupts")
    assert question["id"] in refused.json()["error"]["message"]
    assert after == {"a": 1}
    assert patched.json()["snapshot"] == {"a": 1, "note": "mine"}


async def test_a_run_that_does_not_answer_cannot_change_the_state_while_a_question_is_open() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("approve it", state={"a": 1}))
        refused = await client.post("/", json=run_body("say hi", message="u2", state={"a": 2}))
        after = (await client.get("/state_snapshot/t")).json()["snapshot"]
    assert error_of(refused) == (409, "pending_interrupts")
    assert after == {"a": 1}


async def test_an_answer_may_bring_a_state() -> None:
    async with demo() as client:
        asked = frames(await client.post("/", json=run_body("approve it", state={"a": 1})))
        (question,) = asked[-1][1]["outcome"]["interrupts"]
        answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
        await client.post("/", json={"threadId": "t", "runId": "r", "resume": [answer], "state": {"a": 2}})
        after = (await client.get("/state_snapshot/t")).json()["snapshot"]
    assert after == {"a": 2}


async def test_a_stop_cancels_the_question_and_the_state_can_be_patched_again() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("approve it"))
        await client.post("/interrupt", json={"threadId": "t"})
        patched = await client.patch("/state/t", json=NOTE)
    assert patched.json()["snapshot"] == {"note": "mine"}
