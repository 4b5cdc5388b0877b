"""Streams of a thread: from a snapshot, of one run, without snapshots; and the list of its runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from ambient_runner.projections import frames as projected_frames
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, demo, error_of, frames, run_body

Frames = list[tuple[str | None, dict[str, Any]]]
ASYNC = {"Prefer": "respond-async"}
BACKGROUND: dict[str, Any] = {
    "name": "change_background",
    "description": "",
    "parameters": {"type": "object", "properties": {}},
}
CONNECT = ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "CUSTOM", "RUN_FINISHED"]


async def connect(client: httpx.AsyncClient, **params: str) -> Frames:
    return frames(await client.get("/threads/t/events", params={"from": "snapshot", "until": "idle", **params}))


async def replay(client: httpx.AsyncClient, **params: str) -> Frames:
    return frames(await client.get("/threads/t/events", params={"until": "idle", **params}))


def types(stream: Frames) -> list[str]:
    return [event["type"] for _, event in stream]


def seq_of(cursor: str | None) -> int:
    return int(str(cursor).partition(".")[2])


async def hanging(client: httpx.AsyncClient, **more: Any) -> dict[str, str]:
    """A run that has begun and ends only when it is stopped."""
    answer = await client.post("/", json=run_body("hang", message="hang", **more), headers=ASYNC)
    assert answer.status_code == 202
    return answer.json()


async def stop(client: httpx.AsyncClient) -> None:
    assert (await client.post("/interrupt", json={"threadId": "t"})).status_code == 200


async def test_a_connect_is_a_small_run_with_the_messages_the_state_and_the_thread() -> None:
    async with demo() as client:
        run = frames(await client.post("/", json=run_body("state")))
        messages = (await client.get("/message_snapshot/t")).json()
        state = (await client.get("/state_snapshot/t")).json()
        [listed] = (await client.get("/thread/list")).json()["threads"]
        connected = await connect(client)
        again = await connect(client)
    assert types(connected) == CONNECT
    assert connected == again
    last = run[-1]
    started, snapshot, shared, thread, finished = [event for _, event in connected]
    assert [cursor for cursor, _ in connected] == [None, None, None, None, last[0]]
    assert (snapshot["messages"], shared["snapshot"]) == (messages["messages"], state["snapshot"])
    assert started["runId"] == finished["runId"] == f"connect-{last[0]}"
    assert "outcome" not in finished
    ended = thread["value"]["updatedAt"]
    assert {event.get("timestamp") for _, event in connected} == {ended}
    begun = thread["value"]["lastRun"]["startedAt"]
    created = thread["value"]["createdAt"]
    assert listed["createdAt"] <= created <= begun <= ended <= listed["updatedAt"]
    assert thread == {
        "type": "CUSTOM",
        "name": "ambient:thread",
        "timestamp": ended,
        "value": {
            "threadId": "t",
            "agent": "demo",
            "title": "state",
            "archived": False,
            "status": "finished",
            "createdAt": created,
            "updatedAt": ended,
            "pendingCalls": [],
            "feedback": {},
            "lastRun": {
                "run": thread["value"]["lastRun"]["run"],
                "runId": "r",
                "status": "finished",
                "traceId": run[0][1]["metadata"]["traceId"],
                "startedAt": begun,
                "endedAt": ended,
            },
        },
    }


async def test_a_resume_after_a_connect_has_everything_that_follows_and_nothing_else() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("say one"))
        cursor = (await connect(client))[-1][0]
        second = frames(await client.post("/", json=run_body("say two", message="u2")))
        following = await replay(client, after=str(cursor))
        reconnected = frames(
            await client.get("/threads/t/events?from=snapshot&until=idle", headers={"Last-Event-ID": str(cursor)})
        )
    assert following == second
    assert reconnected == second, "a browser repeats the address when it reconnects"


@pytest.mark.parametrize("protocol", ["1.0", "0.0.59"])
async def test_a_connect_restores_the_question_that_the_thread_waits_for(protocol: str) -> None:
    async with demo() as client:
        run = frames(await client.post("/", params={"protocol": protocol}, json=run_body("approve the deploy")))
        connected = [event for _, event in await connect(client, protocol=protocol)]
        [question] = connected[-1]["outcome"]["interrupts"]
        refused = await client.post("/", json=run_body("say hi", message="u2"))
        answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
        resumed = frames(await client.post("/", json={"threadId": "t", "runId": "r", "resume": [answer]}))
        after = [event for _, event in await connect(client)]
    assert run[-1][1]["outcome"] == connected[-1]["outcome"]
    assert connected[-2]["value"]["status"] == "waiting"
    assert error_of(refused) == (409, "pending_interrupts")
    assert resumed[-1][1]["type"] == "RUN_FINISHED"
    assert (after[-2]["value"]["status"], after[-1].get("outcome")) == ("finished", None)


async def test_a_connect_names_the_calls_that_wait_for_the_page() -> None:
    async with demo() as client:
        run = frames(await client.post("/", json=run_body("color red", tools=[BACKGROUND])))
        new = [event for _, event in await connect(client)]
        old = [event for _, event in await connect(client, protocol="0.0.59")]
    [call] = run[-1][1]["outcome"]["pendingToolCallIds"]
    assert new[-2]["value"]["pendingCalls"] == [{"id": call, "name": "change_background"}]
    assert (new[-2]["value"]["status"], new[-1]["outcome"]) == ("waiting", run[-1][1]["outcome"])
    assert old[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(("command", "status"), [("crash", "failed"), ("hang", "stopped")])
async def test_the_end_of_a_failed_or_stopped_run_is_told_and_not_repeated(command: str, status: str) -> None:
    async with demo() as client:
        await client.post("/", json=run_body(command), headers=ASYNC)
        if command == "hang":
            await stop(client)
        connected = [event for _, event in await _when_idle(client)]
    assert [event["type"] for event in connected] == CONNECT
    assert (connected[3]["value"]["status"], connected[3]["value"]["lastRun"]["status"]) == (status, status)


async def _when_idle(client: httpx.AsyncClient) -> Frames:
    await replay(client)
    return await connect(client)


@pytest.mark.parametrize("runs_before", [0, 2])
async def test_a_connect_during_a_run_shows_the_moment_before_it_and_then_the_whole_run(runs_before: int) -> None:
    async with demo() as client:
        for turn in range(runs_before):
            await client.post("/", json=run_body(f"say {turn}", message=f"u{turn}"))
        before = await connect(client) if runs_before else []
        begun = await hanging(client)
        found: dict[str, Frames] = {}

        async def read() -> None:
            found["connect"] = await connect(client)

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await stop(client)
        run = await replay(client, after=begun["after"])
    connected = found["connect"]
    assert types(connected[:5]) == CONNECT
    assert connected[5:] == run
    assert connected[4][0] == begun["after"]
    assert before == (connected[:5] if runs_before else [])
    assert len(connected[1][1]["messages"]) == 2 * runs_before
    assert ("lastRun" in connected[3][1]["value"]) == bool(runs_before)


async def test_facts_after_the_last_run_are_part_of_the_connect() -> None:
    async with demo() as client:
        run = frames(await client.post("/", json=run_body("state")))
        await client.patch("/state/t", json=[{"op": "add", "path": "/note", "value": 1}])
        connected = await connect(client)
    assert seq_of(connected[-1][0]) == seq_of(run[-1][0]) + 1
    assert connected[2][1]["snapshot"]["note"] == 1
    assert connected[3][1]["value"]["lastRun"]["endedAt"] <= connected[3][1]["value"]["updatedAt"]


async def test_a_connect_of_a_trimmed_thread_needs_no_gap() -> None:
    async with demo(dataclasses.replace(SETTINGS, retain=5)) as client:
        for turn in range(5):
            await client.post("/", json=run_body("say one two three four", message=f"u{turn}"))
        connected = await connect(client)
        messages = (await client.get("/message_snapshot/t")).json()["messages"]
    assert types(connected) == CONNECT
    assert connected[1][1]["messages"] == messages
    assert connected[3][1]["value"]["title"] == "say one two three four"


@pytest.mark.parametrize("retain", [0, 5])
async def test_a_connect_and_a_gap_contain_all_messages_however_large(
    monkeypatch: pytest.MonkeyPatch, retain: int
) -> None:
    """A run may leave out its snapshot: its readers have the messages. Who connects, or misses entries, has them from nowhere else."""
    monkeypatch.setattr(projected_frames, "MAX_SNAPSHOT_BYTES", 10)
    async with demo(dataclasses.replace(SETTINGS, retain=retain)) as client:
        for turn in range(5):
            run = frames(await client.post("/", json=run_body("say one two three four", message=f"u{turn}")))
        connected = await connect(client)
        replayed = await replay(client)
        messages = (await client.get("/message_snapshot/t")).json()["messages"]
    assert "ambient:snapshot_skipped" in [event.get("name") for _, event in run]
    assert connected[1][1]["messages"] == messages
    snapshots = [event for _, event in replayed if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [len(event["messages"]) for event in snapshots] == ([8] if retain else [])


async def test_clients_of_the_audience_safe_connect_to_summaries() -> None:
    async with demo(dataclasses.replace(SETTINGS, audience="safe")) as client:
        run = frames(await client.post("/", json=run_body("weather Paris")))
        connected = await connect(client)
    [streamed] = [event for _, event in run if event["type"] == "MESSAGES_SNAPSHOT"]
    assert connected[1][1]["messages"] == streamed["messages"]
    [result] = [message for message in connected[1][1]["messages"] if message["role"] == "tool"]
    assert json.loads(result["content"])["reason"] == "tool_result"


async def test_feedback_stays_with_its_message_in_every_snapshot() -> None:
    async with demo() as client:
        run = frames(await client.post("/", json=run_body("say hi")))
        answer = run[-2][1]["messages"][-1]
        for rating in ("thumbs_down", "thumbs_up"):
            payload = {"messageId": answer["id"], "comment": "no secret"}
            body = {"type": "META", "metaType": rating, "threadId": "t", "payload": payload}
            assert (await client.post("/feedback", json=body)).status_code == 200
        connected = await connect(client)
        route = (await client.get("/message_snapshot/t")).json()
        posted_back = [*route["messages"], {"id": "u2", "role": "user", "content": "say more"}]
        second = frames(await client.post("/", json={**run_body(""), "messages": posted_back}))
        following = await replay(client)
    rated = answer | {"metadata": {"ambient": {"feedback": "thumbs_up"}}}
    assert connected[1][1]["messages"][-1] == rated
    assert connected[3][1]["value"]["feedback"] == {answer["id"]: "thumbs_up"}
    assert route["messages"][-1] == rated
    assert [message for message in second[-2][1]["messages"] if "metadata" in message] == [rated]
    changed = [event["value"]["feedback"] for _, event in following if event.get("name") == "ambient:thread"]
    assert changed == [{answer["id"]: "thumbs_down"}, {answer["id"]: "thumbs_up"}]


async def test_feedback_that_a_client_posts_back_is_not_stored_as_its_history() -> None:
    settings = dataclasses.replace(SETTINGS, history="client")
    marked = {
        "id": "a",
        "role": "assistant",
        "content": "hi",
        "metadata": {"ambient": {"feedback": "thumbs_up"}, "x": 1},
    }
    asked = [{"id": "u1", "role": "user", "content": "say"}, marked, {"id": "u2", "role": "user", "content": "say hi"}]
    async with demo(settings) as client:
        await client.post("/", json={**run_body(""), "messages": asked})
        messages = (await client.get("/message_snapshot/t")).json()["messages"]
    assert messages[1] == {"id": "a", "role": "assistant", "content": "hi", "metadata": {"x": 1}}


async def test_a_cancelled_question_changes_the_thread() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("approve the deploy"))
        await stop(client)
        cancelled, changed = [event for _, event in (await replay(client))[-2:]]
        status = (await connect(client))[3][1]["value"]["status"]
    assert (cancelled["name"], changed["name"]) == ("ambient:interrupts_cancelled", "ambient:thread")
    assert (changed["value"]["status"], changed["value"]["lastRun"]["status"]) == ("finished", "interrupted")
    assert status == "finished"


@pytest.mark.parametrize("audience", ["open", "safe"])
@pytest.mark.parametrize("protocol", ["1.0", "0.0.59", "0.0.55"])
async def test_without_snapshots_everything_else_is_the_same(protocol: str, audience: Any) -> None:
    async with demo(dataclasses.replace(SETTINGS, audience=audience)) as client:
        for turn, text in enumerate(("weather Paris", "subagent", "think")):
            await client.post("/", json=run_body(text, message=f"u{turn}"))
        whole = await replay(client, protocol=protocol, snapshots="all")
        bare = await replay(client, protocol=protocol, snapshots="0")
    assert bare == [frame for frame in whole if frame[1]["type"] != "MESSAGES_SNAPSHOT"]
    assert len(bare) == len(whole) - 3


async def test_a_post_may_do_without_its_snapshot_too() -> None:
    async with demo() as client:
        bare = frames(await client.post("/?snapshots=0", json=run_body("say hi")))
        whole = await replay(client)
        connected = await connect(client, snapshots="0")
    assert bare == [frame for frame in whole if frame[1]["type"] != "MESSAGES_SNAPSHOT"]
    assert types(connected) == CONNECT, "the client asks for this snapshot by name"


async def test_the_messages_of_a_client_that_replaces_its_history_are_a_snapshot_too() -> None:
    async with demo(dataclasses.replace(SETTINGS, history="client")) as client:
        await client.post("/", json=run_body("say one"))
        await client.post("/", json=run_body("say two", message="u2"))
        whole = await replay(client, snapshots="all")
        bare = await replay(client, snapshots="0")
    assert types(whole).count("MESSAGES_SNAPSHOT") == 3
    assert bare == [frame for frame in whole if frame[1]["type"] != "MESSAGES_SNAPSHOT"]


async def test_one_run_is_streamed_from_its_start_to_its_end() -> None:
    async with demo() as client:
        posted = [await client.post("/", json=run_body(f"say {turn}", message=f"u{turn}")) for turn in range(3)]
        keys = [response.headers["x-ambient-run"] for response in posted]
        found = [frames(await client.get(f"/threads/t/events?run={key}")) for key in keys]
        half = found[1][3][0]
        rest = frames(await client.get(f"/threads/t/events?run={keys[1]}", headers={"Last-Event-ID": str(half)}))
        over = await client.get(f"/threads/t/events?run={keys[1]}", headers={"Last-Event-ID": str(found[1][-1][0])})
    assert found == [frames(response) for response in posted]
    assert [frame for frame in rest if frame[0]] == found[1][4:]
    assert (over.status_code, over.content) == (204, b"")


async def test_an_active_run_is_followed_to_its_end() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("say hi"))
        begun = await hanging(client)
        found: dict[str, Frames] = {}

        async def read() -> None:
            found["run"] = frames(await client.get(f"/threads/t/events?run={begun['run']}"))

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await stop(client)
        whole = await replay(client, after=begun["after"])
    assert found["run"] == whole
    assert whole[-1][1]["outcome"] == {"type": "cancelled"}


async def test_runs_are_listed_newest_first_in_pages() -> None:
    async with demo() as client:
        texts = ("say hi", "crash", "approve it")
        posted = [
            await client.post("/", json=run_body(text, message=text) | {"runId": f"run {text}"}) for text in texts
        ]
        streams = [frames(response) for response in posted]
        whole = (await client.get("/threads/t/runs")).json()
        first = (await client.get("/threads/t/runs?limit=2")).json()
        second = (await client.get("/threads/t/runs", params={"limit": 2, "before": first["next"]})).json()
        thread = (await connect(client))[3][1]["value"]
    runs = whole["runs"][::-1]
    assert whole["next"] is None
    assert (first["runs"] + second["runs"], second["next"]) == (whole["runs"], None)
    assert [(run["run"], run["runId"], run["status"]) for run in runs] == [
        (response.headers["x-ambient-run"], f"run {text}", status)
        for response, text, status in zip(posted, texts, ("finished", "failed", "interrupted"), strict=True)
    ]
    assert [run["last"] for run in runs] == [stream[-1][0] for stream in streams]
    assert [run["traceId"] for run in runs] == [stream[0][1]["metadata"]["traceId"] for stream in streams]
    assert [run["events"] for run in runs] == [seq_of(run["last"]) - seq_of(run["first"]) + 1 for run in runs]
    assert [run["startedAt"] <= run["endedAt"] for run in runs] == [True] * 3
    newest = {name: runs[-1][name] for name in ("run", "runId", "status", "traceId", "startedAt", "endedAt")}
    assert thread["lastRun"] == newest


async def test_an_active_run_is_listed_without_an_end() -> None:
    async with demo() as client:
        begun = await hanging(client)
        [run] = (await client.get("/threads/t/runs")).json()["runs"]
        await stop(client)
    assert (run["run"], run["runId"], run["status"]) == (begun["run"], begun["runId"], "running")
    assert not {"last", "endedAt"} & run.keys()


LARGE_INPUTS: dict[str, Any] = {
    "an image": {
        "messages": [
            {
                "id": "u1",
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "data", "value": "QUJD" * 150_000, "mimeType": "image/png"}}
                ],
            }
        ]
    },
    "many messages": {"messages": [{"id": f"message-{at:030}", "role": "user", "content": "x"} for at in range(9_999)]},
    "a wide state": {"state": {f"key{at}": at for at in range(50_000)}},
    "a long text": {"messages": [{"id": "u1", "role": "user", "content": "word " * 200_000}]},
}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("name", LARGE_INPUTS)
async def test_a_run_with_a_large_input_is_listed(name: str, store: str, tmp_path: Path) -> None:
    """The thread was reported as damaged: its input and RUN_STARTED were longer together than one read."""
    location = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/ledger.db"
    async with demo(dataclasses.replace(SETTINGS, store=location)) as client:
        posted = await client.post("/", json=run_body("say hi") | LARGE_INPUTS[name])
        answer = await client.get("/threads/t/runs")
    assert (posted.status_code, answer.status_code) == (200, 200)
    assert [(run["run"], run["status"]) for run in answer.json()["runs"]] == [
        (posted.headers["x-ambient-run"], "finished")
    ]


async def test_the_runs_of_a_stored_thread_are_found_after_a_restart(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path}/ledger.db")
    async with demo(settings) as client:
        posted = frames(await client.post("/", json=run_body("say hi")))
        before = (await client.get("/threads/t/runs")).json()
        connected = await connect(client)
        [listed] = (await client.get("/thread/list")).json()["threads"]
    async with demo(settings) as client:
        assert (await client.get("/threads/t/runs")).json() == before
        assert await connect(client) == connected
        assert frames(await client.get(f"/threads/t/events?run={before['runs'][0]['run']}")) == posted
    known = connected[3][1]["value"]
    assert {name: known[name] for name in ("title", "archived", "status", "createdAt", "updatedAt")} == {
        name: listed[name] for name in ("title", "archived", "status", "createdAt", "updatedAt")
    }


async def test_a_run_that_is_no_longer_retained_is_gone_and_not_listed() -> None:
    async with demo(dataclasses.replace(SETTINGS, retain=5)) as client:
        posted = [
            await client.post("/", json=run_body("say one two three four", message=f"u{turn}")) for turn in range(4)
        ]
        keys = [response.headers["x-ambient-run"] for response in posted]
        with unless_hung():
            while len((await client.get("/threads/t/runs")).json()["runs"]) == len(keys):
                await client.post("/", json=run_body("say one two three four", message=str(anyio.current_time())))
        listed = [run["run"] for run in (await client.get("/threads/t/runs")).json()["runs"]]
        with unless_hung():
            gone = await client.get(f"/threads/t/events?run={keys[0]}")
        streams = [frames(await client.get(f"/threads/t/events?run={key}")) for key in listed]
    assert error_of(gone) == (410, "run_gone")
    assert keys[0] not in listed
    assert [types(stream)[0] for stream in streams] == ["RUN_STARTED"] * len(listed)


@pytest.mark.parametrize(
    "query",
    [
        "from=beginning",
        "from=",
        "from=snapshot&after={after}",
        "run={run}&after={after}",
        "run={run}&from=snapshot",
        "snapshots=no",
        "run={run}&until=later",
    ],
)
async def test_a_stream_that_begins_in_two_places_or_nowhere_is_refused(query: str) -> None:
    async with demo() as client:
        posted = await client.post("/", json=run_body("say hi"))
        known = {"run": posted.headers["x-ambient-run"], "after": frames(posted)[0][0]}
        refused = await client.get("/threads/t/events?" + query.format(**known))
    assert error_of(refused) == (422, "invalid_input")


async def test_a_run_of_another_thread_is_unknown() -> None:
    async with demo() as client:
        posted = await client.post("/", json=run_body("say hi"))
        await client.post("/", json=run_body("say hi", thread="other"))
        other = await client.get(f"/threads/other/events?run={posted.headers['x-ambient-run']}")
        none = await client.get("/threads/t/events?run=")
    assert (error_of(other), error_of(none)) == ((404, "unknown_run"), (404, "unknown_run"))


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("limit=x", (422, "invalid_input")),
        ("before=5", (400, "invalid_cursor")),
        ("before=aaaaaaaa.1", (409, "stale_cursor")),
    ],
)
async def test_a_page_of_runs_needs_a_cursor_of_this_thread(query: str, refusal: tuple[int, str]) -> None:
    async with demo() as client:
        await client.post("/", json=run_body("say hi"))
        assert error_of(await client.get(f"/threads/t/runs?{query}")) == refusal
