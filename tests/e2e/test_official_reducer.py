"""The official clients, as they are published, end every run with exactly the messages and state we have folded.

Both versions fold each stream twice: as the agent sent it, and with our MESSAGES_SNAPSHOT before the terminal event, as clients get it.
Streams are cut by errors too, with messages and calls still open.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from ambient_runner.projections.state import SharedState
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivitySnapshot,
    AssistantMessage,
    Cancelled,
    Custom,
    FunctionCall,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    Raw,
    ReasoningEncryptedValue,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    SubagentFinished,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    TextPart,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    UserMessage,
)
from tests.e2e.page_streams import PROTOCOLS, fork_streams, page_streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.protocol.events import Event, Message, Terminal, TextRole

CLIENTS = Path(__file__).parent / "clients"
BOTH = ("1.0", "0.0.59")


@dataclass(kw_only=True)
class Turn:
    """One run: what the user's side already holds, and what the agent says."""

    new: list[Message]
    events: list[Event]
    end: Terminal
    held: bool = True
    """Whether this client sent the new messages itself, or only learns of them from RUN_STARTED."""


def started(messages: list[Message]) -> RunStarted:
    given = RunAgentInput(thread_id="thread", run_id="run", messages=messages)
    return RunStarted(thread_id="thread", run_id="run", protocol_version="1.0", input=given)


def finished(**more: Any) -> RunFinished:
    return RunFinished(thread_id="thread", run_id="run", **more)


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def ours(turns: list[Turn]) -> list[dict[str, Any]]:
    """Messages and state after each run, as this package folds them."""
    transcript, state, results = Transcript(), SharedState(), list[dict[str, Any]]()
    for turn in turns:
        for event in (started(turn.new), *turn.events, MessagesSnapshot(messages=[]), turn.end):
            transcript.apply(event)
            state.apply(event)
        results.append({"messages": plain(transcript.messages()), "state": plain(state.value), "error": None})
    return results


def script(turns: list[Turn], snapshots: list[dict[str, Any]] | None) -> bytes:
    runs: list[dict[str, Any]] = []
    for at, turn in enumerate(turns):
        events = [started(turn.new), *turn.events]
        lines = [plain(event) for event in events]
        if snapshots is not None:
            lines.append({"type": "MESSAGES_SNAPSHOT", "messages": snapshots[at]["messages"]})
        lines.append(plain(turn.end))
        runs.append({"add": plain(turn.new) if turn.held else [], "events": lines})
    return msgspec.json.encode({"runs": runs})


