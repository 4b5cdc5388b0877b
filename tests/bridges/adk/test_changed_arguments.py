"""A confirmation of ADK is for the arguments that were shown; with a redacted copy of them nothing is executed."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import RunnerConfig
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.errors import InterruptNotOpen
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.protocol import events as e
from ambient_runner.runs.runner import Runner
from tests.bridges.adk.scripted import call
from tests.bridges.adk.world import Talk, agent, listening, questions, yes
from tests.world import SETTINGS, user

SECRET = "s3cret-value-of-the-server"
REDACTING = dataclasses.replace(SETTINGS, secrets=(SECRET,))
SENT: list[str] = []


def send(text: str) -> dict[str, Any]:
    """Send a text."""
    SENT.append(text)
    return {"sent": True}


def sender(text: str = "hello", *, calls: int = 1) -> Any:
    SENT.clear()
    turn = [call("send", f"s{number}", text=text) for number in range(1, calls + 1)]
    root, _ = agent(turn, ["Done."], ["Bye."], tools=[FunctionTool(send, require_confirmation=True)])
    return root


@asynccontextmanager
async def redacting(ledger: MemoryLedger, root: Any, **options: Any) -> AsyncGenerator[Talk, None]:
    hosted = AgentHost("agent", ADKBridge(root, **options))
    async with Runner(ledger, {"agent": hosted}, REDACTING, [listening]) as runner:
        yield Talk(runner)


def stored_in(service: InMemorySessionService) -> dict[str, Any]:
    return {"runner_config": RunnerConfig(session_service=service)}


def change_session(service: InMemorySessionService, call_id: str, text: str) -> None:
    """Change the arguments of a waiting call in ADK's own session, as another writer of its database could."""
    sessions = [one for users in service.sessions.values() for kept in users.values() for one in kept.values()]
    for event in (event for session in sessions for event in session.events):
        for made in event.get_function_calls():
            original = (made.args or {}).get("originalFunctionCall")
            if made.id == call_id:
                made.args = {"text": text}
            elif original and original["id"] == call_id:
                original["args"] = {"text": text}


def digest_of(question: e.Interrupt) -> str:
    return (question.metadata or {})["argumentsDigest"]


def no(question: e.Interrupt) -> e.ResumeEntry:
    return e.ResumeEntry(interrupt_id=question.id, status="cancelled")


async def test_a_call_that_was_changed_in_the_session_is_asked_about_again() -> None:
    service = InMemorySessionService()
    async with MemoryLedger() as ledger, redacting(ledger, sender(calls=2), **stored_in(service)) as talk:
        first, second = questions(await talk.run(user("u1")))
        change_session(service, "s2", "evil")
        changed = await talk.run(resume=[yes(first), yes(second)])
        assert SENT == []
        again, other = questions(changed)
        assert (again.id, other.id == second.id) == (first.id, False)
        assert (other.metadata or {})["toolArguments"] == {"text": "evil"}
        assert digest_of(other) != digest_of(second)
        with pytest.raises(InterruptNotOpen):
            await talk.resume(yes(second))
        assert (await talk.resume(yes(again), yes(other)))[-1] == "RF"
        assert (await talk.say("u2"))[-1] == "RF"
    assert SENT == ["hello", "evil"]


async def test_a_changed_call_can_be_cancelled() -> None:
    service = InMemorySessionService()
    async with MemoryLedger() as ledger, redacting(ledger, sender(), **stored_in(service)) as talk:
        (question,) = questions(await talk.run(user("u1")))
        change_session(service, "s1", "evil")
        assert (await talk.resume(no(question)))[-1] == "RF"
    assert SENT == []


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "restarted"])
async def test_a_redacted_call_runs_with_the_arguments_of_the_session(restarts: bool) -> None:
    service, root = InMemorySessionService(), sender(SECRET)
    async with MemoryLedger() as ledger:
        async with redacting(ledger, root, **stored_in(service)) as talk:
            (question,) = questions(await talk.run(user("u1")))
            assert (question.metadata or {})["toolArguments"] == {"text": REDACTED}
            if not restarts:
                assert (await talk.resume(yes(question)))[-1] == "RF"
        if restarts:
            async with redacting(ledger, root, **stored_in(service)) as talk:
                assert (await talk.resume(yes(question)))[-1] == "RF"
    assert SENT == [SECRET]


async def test_a_redacted_call_of_which_only_the_stored_copy_is_left_is_withheld() -> None:
    root = sender(SECRET)
    async with MemoryLedger() as ledger:
        async with redacting(ledger, root) as talk:
            (question,) = questions(await talk.run(user("u1")))
        async with redacting(ledger, root) as talk:
            for _ in range(2):
                end = (await talk.run(resume=[yes(question)]))[-1]
                assert isinstance(end, e.RunError)
                assert end.code == "arguments_withheld"
            assert (await talk.resume(no(question)))[-1] == "RF"
    assert SENT == []
