"""Official clients decide: npm `@ag-ui/client` 1.0.0 and 0.0.59 run every demo command against a real server.

One Node process per client runs all scenarios (`clients/oracle.mjs`) and says what the client ended with; the tests compare that with the
server's own snapshots.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ambient_runner.bridges.demo import COMMANDS
from tests.machine_speed import HANG_SECONDS

from .talk import TERMINALS, numbers, split_runs, text_of

if TYPE_CHECKING:
    from .server import Child

CLIENTS = Path(__file__).with_name("clients")
PACKAGES = ("ag-ui-client-1.0", "ag-ui-client-0.0.59")
MODERN = PACKAGES[0]
OLDER = {"ag-ui-client-0.0.57": "", "ag-ui-client-0.0.55": "", "ag-ui-client-0.0.42": "?protocol=0.0.42"}
"""Clients of earlier CopilotKits, and what the address of the server says for them."""
WITHOUT_INTERRUPTS = "ag-ui-client-0.0.42"
"""A client that gets the question of an interrupt and has no way to answer it."""

BACKGROUND = {
    "name": "change_background",
    "description": "Change the background color of the page.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]},
}
UNICODE = "naïve „quotes\" 'single' \\backslash\\ \t tab 🌍👩‍👩‍👧 עברית 中文 \u2028 line"
LINES = "first line\nsecond line\n\nfourth line"

Result = dict[str, Any]

TALKS: dict[str, Result] = {
    "hello": {"turns": [{"say": "hello"}]},
    "help": {"turns": [{"say": "help"}]},
    "count": {"turns": [{"say": "count 50"}]},
    "paced": {"turns": [{"say": "count 20 every 5ms"}]},
    "think": {"turns": [{"say": "think"}]},
    "weather": {"turns": [{"say": "weather Lisbon"}]},
    "color": {
        "tools": [BACKGROUND],
        "turns": [{"say": "color red"}, {"answer": {"change_background": '{"changed": true}'}}],
    },
    "approved": {
        "turns": [{"say": "approve the deploy"}, {"resume": "resolved", "payload": {"approved": True}}],
    },
    "declined": {"turns": [{"say": "approve the deploy"}, {"resume": "cancelled"}]},
    "state": {"turns": [{"say": "state"}]},
    "say": {"turns": [{"say": f"say {UNICODE}"}]},
    "lines": {"turns": [{"say": f"say {LINES}"}]},
    "split": {"turns": [{"say": f"split {UNICODE}"}]},
    "two": {"turns": [{"say": "two"}]},
    "steps": {"turns": [{"say": "steps"}]},
    "subagent": {"turns": [{"say": "subagent"}]},
    "crash": {"turns": [{"say": "crash"}]},
    "hang": {"turns": [{"say": "hang", "stop": True}]},
    "three turns": {"turns": [{"say": "count 5"}, {"say": "weather Porto"}, {"say": "think"}]},
    "after a crash": {"turns": [{"say": "crash"}, {"say": "hello"}, {"say": "say still here"}]},
    "after a stop": {"turns": [{"say": "hang", "stop": True}, {"say": "count 3"}]},
    "everything once": {
        "turns": [
            {"say": text} for text in ("think", "two", "state", "steps", "subagent", "crash", f"split {UNICODE}")
        ],
    },
}
REPLAYS: dict[str, Result] = {
    "replay three turns": {"replay": "three turns", "resume": True},
    "replay everything": {"replay": "everything once", "resume": True},
    "replay color": {"replay": "color"},
    "replay approved": {"replay": "approved"},
    "replay hang": {"replay": "hang", "resume": True},
}


@pytest.fixture(scope="module", params=PACKAGES)
def client(request: pytest.FixtureRequest) -> str:
    return installed(request.param)


def installed(package: str) -> str:
    """Return the client's package, or skip with what to install."""
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: the official AG-UI clients cannot run")
    if not (CLIENTS / "node_modules" / package).is_dir():
        pytest.skip("the official clients are not installed: run `npm install` in tests/e2e/clients")
    return package


@pytest.fixture(scope="module")
def results(client: str, server: Child) -> dict[str, Result]:
    """What this client made of every scenario."""
    return run_scenarios(client, server, TALKS, REPLAYS)


def run_scenarios(
    client: str, server: Child, talks: dict[str, Result], replays: dict[str, Result], query: str = ""
) -> dict[str, Result]:
    prefix = f"{client}-{uuid4().hex[:8]}"
    scenarios = [{"name": name, "thread": f"{prefix} {name}", **scenario} for name, scenario in talks.items()]
    scenarios += [{"name": name, **job, "replay": f"{prefix} {job['replay']}"} for name, job in replays.items()]
    done = subprocess.run(
        ["node", str(CLIENTS / "oracle.mjs"), client],
        input=json.dumps({"url": server.url, "query": query, "scenarios": scenarios}),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        cwd=CLIENTS,
    )
    assert done.returncode == 0, f"{done.stderr}\n{server.output[-3000:]}"
    return json.loads(done.stdout)["results"]


