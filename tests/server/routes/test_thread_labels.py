"""Titles, archived threads and the status in the list of threads: `PATCH /thread/{id}` and `GET /thread/list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import pytest

from ambient_runner import Actor, Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, demo, error_of, frames, run_body

if TYPE_CHECKING:
    import httpx
    from fastapi import Request

TOOLS: list[dict[str, Any]] = [{"name": "change_background", "description": "", "parameters": {}}]


async def listed(client: httpx.AsyncClient, **query: Any) -> list[str]:
    return [thread["threadId"] for thread in (await client.get("/thread/list", params=query)).json()["threads"]]


async def row(client: httpx.AsyncClient, name: str = "t") -> dict[str, Any]:
    threads = (await client.get("/thread/list", params={"archived": "with"})).json()["threads"]
    return next(thread for thread in threads if thread["threadId"] == name)


async def status(client: httpx.AsyncClient) -> str:
    return (await row(client))["status"]


async def say(client: httpx.AsyncClient, text: str, name: str = "t", message: str = "u1") -> None:
    assert (await client.post("/", json=run_body(text, thread=name, message=message))).status_code == 200


async def rename(client: httpx.AsyncClient, title: str, name: str = "t") -> None:
    assert (await client.patch(f"/thread/{name}", json={"title": title})).status_code == 200


class TestLabels:
    async def test_a_patch_changes_what_it_names_and_answers_with_the_thread(self) -> None:
        async with demo() as client:
            await say(client, "say hi")
            renamed = await client.patch("/thread/t", json={"title": "  Rome 🏛  "})
            archived = await client.patch("/thread/t", json={"archived": True})
            shown = await row(client)
            both = await client.patch("/thread/t", json={"title": "Oslo", "archived": False})
        answers = [answer.json() for answer in (renamed, archived, both)]
        assert [(thread["title"], thread["archived"]) for thread in answers] == [
            ("Rome 🏛", False),
            ("Rome 🏛", True),
            ("Oslo", False),
        ]
        assert answers[1] == shown
        assert shown == {
            "threadId": "t",
            "agent": "demo",
            "title": "Rome 🏛",
            "archived": True,
            "status": "finished",
            "createdAt": shown["createdAt"],
            "updatedAt": shown["updatedAt"],
            "running": False,
            "cursor": shown["cursor"],
        }

    async def test_the_title_begins_as_the_first_user_text_and_stays_as_chosen(self) -> None:
        titles: list[str] = []
        async with demo() as client:
            await say(client, "say\nhello \t there " + "x" * 100)
            titles.append((await row(client))["title"])
            await say(client, "say more", message="u2")
            titles.append((await row(client))["title"])
            await rename(client, "Rome")
            await say(client, "say even more", message="u3")
            titles.append((await row(client))["title"])
        assert titles == ["say hello there " + "x" * 64] * 2 + ["Rome"]

    @pytest.mark.parametrize(
        ("body", "member"),
        [
            ({"title": ""}, "title"),
            ({"title": " \u2003 "}, "title"),
            ({"title": "x" * 201}, "title"),
            ({"title": "a\nb"}, "title"),
            ({"title": "a\tb"}, "title"),
            ({"title": "a\x00b"}, "title"),
            ({"title": "a\x7fb"}, "title"),
            ({"title": "a\x85b"}, "title"),
            ({"title": "a\u2028b"}, "title"),
            ({"title": None}, "title"),
            ({"title": 5}, "title"),
            ({"title": ["x"]}, "title"),
            ({"archived": "yes"}, "archived"),
            ({"archived": 1}, "archived"),
            ({"archived": None}, "archived"),
            ({"title": "Rome", "archived": 0}, "archived"),
            ({"title": "Rome", "status": "finished"}, "status"),
            ({"Title": "Rome"}, "Title"),
            ({}, "title"),
        ],
        ids=repr,
    )
    async def test_a_patch_that_does_not_fit_names_the_member_and_changes_nothing(
        self, body: dict[str, Any], member: str
    ) -> None:
        async with demo() as client:
            await say(client, "say hi")
            before = await row(client)
            refused = await client.patch("/thread/t", json=body)
            after = await row(client)
        assert error_of(refused) == (422, "invalid_input")
        assert f"`{member}`" in refused.json()["error"]["message"]
        assert after == before

    @pytest.mark.parametrize(
        ("body", "headers", "refusal"),
        [
            (b"[]", {"Content-Type": "application/json"}, (422, "invalid_input")),
            (b'"Rome"', {"Content-Type": "application/json"}, (422, "invalid_input")),
            (b"{", {"Content-Type": "application/json"}, (422, "invalid_input")),
            (b'{"title": "a", "title": "b"}', {"Content-Type": "application/json"}, (422, "invalid_input")),
            (b'{"title": "\\ud83c"}', {"Content-Type": "application/json"}, (422, "invalid_input")),
            (b'{"title": "a"}', {"Content-Type": "text/plain"}, (415, "wrong_type")),
            (b'{"title": "' + b"a" * 100_000 + b'"}', {"Content-Type": "application/json"}, (413, "too_large")),
        ],
        ids=["list", "text", "cut off", "twice", "half a character", "no JSON", "large"],
    )
    async def test_a_body_that_is_no_object_is_refused(
        self, body: bytes, headers: dict[str, str], refusal: tuple[int, str]
    ) -> None:
        async with demo() as client:
            await say(client, "say hi")
            assert error_of(await client.patch("/thread/t", content=body, headers=headers)) == refusal

    async def test_two_hundred_characters_of_any_kind_are_a_title(self) -> None:
        title = "👩‍🚀" * 66 + "ab"
        async with demo() as client:
            await say(client, "say hi")
            answer = await client.patch("/thread/t", json={"title": title})
        assert (len(title), answer.json()["title"]) == (200, title)

    async def test_another_persons_thread_is_unknown_in_the_same_words(self) -> None:
        def authorize(request: Request) -> Actor:
            return Actor(owner=request.headers["x-user"])

        async with client_of(create_app(SETTINGS, {"demo": DemoBridge()}, authorize=authorize)) as client:
            ann, bob = {"X-User": "ann"}, {"X-User": "bob"}
            await client.post("/", json=run_body("say hi"), headers=ann)
            foreign = await client.patch("/thread/t", json={"title": "Mine"}, headers=bob)
            unknown = await client.patch("/thread/none", json={"title": "Mine"}, headers=bob)
            own = (await client.get("/thread/list", headers=ann)).json()["threads"][0]
            changes = (await client.get("/thread/list", headers=bob)).json()
        assert error_of(foreign) == (404, "unknown_thread")
        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content)
        assert own["title"] == "say hi"
        assert changes["threads"] == []

    async def test_a_secret_in_a_title_is_redacted_also_in_the_first_one(self) -> None:
        settings = Settings(store="memory://", history="server", secrets=("hunter2-hunter2",))
        async with client_of(create_app(settings, {"demo": DemoBridge()})) as client:
            await say(client, "say hunter2-hunter2 and more")
            first = (await row(client))["title"]
            await rename(client, "it is hunter2-hunter2")
            renamed = (await row(client))["title"]
            found = await listed(client, search="hunter2")
            events = await client.get("/threads/t/events?until=idle")
        assert (first, renamed) == ("say [redacted] and more", "it is [redacted]")
        assert found == []
        assert "hunter2" not in events.text

    async def test_a_thread_can_be_renamed_while_it_runs(self) -> None:
        during: dict[str, Any] = {}
        async with demo() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(say, client, "hang")
            with unless_hung():
                while (answer := await client.patch("/thread/t", json={"title": "Rome"})).status_code != 200:
                    await anyio.lowlevel.checkpoint()
            during.update(answer.json())
            await client.post("/interrupt", json={"threadId": "t"})
        assert (during["title"], during["status"], during["running"]) == ("Rome", "running", True)


class TestStatus:
    async def test_the_status_is_how_the_last_run_ended(self) -> None:
        seen: list[str] = []
        async with demo() as client:
            for number, text in enumerate(("say hi", "crash", "say hi")):
                await say(client, text, message=f"u{number}")
                seen.append(await status(client))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(say, client, "hang", "t", "u9")
                with unless_hung():
                    while (await client.post("/interrupt", json={"threadId": "t"})).status_code != 200:
                        await anyio.lowlevel.checkpoint()
            seen.append(await status(client))
        assert seen == ["finished", "failed", "finished", "stopped"]

    async def test_a_thread_waits_until_its_interrupt_is_answered(self) -> None:
        async with demo() as client:
            asked = await client.post("/", json=run_body("approve it"))
            waiting = await status(client)
            interrupt = frames(asked)[-1][1]["outcome"]["interrupts"][0]["id"]
            answer = {"interruptId": interrupt, "status": "resolved", "payload": {"approved": True}}
            await client.post("/", json={**run_body("x"), "messages": [], "resume": [answer]})
            answered = await status(client)
        assert (waiting, answered) == ("waiting", "finished")

    async def test_a_cancelled_interrupt_is_not_waited_for(self) -> None:
        async with demo() as client:
            await say(client, "approve it")
            page = (await client.get("/thread/list")).json()
            await client.post("/interrupt", json={"threadId": "t"})
            changed = (await client.get("/thread/list", params={"changed_after": page["cursor"]})).json()
        assert [thread["status"] for thread in page["threads"]] == ["waiting"]
        assert [thread["status"] for thread in changed["threads"]] == ["finished"]

    async def test_a_thread_waits_until_its_frontend_calls_have_results(self) -> None:
        async with demo() as client:
            asked = await client.post("/", json=run_body("color red", tools=TOOLS))
            waiting = await status(client)
            call = frames(asked)[-1][1]["outcome"]["pendingToolCallIds"][0]
            result = {"id": "r1", "role": "tool", "toolCallId": call, "content": "done"}
            body = run_body("x", tools=TOOLS)
            await client.post("/", json={**body, "messages": [*body["messages"], result]})
            answered = await status(client)
        assert (waiting, answered) == ("waiting", "finished")

    async def test_the_list_and_the_stream_agree(self) -> None:
        commands = ("say hi", "approve it", "crash", "color red")
        async with demo() as client:
            for number, text in enumerate(commands):
                await client.post("/", json=run_body(text, thread=f"t{number}", tools=TOOLS))
                await rename(client, f"Title {number}", f"t{number}")
            rows = {name: await row(client, name) for name in (f"t{number}" for number in range(len(commands)))}
            streamed: dict[str, Any] = {}
            for name in rows:
                events = frames(await client.get(f"/threads/{name}/events?until=idle&from=snapshot"))
                streamed[name] = next(event["value"] for _, event in events if event.get("name") == "ambient:thread")
        members = ("threadId", "agent", "title", "archived", "status", "createdAt", "updatedAt")
        assert [{member: thread[member] for member in members} for thread in streamed.values()] == [
            {member: thread[member] for member in members} for thread in rows.values()
        ]
        assert [thread["status"] for thread in rows.values()] == ["finished", "waiting", "failed", "waiting"]


class TestList:
    async def test_filters_and_search_select_threads(self) -> None:
        async with demo() as client:
            for name, text in (("a", "say 100% sure"), ("b", "crash"), ("c", "approve Ärger"), ("d", "say a_b")):
                await say(client, text, name)
            await client.post("/agents/other", json=run_body("say hi", thread="e"))
            await client.patch("/thread/d", json={"archived": True})
            assert await listed(client) == ["e", "c", "b", "a"]
            assert await listed(client, archived="only") == ["d"]
            assert await listed(client, archived="with") == ["d", "e", "c", "b", "a"]
            assert await listed(client, agent="other") == ["e"]
            assert await listed(client, agent=["other", "demo"], status="finished") == ["e", "a"]
            assert await listed(client, status=["failed", "waiting"]) == ["c", "b"]
            assert await listed(client, search="%") == ["a"]
            assert await listed(client, search="ÄRGER") == ["c"]
            assert await listed(client, search="_") == []
            assert await listed(client, search="_", archived="with") == ["d"]
            assert await listed(client, agent="", search="", status="") == ["e", "c", "b", "a"]

    async def test_pages_of_a_search_lose_none(self) -> None:
        async with demo() as client:
            for number in range(5):
                await say(client, "say odd" if number % 2 else "say even", f"t{number}")
            first = (await client.get("/thread/list", params={"search": "EVEN", "limit": 2})).json()
            query = {"search": "EVEN", "limit": 2, "before": first["next"]}
            second = (await client.get("/thread/list", params=query)).json()
        assert [thread["threadId"] for thread in first["threads"]] == ["t4", "t2"]
        assert [thread["threadId"] for thread in second["threads"]] == ["t0"]
        assert (second["next"], second["cursor"]) == (None, None)

    async def test_a_page_is_kept_fresh_with_its_cursor(self) -> None:
        async with demo() as client:
            empty = (await client.get("/thread/list")).json()
            await say(client, "say hi", "a")
            await say(client, "say hi", "b")
            first = (await client.get("/thread/list", params={"changed_after": empty["cursor"]})).json()
            await rename(client, "Rome", "a")
            await client.delete("/thread/b")
            second = (await client.get("/thread/list", params={"changed_after": first["cursor"]})).json()
            third = (await client.get("/thread/list", params={"changed_after": second["cursor"]})).json()
            rows = [await row(client, "a")]
        assert (empty["threads"], empty["next"]) == ([], None)
        assert [thread["threadId"] for thread in first["threads"]] == ["a", "b"]
        assert second == {"threads": rows, "erased": ["b"], "next": None, "cursor": second["cursor"]}
        assert third == {"threads": [], "erased": [], "next": None, "cursor": second["cursor"]}

    @pytest.mark.parametrize("cursor", ["", "x", "5", "1767225600000", "0123456789ab.5", "0123456789ab.", "%"])
    @pytest.mark.parametrize("name", ["before", "changed_after"])
    async def test_a_cursor_of_another_list_is_refused(self, name: str, cursor: str) -> None:
        async with demo() as client:
            await say(client, "say hi")
            assert error_of(await client.get("/thread/list", params={name: cursor})) == (400, "invalid_cursor")

    @pytest.mark.parametrize(
        "query",
        [
            {"status": "done"},
            {"status": ["running", "RUNNING"]},
            {"archived": "yes"},
            {"archived": ""},
            *({"changed_after": "{cursor}", name: "x"} for name in ("before", "agent", "search")),
            {"changed_after": "{cursor}", "status": "running"},
            {"changed_after": "{cursor}", "archived": "with"},
        ],
        ids=repr,
    )
    async def test_a_query_that_does_not_fit_is_refused(self, query: dict[str, Any]) -> None:
        async with demo() as client:
            cursor = (await client.get("/thread/list")).json()["cursor"]
            filled = {name: cursor if value == "{cursor}" else value for name, value in query.items()}
            assert error_of(await client.get("/thread/list", params=filled)) == (422, "invalid_input")
