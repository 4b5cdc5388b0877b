"""Clients that post all their messages with every run, as CopilotKit does, beside one that posts only the new one."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.client import STARTED, Response, build_request, count_events, read_response, read_text
from benchmarks.report import Section, at_most, percentile
from benchmarks.scene import Plans
from benchmarks.servers import start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

FACTOR = 1.5
STORED_FACTOR = 1.2
_MESSAGE_ID = re.compile(rb'"TEXT_MESSAGE_START"[^\n]*?"messageId":"([^"]+)"')


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Turns of a conversation of so many deltas each, and the number of messages of a long one."""

    turns: int
    deltas: int
    messages: int
    rounds: int


PLANS = Plans(
    smallest=Plan(turns=3, deltas=10, messages=10, rounds=1),
    quick=Plan(turns=100, deltas=100, messages=2_000, rounds=5),
    full=Plan(turns=400, deltas=100, messages=2_000, rounds=30),
)


def count_steps(plan: Plan) -> int:
    return plan.turns + plan.rounds


@dataclass(kw_only=True)
class Conversation:
    """One client with one server: its messages so far, and the milliseconds to RUN_STARTED of each turn."""

    title: str
    server: Server
    repeats: bool
    path: str = "/"
    thread: str = field(default_factory=lambda: str(uuid.uuid4()))
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    started: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])

    def post(self, work: Workload) -> None:
        """Post the next turn, and remember its messages as the client would."""
        prompt = {"id": str(uuid.uuid4()), "role": "user", "content": work.prompt}
        response = self._send(work, prompt)
        count_events(response, work)
        body = response.body()
        found = _MESSAGE_ID.search(body)
        assert found
        self.messages += [prompt, {"id": found[1].decode(), "role": "assistant", "content": read_text(body)}]

    def adopt(self, messages: list[dict[str, Any]], work: Workload) -> None:
        """Begin the thread with messages of before. This turn is not counted."""
        self.messages, repeats, self.repeats = messages, self.repeats, True
        self.post(work)
        self.repeats = repeats
        self.started.clear()
        self.cpu.clear()

    def _send(self, work: Workload, prompt: dict[str, Any]) -> Response:
        messages = [*self.messages, prompt] if self.repeats else [prompt]
        request = build_request(work, self.path, thread=self.thread, messages=messages)
        cpu_before = self.server.cpu_seconds()
        response = read_response(self.server.port, request)
        self.cpu.append((self.server.cpu_seconds() - cpu_before) * 1000)
        self.started.append(response.seconds_until(STARTED) * 1000)
        return response


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Conversations by who posts what, with the bytes that were stored, and the same with a long history."""

    conversations: Sequence[Conversation]
    stored: Sequence[int | None]
    long: Sequence[Conversation]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Repeated:
    """Let the conversations take turns. Then post to threads that begin with many messages."""
    work = Workload(count=plan.deltas)
    with start_servers(["ambient", "ambient", "adapter"], scratch) as (first, second, adapter):
        conversations = _start_conversations(first, second, adapter)
        for _ in range(plan.turns):
            for conversation in conversations:
                conversation.post(work)
            step()
    # A server that has stopped has moved everything from its log into the database.
    stored = [first.stored_bytes(), second.stored_bytes(), None]
    return Repeated(conversations=conversations, stored=stored, long=_measure_long(scratch, plan, work, step))


def _measure_long(scratch: Path, plan: Plan, work: Workload, step: Callable[[], None]) -> list[Conversation]:
    with start_servers(["ambient", "ambient", "adapter"], scratch) as (first, second, adapter):
        conversations = _start_conversations(first, second, adapter)
        for conversation in conversations:
            conversation.adopt(_write_messages(plan.messages), work)
        for _ in range(plan.rounds):
            for conversation in conversations:
                conversation.post(work)
            step()
    return conversations


def _start_conversations(first: Server, second: Server, adapter: Server) -> list[Conversation]:
    path = "/?snapshots=0"
    return [
        Conversation(title="(c), all messages", server=first, repeats=True, path=path),
        Conversation(title="(c), the new message", server=second, repeats=False, path=path),
        Conversation(title="(a), all messages", server=adapter, repeats=True),
    ]


def _write_messages(count: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [
        {"id": str(uuid.uuid4()), "role": roles[n % 2], "content": f"Message {n} of a long conversation. " * 5}
        for n in range(count)
    ]


_EXPLANATION = """\
Of 2,000 messages that the last request had too, 0.7 ms go to searching, splitting and comparing the body. With fewer, posting all of them \
costs a run hardly more CPU than posting the new one: the rest is RUN_STARTED on a known thread, whose lease and first entries are two \
transactions, and (a) stores nothing. Next: one transaction, as for a new thread."""


def build_section(repeated: Repeated) -> Section:
    """Return the table and the goals for clients that repeat their messages."""
    turns, rounds = len(repeated.conversations[0].started), len(repeated.long[0].started)
    last = max(1, turns // 10)
    rows = [
        [
            conversation.title,
            f"{percentile(conversation.started[-last:], 50):.1f}",
            f"{percentile(conversation.cpu[-last:], 50):.1f}",
            "" if stored is None else f"{stored / 1e6:.1f}",
            f"{percentile(long.started, 50):.1f}",
            f"{percentile(long.cpu, 50):.1f}",
        ]
        for conversation, stored, long in zip(repeated.conversations, repeated.stored, repeated.long, strict=True)
    ]
    ours, _, theirs = repeated.conversations
    long_messages = len(repeated.long[0].messages) - 2 * rounds - 2
    return Section(
        explanation=_EXPLANATION,
        title="Clients that post all their messages",
        how=f"{turns} turns, the three in turn: POST to RUN_STARTED and CPU of the last {last}, and what is stored of all. Then a thread "
        f"that began with {long_messages:,} messages, medians of {rounds} turns. (a) stores nothing and trusts whatever it gets.",
        columns=("", "last turns, ms", "CPU ms", "stored, MB", f"{long_messages:,} messages, ms", "CPU ms"),
        rows=rows,
        goals=[
            at_most(
                "stored of a client that posts all its messages against one that posts the new one",
                (repeated.stored[0] or 0) / (repeated.stored[1] or 1),
                STORED_FACTOR,
                "times",
                2,
            ),
            at_most(
                f"POST to RUN_STARTED with all messages of {turns} turns against (a), p50",
                percentile(ours.started[-last:], 50) / percentile(theirs.started[-last:], 50),
                FACTOR,
                "times",
                2,
            ),
            at_most(
                f"POST to RUN_STARTED with {long_messages:,} messages against (a), p50",
                percentile(repeated.long[0].started, 50) / percentile(repeated.long[2].started, 50),
                FACTOR,
                "times",
                2,
            ),
        ],
    )