def assert_resolved_with_one_terminal(turn: Result) -> None:
    assert (turn["resolved"], turn["error"]) == (True, None)
    types = [event["type"] for event in turn["events"]]
    assert [kind for kind in types if kind in TERMINALS] == types[-1:]
    assert types[0] == "RUN_STARTED"


def readable(messages: list[Result], client: str) -> list[Result]:
    """Return the server's messages as this client gets them: one that does not declare its version gets no subagents."""
    if client == MODERN:
        return messages
    return [{key: value for key, value in message.items() if key != "subagentRunId"} for message in messages]


@pytest.mark.parametrize("package", OLDER)
def test_older_clients_accept_every_run(package: str, server: Child, long: bool) -> None:
    """They abort at the first event they cannot validate: SUBAGENT_* for all of them, REASONING_* for 0.0.42."""
    if not long:
        pytest.skip("older clients decide in the long form: `make test-all`")
    talks = TALKS if package != WITHOUT_INTERRUPTS else {name: unanswered(talk) for name, talk in TALKS.items()}
    results = run_scenarios(installed(package), server, talks, {}, OLDER[package])
    assert list(results) == list(talks)
    for name, result in results.items():
        for turn in result["turns"]:
            assert (name, turn["resolved"], turn["error"]) == (name, True, None)
            assert_resolved_with_one_terminal(turn)
    assert text_of(results["count"]["turns"][0]["events"]) == numbers(50)
    (subagent,) = results["subagent"]["turns"]
    assert "STEP_STARTED" in [event["type"] for event in subagent["events"]]


def unanswered(talk: Result) -> Result:
    """Return the conversation up to the answer to an interrupt."""
    return {**talk, "turns": list(takewhile(lambda turn: "resume" not in turn, talk["turns"]))}


def test_every_command_of_the_demo_agent_is_tried() -> None:
    tried = {turn["say"].split()[0] for talk in TALKS.values() for turn in talk["turns"] if "say" in turn}
    assert set(COMMANDS) <= tried


@pytest.mark.parametrize("name", TALKS)
def test_every_run_resolves_with_exactly_one_terminal_event(results: dict[str, Result], name: str) -> None:
    turns = results[name]["turns"]
    assert len(turns) == len(TALKS[name]["turns"])
    for turn in turns:
        assert_resolved_with_one_terminal(turn)


@pytest.mark.parametrize("name", TALKS)
def test_the_client_ends_with_the_messages_and_state_the_server_has(
    results: dict[str, Result], client: str, name: str
) -> None:
    for turn in results[name]["turns"]:
        snapshot, state = turn["messageSnapshot"], turn["stateSnapshot"]
        assert (snapshot["status"], snapshot["body"]["type"]) == (200, "MESSAGES_SNAPSHOT")
        assert turn["messages"] == readable(snapshot["body"]["messages"], client)
        assert (state["status"], state["body"]["type"]) == (200, "STATE_SNAPSHOT")
        assert (turn["state"] or {}) == (state["body"]["snapshot"] or {})


@pytest.mark.parametrize("name", TALKS)
def test_what_was_streamed_is_what_the_snapshot_says(results: dict[str, Result], name: str) -> None:
    """The snapshot may put nothing right: ids, roles, order and text were already so when it came."""
    for turn in results[name]["turns"]:
        assert [before == turn["messages"] for before in turn["beforeSnapshots"]] == [True]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("count", numbers(50)),
        ("paced", numbers(20)),
        ("say", UNICODE),
        ("lines", LINES),
        ("split", UNICODE),
    ],
)
def test_text_arrives_as_the_agent_said_it(results: dict[str, Result], name: str, text: str) -> None:
    (turn,) = results[name]["turns"]
    said = [message["content"] for message in turn["messages"] if message["role"] == "assistant"]
    assert (said, text_of(turn["events"])) == ([text], text)


def test_reasoning_comes_before_the_text(results: dict[str, Result]) -> None:
    (turn,) = results["think"]["turns"]
    assert [message["role"] for message in turn["messages"]] == ["user", "reasoning", "assistant"]