def official(scripts: list[bytes]) -> list[dict[str, list[dict[str, Any]]]]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("the official clients need node")
    if not (CLIENTS / "node_modules").is_dir():
        pytest.skip("the official clients are not installed: run `npm install` in tests/e2e/clients")
    done = subprocess.run(
        [node, "reduce.mjs"], cwd=CLIENTS, input=b"\n".join(scripts), capture_output=True, check=True, timeout=100
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(threads: list[list[Turn]], clients: tuple[str, ...] = BOTH) -> None:
    expected = [ours(turns) for turns in threads]
    bare = [script(turns, None) for turns in threads]
    full = [script(turns, snapshots) for turns, snapshots in zip(threads, expected, strict=True)]
    folded = official(bare + full)
    for at, want in enumerate(expected):
        for client in clients:
            assert folded[at][client] == want, f"{client}, as streamed, thread {at}"
            assert folded[at + len(bare)][client] == want, f"{client}, with our snapshots, thread {at}"


@pytest.mark.parametrize("version", BOTH)
async def test_what_a_page_reads_of_a_thread_leads_to_its_messages_and_state(version: str) -> None:
    streams = await page_streams(PROTOCOLS[version])
    scripts = [msgspec.json.encode({"runs": [{"add": [], "events": run} for run in stream.runs]}) for stream in streams]
    for stream, folded in zip(streams, official(scripts), strict=True):
        end = folded[version][-1]
        assert end == {"messages": stream.messages, "state": stream.state, "error": None}, stream.name


@pytest.mark.parametrize("audience", ["open", "safe"])
@pytest.mark.parametrize("version", BOTH)
async def test_what_a_page_reads_of_a_fork_leads_to_its_messages_and_state(
    version: str, audience: Literal["open", "safe"]
) -> None:
    streams = await fork_streams(PROTOCOLS[version], audience)
    scripts = [msgspec.json.encode({"runs": [{"add": stream.add, "events": stream.run}]}) for stream in streams]
    for stream, folded in zip(streams, official(scripts), strict=True):
        assert folded[version] == [{"messages": stream.messages, "state": stream.state, "error": None}], stream.name


@pytest.mark.parametrize("version", BOTH)
async def test_feedback_stays_with_its_message(version: str) -> None:
    [connect] = [stream for stream in await page_streams(PROTOCOLS[version]) if stream.name == "connect"]
    [folded] = official([msgspec.json.encode({"runs": [{"add": [], "events": run} for run in connect.runs]})])
    rated = [message for message in folded[version][-1]["messages"] if message.get("metadata", {}).get("ambient")]
    assert [message["metadata"]["ambient"] for message in rated] == [{"feedback": "thumbs_up"}]


def user(name: str) -> UserMessage:
    return UserMessage(id=name, content=f"says {name}")


def text(message_id: str, *deltas: str, **start: Any) -> list[Event]:
    contents = [TextMessageContent(message_id=message_id, delta=delta) for delta in deltas]
    return [TextMessageStart(message_id=message_id, **start), *contents, TextMessageEnd(message_id=message_id)]


def call(name: str, arguments: str = "{}", **start: Any) -> list[Event]:
    return [
        ToolCallStart(tool_call_id=name, tool_call_name="tool", **start),
        ToolCallArgs(tool_call_id=name, delta=arguments),
        ToolCallEnd(tool_call_id=name),
    ]


def result(name: str, content: Any = "done") -> ToolCallResult:
    return ToolCallResult(message_id=f"{name}-result", tool_call_id=name, content=content)


def test_text_tools_reasoning_and_activities_in_every_order() -> None:
    first = Turn(
        new=[user("u1")],
        events=[
            ReasoningStart(message_id="think"),
            ReasoningMessageStart(message_id="think"),
            ReasoningMessageContent(message_id="think", delta="hm"),
            ReasoningMessageEnd(message_id="think", metadata={"model": "m"}),
            ReasoningEnd(message_id="think"),
            *text("a1", "let me ", "look", metadata={"a": 1}),
            *call("c1", parent_message_id="a1"),
            *call("c2", parent_message_id="a1"),
            *text("a2", "meanwhile"),
            result("c2"),
            result("c1"),
            *call("c3"),
            *call("c4", parent_message_id="u1"),
            ActivitySnapshot(message_id="plan", activity_type="plan", content={"steps": []}),
            ActivityDelta(
                message_id="plan", activity_type="plan", patch=[{"op": "add", "path": "/steps/-", "value": 1}]
            ),
            ActivityDelta(message_id="plan", activity_type="x", patch=[{"op": "remove", "path": "/no"}]),
            result("c3"),
            ReasoningEncryptedValue(subtype="tool-call", entity_id="c1", encrypted_value="x"),
            ReasoningEncryptedValue(subtype="message", entity_id="think", encrypted_value="y"),
            *text("note", "for developers", role="developer", name="ops"),
            result("unknown-call"),
        ],
        end=finished(),
    )
    second = Turn(new=[user("u2")], events=text("a3", "bye"), end=finished())
    check([[first, second]])


def test_a_run_cut_in_the_middle_of_text_and_arguments_keeps_what_was_streamed() -> None:
    cut = Turn(
        new=[user("u1")],
        events=[
            TextMessageStart(message_id="a1"),
            TextMessageContent(message_id="a1", delta="par"),
            ToolCallStart(tool_call_id="c1", tool_call_name="tool", parent_message_id="a1"),
            ToolCallArgs(tool_call_id="c1", delta='{"x":'),
            ReasoningMessageStart(message_id="think"),
        ],
        end=RunError(message="gone", code="run_abandoned"),
    )
    check([[cut, Turn(new=[user("u2")], events=text("a2", "again"), end=finished())]])


def test_a_tool_message_of_the_client_stands_where_the_client_put_it() -> None:
    asked = Turn(new=[user("u1")], events=[*text("a1", "pick"), *call("c1", parent_message_id="a1")], end=finished())
    answer = ToolMessage(id="t1", tool_call_id="c1", content="red")
    check([[asked, Turn(new=[answer], events=text("a2", "red it is"), end=finished())]])


def test_a_call_that_opens_its_message_is_joined_by_text_later() -> None:
    check([[Turn(new=[user("u1")], events=[*call("c1", parent_message_id="a1"), *text("a1", "why")], end=finished())]])


def test_the_result_of_an_interrupted_call_stands_by_the_call() -> None:
    question = Interrupted(interrupts=[Interrupt(id="i", reason="tool_call", tool_call_id="c1")])
    asked = Turn(new=[user("u1")], events=[*call("c1"), *text("a2", "may I?")], end=finished(outcome=question))
    check([[asked, Turn(new=[], events=[result("c1"), *text("a3", "ok")], end=finished())]])


def test_a_snapshot_of_the_agent_is_merged_as_the_clients_merge_it() -> None:
    other = AssistantMessage(
        id="late", tool_calls=[ToolCall(id="c9", function=FunctionCall(name="tool", arguments="{}"))]
    )
    turn = Turn(
        new=[user("u1")],
        events=[
            ReasoningMessageStart(message_id="think"),
            ReasoningMessageEnd(message_id="think"),
            *text("a1", "one"),
            ActivitySnapshot(message_id="plan", activity_type="plan", content={}),
            *text("a2", "two"),
            MessagesSnapshot(messages=[other, AssistantMessage(id="a2", content="TWO"), user("u1")]),
            result("c9"),
        ],
        end=finished(),
    )
    check([[turn]])


def test_what_only_1_0_knows_is_folded_as_it_does() -> None:
    turn = Turn(
        new=[user("u1")],
        events=[*call("c1"), result("c1", [TextPart(text="part")])],
        end=finished(outcome=Cancelled()),
    )
    check([[turn]], clients=("1.0",))


def test_state_follows_snapshots_and_deltas_that_apply() -> None:
    deltas = [
        [{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": "/a", "value": 1}],
        [{"op": "remove", "path": "/gone"}],
        [{"op": "test", "path": "/a", "value": True}, {"op": "remove", "path": "/a"}],
        [{"op": "add", "path": "/__proto__/x", "value": 1}],
        [{"op": "add", "path": "/list", "value": [1, 2]}, {"op": "move", "from": "/list/0", "path": "/list/-"}],
        [{"op": "copy", "from": "/list", "path": "/twin"}, {"op": "add", "path": "/twin/9", "value": 0}],
        [{"op": "replace", "path": "/list/1", "value": {"b~/": None}}],
        [{"op": "add", "path": "/list/1/b~0~1", "value": "x"}],
    ]
    events: list[Event] = [StateSnapshot(snapshot={"k": []}), *(StateDelta(delta=delta) for delta in deltas)]
    check([[Turn(new=[user("u1")], events=events, end=finished())]])


@dataclass
class Improviser:
    """Makes streams that both clients accept, with everything open at once."""

    rng: random.Random
    serial: int = 0
    texts: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    thoughts: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    calls: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    subagents: list[str] = field(default_factory=list[str])
    steps: list[str] = field(default_factory=list[str])
    assistants: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    answered: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, "str | None"]])
    activities: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def name(self, kind: str) -> str:
        self.serial += 1
        return f"{kind}{self.serial}"

    def lane(self) -> str | None:
        return self.rng.choice([None, None, *self.subagents])

    def more(self) -> dict[str, Any]:
        return {"metadata": {self.rng.choice("xyz"): self.serial}} if self.rng.random() < 0.3 else {}

    def turn(self) -> Turn:
        new: list[Message] = [user(self.name("u"))]
        events = [event for _ in range(self.rng.randint(0, 40)) for event in self.act()]
        if self.rng.random() < 0.4:
            self.forget()
            return Turn(new=new, events=events, end=RunError(message="cut"), held=self.rng.random() < 0.7)
        events += self.close()
        self.forget()
        return Turn(new=new, events=events, end=finished(), held=self.rng.random() < 0.7)

    def act(self) -> list[Event]:
        moves: list[Callable[[], list[Event]]] = [
            *[self.open_text, self.say, self.say, self.end_text, self.open_call, self.argue, self.end_call],
            *[self.answer, self.think, self.ponder, self.conclude, self.show, self.change, self.hide, self.share],
            *[self.delegate, self.step, self.noise],
        ]
        return self.rng.choice(moves)()

    def pick(self, owners: dict[str, str | None]) -> tuple[str, dict[str, Any]] | None:
        if not owners:
            return None
        name = self.rng.choice(sorted(owners))
        owner = owners[name]
        return name, ({"subagent_run_id": owner} if owner and self.rng.random() < 0.8 else {})

    def open_text(self) -> list[Event]:
        roles: list[TextRole | None] = ["assistant", "assistant", None, "developer", "system"]
        role = self.rng.choice(roles)
        closed = [name for name in sorted(self.assistants) if name not in self.texts]
        if closed and self.rng.random() < 0.2:
            name = self.rng.choice(closed)
            self.texts[name] = self.assistants[name]
            return [TextMessageStart(message_id=name, subagent_run_id=self.texts[name], **self.more())]
        name, lane = self.name("m"), self.lane()
        self.texts[name] = lane
        if role in ("assistant", None):
            self.assistants[name] = lane
        return [TextMessageStart(message_id=name, role=role, subagent_run_id=lane, **self.more())]

    def say(self) -> list[Event]:
        found = self.pick(self.texts)
        return (
            [TextMessageContent(message_id=found[0], delta=f"{self.serial}é ", **found[1], **self.more())]
            if found
            else []
        )

    def end_text(self) -> list[Event]:
        found = self.pick(self.texts)
        if not found:
            return []
        del self.texts[found[0]]
        return [TextMessageEnd(message_id=found[0], **found[1], **self.more())]

    def open_call(self) -> list[Event]:
        lane = self.lane()
        hosts = [name for name, owner in sorted(self.assistants.items()) if owner == lane]
        parent = self.rng.choice([None, self.name("h"), *hosts, *hosts])
        name = self.name("c")
        self.calls[name] = lane
        self.assistants[parent or name] = lane
        return [
            ToolCallStart(
                tool_call_id=name, tool_call_name="tool", parent_message_id=parent, subagent_run_id=lane, **self.more()
            )
        ]

    def argue(self) -> list[Event]:
        found = self.pick(self.calls)
        return [ToolCallArgs(tool_call_id=found[0], delta='{"', **found[1], **self.more())] if found else []

    def end_call(self) -> list[Event]:
        found = self.pick(self.calls)
        if not found:
            return []
        self.answered.append((found[0], self.calls.pop(found[0])))
        return [ToolCallEnd(tool_call_id=found[0], **found[1], **self.more())]

    def answer(self) -> list[Event]:
        if not self.answered:
            return []
        name, lane = self.answered.pop(self.rng.randrange(len(self.answered)))
        lane = lane if lane in self.subagents else None
        made = ToolCallResult(
            message_id=self.name("r"), tool_call_id=name, content="done", subagent_run_id=lane, **self.more()
        )
        return [made]

    def think(self) -> list[Event]:
        name, lane = self.name("t"), self.lane()
        self.thoughts[name] = lane
        return [ReasoningMessageStart(message_id=name, subagent_run_id=lane, **self.more())]

    def ponder(self) -> list[Event]:
        found = self.pick(self.thoughts)
        return [ReasoningMessageContent(message_id=found[0], delta="hm", **found[1], **self.more())] if found else []

    def conclude(self) -> list[Event]:
        found = self.pick(self.thoughts)
        if not found:
            return []
        del self.thoughts[found[0]]
        return [ReasoningMessageEnd(message_id=found[0], **found[1], **self.more())]

    def show(self) -> list[Event]:
        if self.activities and self.rng.random() < 0.4:
            name = self.rng.choice(sorted(self.activities))
            lane = self.activities[name]
            replaced = self.rng.choice([True, False, None])
        else:
            name, lane, replaced = self.name("p"), self.lane(), None
            self.activities[name] = lane
        return [
            ActivitySnapshot(
                message_id=name,
                activity_type=self.rng.choice(["plan", "chart"]),
                content={"list": [self.serial]},
                replace=replaced,
                subagent_run_id=lane,
                **self.more(),
            )
        ]

    def change(self) -> list[Event]:
        found = self.pick(self.activities)
        path = self.rng.choice(["/list/-", "/new", "/nowhere/at/all"])
        patch = [{"op": "add", "path": path, "value": self.serial}]
        if not found:
            return []
        return [ActivityDelta(message_id=found[0], activity_type="plan", patch=patch, **found[1], **self.more())]

    def hide(self) -> list[Event]:
        known = [*(("tool-call", name) for name in self.calls), *(("message", name) for name in self.texts)]
        if not known:
            return []
        subtype, name = self.rng.choice(known)
        return [
            msgspec.convert(
                {
                    "type": "REASONING_ENCRYPTED_VALUE",
                    "subtype": subtype,
                    "entityId": name,
                    "encryptedValue": f"x{self.serial}",
                },
                ReasoningEncryptedValue,
            )
        ]

    def share(self) -> list[Event]:
        if self.rng.random() < 0.3:
            return [StateSnapshot(snapshot={"list": [1], "n": self.serial})]
        path = self.rng.choice(["/list/-", "/n", "/a/b"])
        return [StateDelta(delta=[{"op": "add", "path": path, "value": self.serial}])]

    def delegate(self) -> list[Event]:
        name = self.name("s")
        self.subagents.append(name)
        return [SubagentStarted(subagent_run_id=name, name="helper")]

    def step(self) -> list[Event]:
        self.steps.append(self.name("step"))
        return [StepStarted(step_name=self.steps[-1])]

    def noise(self) -> list[Event]:
        return [Custom(name="x", value=None), Raw(event={"a": 1}, metadata={"raw": 1})]

    def close(self) -> list[Event]:
        ends: list[Event] = []
        while self.texts:
            ends += self.end_text()
        while self.thoughts:
            ends += self.conclude()
        while self.calls:
            ends += self.end_call()
        ends += [SubagentFinished(subagent_run_id=name) for name in self.subagents]
        return ends + [StepFinished(step_name=name) for name in self.steps]

    def forget(self) -> None:
        """A new run begins: nothing is open, and nothing of a subagent goes on."""
        for open_now in (self.texts, self.thoughts, self.calls):
            open_now.clear()
        self.subagents.clear()
        self.steps.clear()
        for known in (self.assistants, self.activities):
            for name in [name for name, owner in known.items() if owner]:
                del known[name]


def test_random_threads_are_folded_alike(long: bool) -> None:
    improvisers = [Improviser(random.Random(seed)) for seed in range(1000 if long else 60)]
    check([[one.turn() for _ in range(one.rng.randint(1, 3))] for one in improvisers])
