"""CopilotKit's own client decides: `@copilotkit/core` without its components, on the routes below `/copilotkit` and on the single route.

One Node process per transport plays all scenarios (`clients/copilotkit/copilotkit.mjs`) against a server of its own, and says what a page
saw; the tests compare that with what the server has.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.machine_speed import HANG_SECONDS, scaled

from .server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .server import Child

CLIENT = Path(__file__).with_name("clients") / "copilotkit"
TRANSPORTS = ("rest", "single")
ENDPOINTS = {"list": True, "inspect": True, "mutations": True, "realtimeMetadata": False}
STOP_SECONDS = 3.0
"""A stop ends the run, and the page's stream, within this time on a quiet machine."""

Result = dict[str, Any]


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: CopilotKit's client cannot run")
    if not (CLIENT / "node_modules" / "@copilotkit" / "core").is_dir():
        pytest.skip("CopilotKit's client is not installed: run `npm install` in tests/e2e/clients/copilotkit")
    return request.param


@pytest.fixture(scope="module")
def own_server(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with serving(tmp_path_factory.mktemp(f"copilotkit-{transport}") / "ambient.db") as child:
        yield child


@pytest.fixture(scope="module")
def results(transport: str, own_server: Child) -> dict[str, Result]:
    """What the pages of every scenario saw."""
    done = subprocess.run(
        ["node", "copilotkit.mjs", own_server.url, transport, transport],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        cwd=CLIENT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def stored_messages(server: Child, thread: str) -> list[Result]:
    """The thread's messages, with the members that a page shows."""
    snapshot = httpx.get(f"{server.url}/message_snapshot/{thread}").json()
    members = ("id", "role", "content", "toolCalls", "toolCallId")
    return [{name: message[name] for name in members if name in message} for message in snapshot["messages"]]


def texts(page: Result) -> list[str]:
    return [message.get("content", "") for message in page["messages"]]


def test_the_runtime_is_found_with_its_agents_and_threads(results: dict[str, Result]) -> None:
    assert results["info"] == {
        "status": "connected",
        "version": "1.75.0",
        "agents": ["default", "demo"],
        "threadEndpoints": ENDPOINTS,
        "suggestions": True,
        "mode": "sse",
    }


def test_a_conversation_with_backend_and_frontend_tools_is_the_stored_one(
    results: dict[str, Result], own_server: Child, transport: str
) -> None:
    page, calls = results["conversation"]["page"], results["conversation"]["calls"]
    assert page["messages"] == stored_messages(own_server, f"{transport}-conversation")
    assert [message["role"] for message in page["messages"]] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant"),
        *("user", "reasoning", "assistant"),
        *("user", "assistant"),
        *("user", "assistant", "assistant"),
    ]
    assert calls == [{"background": "red"}]
    assert page["errors"] == []


def test_reasoning_state_and_subagents_reach_the_page(results: dict[str, Result]) -> None:
    conversation = results["conversation"]
    assert conversation["reasoning"].startswith("The user wants to see me think.")
    plan = [{"task": task, "done": True} for task in ("mix", "bake", "serve")]
    assert conversation["page"]["state"] == {"plan": plan}
    assert conversation["subagents"] == ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"]


def test_a_reload_shows_the_same_messages_under_the_same_ids_and_a_second_connect_doubles_nothing(
    results: dict[str, Result], transport: str
) -> None:
    conversation = results["conversation"]
    assert conversation["reloaded"] == conversation["page"]
    assert conversation["again"] == conversation["page"]
    thread = conversation["thread"]
    assert (thread["threadId"], thread["title"], thread["status"]) == (
        f"{transport}-conversation",
        "weather Lisbon",
        "finished",
    )


def test_an_interrupt_is_there_after_a_reload_and_is_answered_under_the_run_id_of_its_own_run(
    results: dict[str, Result],
) -> None:
    interrupt = results["interrupt"]
    assert [asked["message"] for asked in interrupt["asked"]] == ["May I the deploy?"]
    assert interrupt["restored"] == interrupt["asked"]
    assert interrupt["sameRunId"] is True
    assert texts(interrupt["answered"])[-1] == "Approved: I may the deploy."
    assert interrupt["after"] == {**interrupt["answered"], "interrupts": []}
    assert interrupt["answered"]["errors"] == []


def test_a_stop_ends_the_run_of_the_page_in_time_and_without_an_error(results: dict[str, Result]) -> None:
    stop = results["stop"]
    assert stop["seconds"] < scaled(STOP_SECONDS)
    assert stop["isRunning"] is False
    assert texts(stop["page"]) == ["hang", "hanging…", "say still here", "still here"]
    assert stop["page"]["errors"] == []


def test_a_page_that_joined_a_run_stops_it_without_its_id(results: dict[str, Result]) -> None:
    stop = results["stopAfterConnect"]
    assert texts(stop["page"]) == ["hang", "hanging…"]
    assert stop["other"] == stop["page"]
    assert stop["page"]["errors"] == []


def test_a_page_that_loads_during_a_run_joins_it_and_ends_with_the_same_messages(results: dict[str, Result]) -> None:
    page, other = results["join"]["page"], results["join"]["other"]
    assert texts(page)[-1] == "".join(f"{number} " for number in range(1, 31))
    assert other == page
    assert page["errors"] == []


def test_a_busy_thread_is_refused_and_the_page_stays_connected(results: dict[str, Result]) -> None:
    busy = results["busy"]
    assert [error["code"] for error in busy["errors"]] == ["agent_run_failed_event", "agent_run_failed"]
    assert all(error["message"].startswith("HTTP 409: ") for error in busy["errors"])
    assert busy["status"] == "connected"
    assert busy["page"]["errors"] == []


def test_a_queued_run_has_its_headers_at_once_and_can_be_stopped_before_it_begins(
    results: dict[str, Result], own_server: Child, transport: str
) -> None:
    queued = results["queued"]
    assert queued["status"] == 200
    assert "my turn" in texts(queued["other"])
    assert texts(queued["left"]) == ["say never"]
    assert (queued["other"]["errors"], queued["left"]["errors"]) == ([], [])
    stored = [message["content"] for message in stored_messages(own_server, f"{transport}-queued")]
    assert stored == ["hang", "hanging…", "say my turn", "my turn"]


def test_a_page_on_an_unknown_thread_is_empty(results: dict[str, Result]) -> None:
    assert results["unknown"] == {"messages": [], "state": {}, "errors": []}


def test_a_crash_is_reported_once_and_not_again_after_a_reload(results: dict[str, Result]) -> None:
    crash = results["crash"]
    assert [error["code"] for error in crash["page"]["errors"]] == ["agent_run_error_event"]
    assert crash["reloaded"] == {**crash["page"], "errors": []}


def test_suggestions_come_without_a_run_and_without_a_thread(results: dict[str, Result], transport: str) -> None:
    suggestions = results["suggestions"]
    commands = ("weather Lisbon", "approve the deploy", "state", "help")
    assert suggestions["suggested"] == [{"title": command, "message": command} for command in commands]
    assert suggestions["asked"] == ["agent/run" if transport == "single" else "agent/default/suggest"]
    assert suggestions["errors"] == []
    made = {row["id"].removeprefix(f"{transport}-") for row in results["threads"]["all"]}
    assert made == {
        *("conversation", "interrupt", "stop", "stopAfterConnect", "join"),
        *("busy", "queued", "crash", "suggestions"),
    }


def test_the_list_of_threads_comes_in_pages(results: dict[str, Result]) -> None:
    threads = results["threads"]
    first, more = threads["pages"]
    assert (first, more) == (threads["all"][:2], threads["all"][:4])
    assert {row["agentId"] for row in threads["all"]} == {"default"}
    assert all(created <= updated and updated.endswith("Z") for created, updated in threads["dates"])


def test_threads_are_renamed_archived_unarchived_and_deleted(results: dict[str, Result], transport: str) -> None:
    threads = results["threads"]
    busy, crash, join = (f"{transport}-{name}" for name in ("busy", "crash", "join"))
    everything = {row["id"] for row in threads["all"]}
    assert {row["id"] for row in threads["archived"]} == everything - {crash, join}
    with_archived = {row["id"]: row for row in threads["withArchived"]}
    assert with_archived.keys() == everything
    assert {name for name, row in with_archived.items() if row["archived"]} == {crash, join}
    assert with_archived[busy]["name"] == "Tea & cakes"
    end = {row["id"]: row["archived"] for row in threads["end"]}
    assert end == dict.fromkeys(everything - {crash}, False)
    assert "404" in threads["failed"]


def test_the_inspector_gets_messages_events_and_state(
    results: dict[str, Result], own_server: Child, transport: str
) -> None:
    inspected, page = results["inspect"], results["conversation"]["page"]
    assert inspected["state"] == page["state"]
    rows = [{key: value for key, value in row.items() if key != "toolCalls"} for row in inspected["messages"]]
    assert rows == [{key: value for key, value in row.items() if key != "toolCalls"} for row in page["messages"]]
    calls = [call for row in inspected["messages"] for call in row.get("toolCalls", [])]
    assert [(call["name"], call["args"]) for call in calls] == [
        ("get_weather", '{"city": "Lisbon"}'),
        ("change_background", '{"background": "red"}'),
    ]
    stream = f"{own_server.url}/threads/{transport}-conversation/events?until=idle&protocol=0.0.59&snapshots=0"
    lines = httpx.get(stream, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert inspected["events"] == [json.loads(line) for line in lines]


def test_feedback_is_stored_once_and_is_there_after_a_reload(results: dict[str, Result]) -> None:
    feedback = results["feedback"]
    assert feedback["answers"] == [
        {"id": feedback["id"], "duplicate": False},
        {"id": feedback["id"], "duplicate": True},
    ]
    assert feedback["metadata"] == {"ambient": {"feedback": "thumbs_up"}}
    assert feedback["errors"] == []
