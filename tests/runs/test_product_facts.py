"""Products store facts with a thread, and their projector decides what clients see of them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from ambient_runner import StoredFact, register_projector
from ambient_runner.errors import ConfigError, UnknownThread
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.projectors import built_in_owners
from ambient_runner.protocol.events import Custom, encode_event
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from tests.world import KEY, ScriptedAgent, run_once, runner_of, said, user


async def answer(run: Run) -> AsyncIterator[Any]:
    for event in said("m", "hello"):
        yield event


async def frames_of(runner: Runner, owner: str) -> bytes:
    framer = Framer("e", wire_format="ndjson")
    return b"".join(
        [framer.render(batch, {}) for batch in await runner.ledger.read_batches(KEY, 0) if batch.owner == owner]
    )


async def test_clients_receive_what_the_projector_returns_and_nothing_else() -> None:
    def project(fact: StoredFact) -> Iterable[Custom]:
        yield Custom(name=f"orders:{fact.kind}", value={"id": fact.value["id"]})

    register_projector("market.orders", project)
    async with runner_of(ScriptedAgent(answer)) as runner:
        await run_once(runner, user("u"))
        await runner.append_fact(KEY, "market.orders", "shipped", {"id": 7, "warehouse": "secret"})
        [*_, fact] = await runner.ledger.read_batches(KEY, 0)
        assert await frames_of(runner, "market.orders") == (
            encode_event(Custom(name="orders:shipped", value={"id": 7}, timestamp=fact.ts)) + b"\n"
        )


async def test_a_fact_without_a_projector_is_stored_and_not_sent() -> None:
    async with runner_of(ScriptedAgent(answer)) as runner:
        await run_once(runner, user("u"))
        await runner.append_fact(KEY, "shop.unprojected", "shipped", {"id": 7})
        assert await frames_of(runner, "shop.unprojected") == b""
        assert (await runner.ledger.read_batches(KEY, 0))[-1].owner == "shop.unprojected"


async def test_a_projector_that_fails_sends_nothing_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(fact: StoredFact) -> Iterable[Custom]:
        yield Custom(name="orders:begun", value=1)
        raise RuntimeError("no database")

    register_projector("shop.failing", fail)
    async with runner_of(ScriptedAgent(answer)) as runner:
        await run_once(runner, user("u"))
        await runner.append_fact(KEY, "shop.failing", "shipped", {})
        with caplog.at_level(logging.ERROR):
            assert await frames_of(runner, "shop.failing") == b""
        assert "shop.failing" in caplog.text


async def test_an_event_that_a_product_may_not_send_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    register_projector("shop.forging", lambda fact: [Custom(name="ambient:gap", value={})])
    async with runner_of(ScriptedAgent(answer)) as runner:
        await run_once(runner, user("u"))
        await runner.append_fact(KEY, "shop.forging", "shipped", {})
        assert await frames_of(runner, "shop.forging") == b""


@pytest.mark.parametrize("owner", sorted(built_in_owners()))
async def test_a_product_writes_no_facts_of_the_server(owner: str) -> None:
    async with runner_of(ScriptedAgent(answer)) as runner:
        await run_once(runner, user("u"))
        with pytest.raises(ConfigError):
            await runner.append_fact(KEY, owner, "shipped", {})


async def test_a_fact_needs_a_thread() -> None:
    async with runner_of(ScriptedAgent(answer)) as runner:
        with pytest.raises(UnknownThread):
            await runner.append_fact(KEY, "market.orders", "shipped", {})
