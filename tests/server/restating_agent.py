"""An agent that restates its thread at random: it adds messages it never streamed, removes some, replaces others; and such threads."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator
from typing import Any, Literal

import ag_ui.core as e
import httpx

from ambient_runner import create_app
from ambient_runner.bridges.agui import AGUIBridge
from tests.server.demo_server import SETTINGS, client_of, frames

Frames = list[tuple[str | None, dict[str, Any]]]
History = Literal["server", "client"]
Audience = Literal["open", "safe"]


class RestatingAgent:
    """Streams messages, calls, reasoning and activities. The seed is the text of the newest user message."""

    async def run(self, input: e.RunAgentInput) -> AsyncIterator[Any]:
        seed = next(str(message.content) for message in reversed(input.messages) if message.role == "user")
        rng = random.Random(f"{seed} {len(input.messages)}")
        answers: list[Any] = []
        for at in range(rng.randint(0, 3)):
            name = f"{seed}-{len(input.messages)}-{at}"
            kind = rng.choice(["text", "text", "call", "reasoning", "activity", "unstreamed"])
            for event in _streamed(kind, name):
                yield event
            if kind in {"text", "unstreamed"}:
                answers.append(e.AssistantMessage(id=name, content=f"{kind} {name}"))
        if rng.random() < 0.6:
            yield e.MessagesSnapshotEvent(messages=_restated(rng, [*input.messages, *answers]))
            if rng.random() < 0.3:
                for event in _streamed("text", f"{seed}-after"):
                    yield event


def _restated(rng: random.Random, messages: list[Any]) -> list[Any]:
    kept = [message for message in messages if message.role == "user" or rng.random() < 0.8]
    if rng.random() < 0.3:
        kept.insert(0, e.AssistantMessage(id=f"summary-{len(messages)}", content="what came before"))
    return [
        message.model_copy(update={"content": "replaced"})
        if message.role == "assistant" and not message.tool_calls and rng.random() < 0.2
        else message
        for message in kept
    ]


def _streamed(kind: str, name: str) -> list[Any]:
    match kind:
        case "text":
            return [
                e.TextMessageStartEvent(message_id=name),
                e.TextMessageContentEvent(message_id=name, delta=f"text {name}"),
                e.TextMessageEndEvent(message_id=name),
            ]
        case "call":
            return [
                e.ToolCallStartEvent(tool_call_id=name, tool_call_name="look"),
                e.ToolCallArgsEvent(tool_call_id=name, delta="{}"),
                e.ToolCallEndEvent(tool_call_id=name),
                e.ToolCallResultEvent(message_id=f"{name}-result", tool_call_id=name, content="seen"),
            ]
        case "reasoning":
            return [
                e.ReasoningStartEvent(message_id=name),
                e.ReasoningMessageStartEvent(message_id=name, role="reasoning"),
                e.ReasoningMessageContentEvent(message_id=name, delta="hm"),
                e.ReasoningMessageEndEvent(message_id=name),
                e.ReasoningEndEvent(message_id=name),
            ]
        case "activity":
            return [e.ActivitySnapshotEvent(message_id=name, activity_type="work", content={"done": name})]
        case _:
            return []


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayedThread:
    """A thread as its runs one by one, with all their snapshots, and as replays: whole, and in two parts."""

    runs: list[Frames]
    replay: Frames
    parts: list[Frames]


async def replay_thread(
    seed: int, *, history: History = "server", audience: Audience = "open", protocol: str = "1.0", run_count: int = 5
) -> ReplayedThread:
    """Return a thread with messages, corrections and rewinds."""
    rng = random.Random(seed)
    settings = dataclasses.replace(SETTINGS, history=history, audience=audience)
    async with client_of(create_app(settings, {"restating": AGUIBridge(RestatingAgent())})) as client:
        for turn in range(run_count):
            await _send_turn(client, rng, turn, history)
        query = {"until": "idle", "protocol": protocol, "strict": "1"}
        listed = (await client.get("/threads/t/runs")).json()["runs"]
        runs = [
            frames(await client.get("/threads/t/events", params={**query, "run": run["run"]}))
            for run in reversed(listed)
        ]
        replay = frames(await client.get("/threads/t/events", params=query))
        cut = rng.choice([at for at, (cursor, _) in enumerate(replay) if cursor])
        rest = await client.get("/threads/t/events", params={**query, "after": str(replay[cut][0])})
        return ReplayedThread(runs=runs, replay=replay, parts=[replay[: cut + 1], frames(rest)])


async def _send_turn(client: httpx.AsyncClient, rng: random.Random, turn: int, history: History) -> None:
    """Post a new message, or an earlier one again: the thread is rewound to it. Some clients with their own history forget messages."""
    known = (await client.get("/message_snapshot/t")).json().get("messages", []) if turn else []
    users = [at for at, message in enumerate(known) if message["role"] == "user"]
    if users and rng.random() < 0.3:
        messages = known[: rng.choice(users) + 1]
    else:
        kept = [message for message in known if history == "server" or rng.random() < 0.9]
        messages = [*kept, {"id": f"u{turn}", "role": "user", "content": f"{turn}"}]
    posted = [message for message in messages if history == "client" or message["role"] == "user"]
    answer = await client.post("/", json={"threadId": "t", "runId": f"r{turn}", "messages": posted})
    assert answer.status_code == 200, answer.text
