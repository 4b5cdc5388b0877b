"""Recordings: what they consist of, and how a live client is answered with one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.bridges.acp.recording import PlannedMessage, Playback, RecordedMessage, parse_recording
from ambient_runner.errors import ConfigError

Json = dict[str, Any]


def client(message: Json, time: float = 0.0) -> RecordedMessage:
    return RecordedMessage(time, "client", message)


def agent(message: Any, time: float = 0.0) -> RecordedMessage:
    return RecordedMessage(time, "agent", message)


def request(request_id: Any, method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def answer(request_id: Any, **result: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def update(text: str, session: str = "s1") -> Json:
    return notification("session/update", sessionId=session, update={"text": text})


def chosen(request_id: Any, option: str) -> Json:
    return answer(request_id, outcome={"outcome": "selected", "optionId": option})


class Live:
    """A playback, and what it reported."""

    def __init__(self, *recording: RecordedMessage) -> None:
        self.reports: list[str] = []
        self.playback = Playback(recording, self.reports.append)
        self.began = [planned.message for planned in self.playback.start()]

    def send(self, message: Json) -> list[Any]:
        return [planned.message for planned in self.playback.receive(message)]


PERMISSION = [
    client(request(1, "session/prompt", sessionId="s1", prompt="run")),
    agent(update("asking")),
    agent(request(0, "session/request_permission", sessionId="s1")),
    client(chosen(0, "yes")),
    agent(update("ran")),
    agent(answer(1, stopReason="end_turn")),
]
CANCELLED = [
    *PERMISSION[:3],
    client(notification("session/cancel", sessionId="s1")),
    client(answer(0, outcome={"outcome": "cancelled"})),
    agent(answer(1, stopReason="cancelled")),
]


def test_a_recording_is_parsed_line_by_line() -> None:
    lines = [
        {"t": 0, "dir": "c2a", "msg": {"id": 1, "method": "initialize"}},
        {"t": 0.25, "dir": "a2c", "msg": {"id": 1, "result": {}}},
        {"t": 0.5, "dir": "a2c", "msg": "Warning: no color"},
    ]
    assert parse_recording("\n".join(json.dumps(line) for line in lines) + "\n\n") == [
        client({"id": 1, "method": "initialize"}),
        agent({"id": 1, "result": {}}, 0.25),
        agent("Warning: no color", 0.5),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "not JSON",
        "[" * 100_000,
        "[]",
        '{"t": 0, "dir": "c2a"}',
        '{"t": 0, "dir": "up", "msg": {}}',
        '{"t": "0", "dir": "c2a", "msg": {}}',
        '{"t": 0, "dir": "c2a", "msg": "a text of a client"}',
        '{"t": 0, "dir": "a2c", "msg": []}',
    ],
)
def test_a_line_that_is_no_message_is_refused_by_its_number(line: str) -> None:
    good = '{"t": 0, "dir": "c2a", "msg": {}}'
    with pytest.raises(ConfigError, match="Line 2 "):
        parse_recording(f"{good}\n{line}\n")


def test_the_agent_sends_what_was_recorded_between_the_messages_of_the_client() -> None:
    live = Live(agent(notification("_hello")), *PERMISSION)
    assert live.began == [notification("_hello")]
    assert live.send(request(1, "session/prompt", sessionId="s1", prompt="run")) == [
        update("asking"),
        request(0, "session/request_permission", sessionId="s1"),
    ]
    assert live.send(chosen(0, "yes")) == [update("ran"), answer(1, stopReason="end_turn")]
    assert live.reports == []


@pytest.mark.parametrize("live_id", [0, 17, "request-1", "1"])
def test_answers_carry_the_ids_of_the_live_client(live_id: Any) -> None:
    live = Live(*PERMISSION)
    live.send(request(live_id, "session/prompt", sessionId="s1", prompt="run"))
    assert live.send(chosen(0, "yes"))[-1] == answer(live_id, stopReason="end_turn")


def test_a_request_of_the_agent_keeps_its_id_also_if_the_client_has_used_it() -> None:
    live = Live(client(request(0, "initialize")), agent(answer(0, protocolVersion=1)), *PERMISSION[:3], *PERMISSION[3:])
    live.send(request("a", "initialize"))
    assert live.send(request("b", "session/prompt", sessionId="s1", prompt="run"))[-1]["id"] == 0


def test_the_session_and_the_directory_of_the_live_client_are_filled_in() -> None:
    live = Live(
        client(request(1, "session/load", sessionId="s1", cwd="/workspace")),
        agent(notification("session/update", sessionId="s1", update={"locations": [{"path": "/workspace/a.txt"}]})),
        agent(answer(1, modes=None)),
    )
    assert live.send(request(1, "session/load", sessionId="mine", cwd="/srv/t1")) == [
        notification("session/update", sessionId="mine", update={"locations": [{"path": "/srv/t1/a.txt"}]}),
        answer(1, modes=None),
    ]
    assert live.reports == []


@pytest.mark.parametrize("first", [0, 1])
def test_consecutive_messages_of_the_client_may_come_in_any_order(first: int) -> None:
    live = Live(*CANCELLED)
    live.send(request(1, "session/prompt", sessionId="s1", prompt="run"))
    both = [notification("session/cancel", sessionId="s1"), answer(0, outcome={"outcome": "cancelled"})]
    assert live.send(both[first]) == []
    assert live.send(both[1 - first]) == [answer(1, stopReason="cancelled")]
    assert live.reports == []


def test_a_difference_is_reported_with_its_place_and_both_values() -> None:
    live = Live(*PERMISSION)
    live.send(request(1, "session/prompt", sessionId="s1", prompt="walk"))
    live.send(chosen(0, "no"))
    assert live.reports == [
        'session/prompt at prompt: the client sent "walk", recorded was "run".',
        'the answer to session/request_permission at outcome.optionId: the client sent "no", recorded was "yes".',
    ]


def test_differences_in_lists_and_missing_members_are_reported() -> None:
    live = Live(
        client(request(1, "session/new", cwd="/w", mcpServers=[{"name": "a"}])), agent(answer(1, sessionId="s"))
    )
    live.send(request(1, "session/new", cwd="/w", mcpServers=[{"name": "b"}], additionalDirectories=["/x"]))
    assert live.reports == [
        'session/new at mcpServers[0].name: the client sent "b", recorded was "a".',
        'session/new at additionalDirectories: the client sent ["/x"], recorded was null.',
    ]
    longer = Live(client(request(1, "session/new", mcpServers=[])))
    longer.send(request(1, "session/new", mcpServers=[1]))
    assert longer.reports == ["session/new at mcpServers: the client sent [1], recorded was []."]


def test_a_long_value_is_shown_in_part() -> None:
    live = Live(*PERMISSION)
    live.send(request(1, "session/prompt", sessionId="s1", prompt="x" * 10_000))
    assert len(live.reports[0]) < 300


def test_what_the_client_leaves_out_is_passed_over_with_its_answer() -> None:
    live = Live(
        client(request(1, "session/set_mode", sessionId="s1", modeId="plan")),
        agent(notification("session/update", sessionId="s1", update={"currentModeId": "plan"})),
        agent(answer(1)),
        client(request(2, "session/prompt", sessionId="s1", prompt="go")),
        agent(answer(2, stopReason="end_turn")),
    )
    sent = live.send(request(1, "session/prompt", sessionId="s1", prompt="go"))
    assert sent == [answer(1, stopReason="end_turn")]
    assert live.reports == [
        "The client sent session/prompt and not session/set_mode, which was recorded before.",
    ]


def test_a_request_that_was_not_recorded_gets_another_answer_to_its_method() -> None:
    live = Live(client(request(1, "session/list")), agent(answer(1, sessions=[])))
    assert live.send(request(1, "session/list")) == [answer(1, sessions=[])]
    assert live.send(request(2, "session/list")) == [answer(2, sessions=[])]
    assert live.reports == [
        "The client asked session/list, which was not recorded here: it gets another answer to that method."
    ]


def test_a_request_of_an_unknown_method_gets_an_error() -> None:
    live = Live(*PERMISSION)
    assert live.send(request(9, "session/fork")) == [
        {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Not recorded"}, "id": 9}
    ]
    assert live.reports == ["The client asked session/fork, which was not recorded here: it gets an error."]


def test_other_messages_that_were_not_recorded_are_reported_and_change_nothing() -> None:
    live = Live(*PERMISSION)
    assert live.send(notification("session/cancel", sessionId="s1")) == []
    assert live.send(answer(7)) == []
    assert live.reports == [
        "The client sent session/cancel, which was not recorded here.",
        "The client answered a request with the id 7, which was not recorded.",
    ]
    assert len(live.send(request(1, "session/prompt", sessionId="s1", prompt="run"))) == 2


def test_a_line_that_was_not_json_is_sent_as_it_was() -> None:
    assert Live(agent("Warning"), *PERMISSION).began == ["Warning"]


def test_the_time_between_recorded_messages_is_planned() -> None:
    playback = Playback(
        [
            agent(notification("_hello"), 0.5),
            client(request(1, "initialize"), 1.0),
            agent(notification("_wait"), 1.25),
            agent(answer(1), 3.25),
        ],
        print,
    )
    assert playback.start() == [PlannedMessage(0.5, notification("_hello"))]
    assert [planned.delay for planned in playback.receive(request(1, "initialize"))] == [0.25, 2.0]


RECORDINGS = Path(__file__).parents[2] / "recordings" / "acp"
AGENTS = ("claude-acp", "codex", "gemini", "opencode")
SCENARIOS = ("cancelled", "client-tool", "load", "text", "tool-allowed", "tool-declined")
ALL = sorted(path.relative_to(RECORDINGS).with_suffix("") for path in RECORDINGS.rglob("*.jsonl"))
OF_A_MACHINE = re.compile(r"/(?:root|Users|tmp|var|mnt|private)/|/home/(?!agent\b)|sk-[a-z]|localhost|BEGIN [A-Z ]*KEY")


def read_recording(name: Path) -> str:
    return (RECORDINGS / name).with_suffix(".jsonl").read_text()


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_a_recording_of_every_scenario(agent: str) -> None:
    assert {Path(agent, scenario) for scenario in SCENARIOS} <= set(ALL)


@pytest.mark.parametrize("name", ALL, ids=str)
def test_a_client_that_asks_what_was_recorded_gets_what_was_recorded(name: Path) -> None:
    recording = parse_recording(read_recording(name))
    live = Live(*recording)
    sent = [*live.began]
    for entry in recording:
        if entry.sender == "client":
            sent += live.send(entry.message)
    assert sent == [entry.message for entry in recording if entry.sender == "agent"]
    assert live.reports == []


@pytest.mark.parametrize("name", ALL, ids=str)
def test_a_recording_has_no_secret_and_nothing_of_the_machine_it_was_made_on(name: Path) -> None:
    assert OF_A_MACHINE.findall(read_recording(name)) == []
