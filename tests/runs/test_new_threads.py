"""The first run of a thread begins in one transaction; on any other thread the request takes the way through the lease."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.errors import InvalidInput
from ambient_runner.ledger.base import Writer
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import IdempotencyClaim, ThreadKey
from ambient_runner.protocol.events import RunFinished
from ambient_runner.runs.runner import Runner
from tests.scripts import hello
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, user

CLAIM = IdempotencyClaim(scope="s", digest="d")


class RecordingLedger(MemoryLedger):
    """A ledger that records how leases are acquired."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def acquire_lease(self, key: ThreadKey, run: str, **options: Any) -> Writer:
        self.calls.append("acquire_lease")
        return await super().acquire_lease(key, run, **options)

    async def begin_thread(self, key: ThreadKey, run: str, *args: Any, **options: Any) -> Writer:
        self.calls.append("begin_thread")
        return await super().begin_thread(key, run, *args, **options)


def runner_on(ledger: MemoryLedger) -> Runner:
    return Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS)


async def test_the_first_run_of_a_thread_begins_in_one_transaction_and_the_next_with_the_lease() -> None:
    async with RecordingLedger() as ledger, runner_on(ledger) as runner:
        await run_once(runner, user("u1"))
        assert ledger.calls == ["begin_thread"]
        await run_once(runner, user("u1"), user("u2"))
        assert ledger.calls == ["begin_thread", "acquire_lease"]


async def test_a_thread_that_another_server_has_begun_goes_on() -> None:
    async with RecordingLedger() as ledger:
        async with runner_on(ledger) as runner:
            await run_once(runner, user("u1"))
        async with runner_on(ledger) as runner:
            started = await runner.start(request(user("u2")))
            assert isinstance((await events_of(runner, started))[-1], RunFinished)
            view = await runner.view_thread(KEY)
        assert ledger.calls == ["begin_thread", "begin_thread", "acquire_lease"]
        assert [message.id for message in view.transcript.messages() if message.id.startswith("u")] == ["u1", "u2"]


async def test_a_key_that_was_used_on_another_thread_finds_its_run() -> None:
    async with RecordingLedger() as ledger, runner_on(ledger) as runner:
        first = await runner.start(request(user("u1"), thread="a", claim=CLAIM))
        again = await runner.start(request(user("u1"), thread="b", claim=CLAIM))
        assert (again.run, again.thread, again.is_joined) == (first.run, first.thread, True)
        assert await ledger.get_thread(first.thread._replace(id="b")) is None
        await events_of(runner, first)


async def test_a_request_that_is_refused_leaves_no_thread() -> None:
    async with RecordingLedger() as ledger, runner_on(ledger) as runner:
        with pytest.raises(InvalidInput):
            await runner.start(request())
        assert await ledger.get_thread(KEY) is None
        assert await ledger.list_active_threads(KEY.tenant, KEY.owner) == []