def test_a_backend_tool_has_its_call_its_result_and_an_answer(results: dict[str, Result]) -> None:
    (turn,) = results["weather"]["turns"]
    user, calling, result, answer = turn["messages"]
    (call,) = calling["toolCalls"]
    assert [message["role"] for message in turn["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert result["toolCallId"] == call["id"]
    assert "Lisbon" in call["function"]["arguments"]
    assert "Lisbon" in answer["content"]
    assert user["content"] == "weather Lisbon"


def test_parallel_tool_calls_belong_to_one_message(results: dict[str, Result]) -> None:
    (turn,) = results["two"]["turns"]
    calls = [message["toolCalls"] for message in turn["messages"] if message.get("toolCalls")]
    tools = [message["toolCallId"] for message in turn["messages"] if message["role"] == "tool"]
    assert [len(group) for group in calls] == [2]
    assert sorted(tools) == sorted(call["id"] for call in calls[0])


def test_a_frontend_tool_is_called_by_name_and_answered_in_the_next_run(
    results: dict[str, Result], client: str
) -> None:
    asked, answered = results["color"]["turns"]
    call = next(call for message in asked["messages"] for call in message.get("toolCalls", []))
    outcome = asked["events"][-1].get("outcome")
    assert call["function"]["name"] == "change_background"
    assert "red" in call["function"]["arguments"]
    assert not [event for event in asked["events"] if event["type"] == "TOOL_CALL_RESULT"]
    if client == MODERN:
        assert outcome == {"type": "success", "pendingToolCallIds": [call["id"]]}
    else:
        assert outcome in (None, {"type": "success"})
    answer = next(message for message in answered["messages"] if message["role"] == "tool")
    assert (answer["toolCallId"], answer["content"]) == (call["id"], '{"changed": true}')
    assert answered["messages"][-1]["role"] == "assistant"


@pytest.mark.parametrize("name", ["approved", "declined"])
def test_an_interrupt_is_raised_and_its_answer_used(results: dict[str, Result], name: str) -> None:
    asked, answered = results[name]["turns"]
    (interrupt,) = asked["interrupts"]
    assert asked["events"][-1]["outcome"]["type"] == "interrupt"
    assert interrupt["responseSchema"]
    assert answered["interrupts"] == []
    assert text_of(answered["events"]) != ""


def test_the_two_decisions_are_distinguished(results: dict[str, Result]) -> None:
    said = {text_of(results[name]["turns"][1]["events"]) for name in ("approved", "declined")}
    assert len(said) == 2


def test_a_stop_keeps_the_streamed_text(results: dict[str, Result], client: str) -> None:
    (turn,) = results["hang"]["turns"]
    last = turn["events"][-1]
    if client == MODERN:
        assert (last["type"], last["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
    else:
        assert (last["type"], last["code"]) == ("RUN_ERROR", "abort")
    assert turn["messages"][-1]["content"] == text_of(turn["events"]) != ""


def test_a_crash_is_an_error_with_a_general_message_and_keeps_the_streamed_text(results: dict[str, Result]) -> None:
    (turn,) = results["crash"]["turns"]
    last = turn["events"][-1]
    assert (last["type"], last["code"]) == ("RUN_ERROR", "agent_error")
    assert "a detail for the log only" not in json.dumps(turn)
    assert turn["messages"][-1]["content"] == text_of(turn["events"]) != ""


def test_state_snapshots_and_deltas_reach_the_client(results: dict[str, Result]) -> None:
    (turn,) = results["state"]["turns"]
    types = {event["type"] for event in turn["events"]}
    assert {"STATE_SNAPSHOT", "STATE_DELTA"} <= types
    assert turn["state"]


@pytest.mark.parametrize("name", REPLAYS)
def test_a_fresh_client_that_replays_the_thread_ends_with_the_same(
    results: dict[str, Result], client: str, name: str
) -> None:
    replayed = results[name]
    whole, live = replayed["whole"], results[REPLAYS[name]["replay"]]["turns"]
    assert (whole["resolved"], whole["error"]) == (True, None)
    assert len(split_runs(whole["events"])) == len(live)
    snapshot = readable(replayed["messageSnapshot"]["body"]["messages"], client)
    assert whole["messages"] == snapshot == live[-1]["messages"]
    assert (whole["state"] or {}) == (replayed["stateSnapshot"]["body"]["snapshot"] or {})


@pytest.mark.parametrize("name", [name for name, job in REPLAYS.items() if job.get("resume")])
def test_a_client_cut_at_any_event_and_resumed_there_has_the_right_text(results: dict[str, Result], name: str) -> None:
    """Right before the closing snapshot comes to its help, and after it: at every cursor the thread has."""
    whole, resumes = results[name]["whole"], results[name]["resumes"]
    inside = {resume["cutAfter"] for resume in resumes}
    assert {"TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_START"} <= inside
    for resume in resumes:
        first, second, cut = resume["first"], resume["second"], (resume["cutAfter"], resume["cursor"])
        assert (cut, first["error"], second["error"]) == (cut, None, None)
        assert (cut, second["messages"], second["state"]) == (cut, whole["messages"], whole["state"])
        assert (cut, (first["beforeSnapshots"] + second["beforeSnapshots"])[-1:]) == (cut, whole["beforeSnapshots"])


def test_the_cuts_went_through_a_tool_call_and_a_thought(results: dict[str, Result]) -> None:
    cuts = {resume["cutAfter"] for name in REPLAYS for resume in results[name]["resumes"]}
    assert {"TOOL_CALL_START", "TOOL_CALL_ARGS", "REASONING_MESSAGE_CONTENT", "STATE_DELTA"} <= cuts
