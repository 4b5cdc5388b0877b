"""Redaction fails closed: an event that cannot be searched for secrets is not written, and the run ends."""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from ambient_runner.bridges.base import remember
from ambient_runner.errors import RunnerError
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.events import Custom, Event, RunError, TextMessageContent, TextMessageEnd, TextMessageStart
from ambient_runner.runs.run import Run, RunHandler
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import SETTINGS, ScriptedAgent, run_once, runner_of, said, user

SECRET = "hunter2-hunter2"
WITH_SECRET = dataclasses.replace(SETTINGS, secrets=(SECRET,))


class BrokenZone(datetime.tzinfo):
    """Makes a time fail when it is converted to JSON, with a text that must not be logged."""

    def utcoffset(self, dt: datetime.datetime | None) -> datetime.timedelta:
        raise LookupError(f"cannot read {SECRET}")


UNREADABLE = datetime.datetime(2026, 1, 1, tzinfo=BrokenZone())


def unreadable() -> Custom:
    return Custom(name="result", value={"note": "before", "part": UNREADABLE})


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_an_event_that_cannot_be_redacted_ends_the_run_and_is_not_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(run: Run) -> AsyncGenerator[Event, None]:
        yield TextMessageStart(message_id="m1", role="assistant")
        yield TextMessageContent(message_id="m1", delta="Look: ")
        yield unreadable()
        yield TextMessageContent(message_id="m1", delta="never")
        yield TextMessageEnd(message_id="m1")

    caplog.set_level(logging.DEBUG)
    async with runner_of(ScriptedAgent(script), WITH_SECRET) as runner:
        events = await run_once(runner, user("u1"))
        after = await run_once(runner, user("u2"))
    assert kinds(events) == [
        "RunStarted",
        "TextMessageStart",
        "TextMessageContent",
        "TextMessageEnd",
        "MessagesSnapshot",
        "RunError",
    ]
    assert isinstance(events[-1], RunError)
    assert (events[-1].code, isinstance(after[-1], RunError)) == ("redaction_failed", True)
    assert ("LookupError" in caplog.text, SECRET in caplog.text) == (True, False)


def swallowing(handler: RunHandler) -> RunHandler:
    """Middleware that hides every failure, and lets the run succeed."""

    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(handler(run)) as events:
                async for event in events:
                    yield event
        except RunnerError:
            for event in said("m2", "All is well."):
                yield event

    return handle


@pytest.mark.parametrize("event", [unreadable(), remember({"kept": UNREADABLE})], ids=["custom", "private"])
async def test_no_middleware_hides_that_redaction_failed(event: Event) -> None:
    async def script(run: Run) -> AsyncGenerator[Event, None]:
        yield event
        for more in said("m1", "never"):
            yield more

    async with runner_of(ScriptedAgent(script), WITH_SECRET, middleware=[swallowing]) as runner:
        events = await run_once(runner, user("u1"))
    assert kinds(events) == ["RunStarted", "MessagesSnapshot", "RunError"]
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "redaction_failed"


async def test_deltas_that_cannot_be_redacted_end_a_run_whose_agent_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas are redacted when the agent pauses, in the writer's own callback: an error there would stop the writers of other runs."""
    from ambient_runner.projections.redaction import Redactor

    def fail(self: Redactor, *args: object) -> Any:
        raise LookupError(args)

    async def script(run: Run) -> AsyncGenerator[Event, None]:
        yield TextMessageStart(message_id="m1", role="assistant")
        yield TextMessageContent(message_id="m1", delta="first ")
        yield Custom(name="written at once", value=1)
        for name in ("feed_groups", "feed_deltas", "feed"):
            monkeypatch.setattr(Redactor, name, fail, raising=False)
        yield TextMessageContent(message_id="m1", delta="second")
        await run.stopping.wait()

    with unless_hung():
        async with runner_of(ScriptedAgent(script), WITH_SECRET) as runner:
            events = await run_once(runner, user("u1"))
            monkeypatch.undo()
    assert [event.delta for event in events if isinstance(event, TextMessageContent)] == ["first "]
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "redaction_failed"


async def test_an_input_that_cannot_be_redacted_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ambient_runner.projections.redaction import Redactor

    def fail(self: Redactor, value: Any) -> Any:
        raise LookupError("bug")

    monkeypatch.setattr(Redactor, "redact_value", fail)
    async with (
        MemoryLedger() as ledger,
        Runner(ledger, {"agent": ScriptedAgent(lambda run: _no_events())}, WITH_SECRET) as runner,
    ):
        with pytest.raises(RunnerError) as raised:
            await run_once(runner, user("u1", f"It is {SECRET}."))
        assert (raised.value.code, await ledger.list_all_threads()) == ("redaction_failed", [])


async def _no_events() -> AsyncGenerator[Event, None]:
    raise NotImplementedError
    yield
