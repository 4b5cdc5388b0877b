"""Clients that disconnect during an ADK run: it stops or continues as requested, nothing is left over, and the next run works."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.bridges.adk.test_cuts import CASES, EVERYWHERE

from .leaving import (
    Client,
    check_a_hanging_model_goes_on_until_it_is_stopped,
    check_a_hanging_model_is_stopped,
    check_leaving,
    check_tasks_of_the_sdk_are_seen,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from .server import Child


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Child]:
    with serving("tests.e2e.adk_app:app", tmp_path_factory.mktemp("adk")) as child:
        yield child


def client_of(server: Child, case: str) -> Client:
    return Client(url=server.url, agent=case, fine="Fine.", answer={"confirmed": True})


@pytest.mark.parametrize("policy", ["stop", "continue"])
@pytest.mark.parametrize("case", CASES)
async def test_a_disconnecting_client_decides_about_its_run(server: Child, case: str, policy: str) -> None:
    def places(anywhere: range) -> list[int]:
        return list(anywhere) if case in EVERYWHERE else Random(case).sample(anywhere, min(5, len(anywhere)))

    await check_leaving(client_of(server, case), policy, places)


async def test_a_model_that_hangs_is_stopped_within_the_grace(server: Child) -> None:
    await check_a_hanging_model_is_stopped(client_of(server, "hanging"))


async def test_a_model_that_hangs_continues_when_its_client_says_so(server: Child) -> None:
    await check_a_hanging_model_goes_on_until_it_is_stopped(client_of(server, "hanging"))


async def test_tasks_the_sdk_leaves_behind_would_be_seen(server: Child) -> None:
    await check_tasks_of_the_sdk_are_seen(client_of(server, "parallel"), "cut 5")
