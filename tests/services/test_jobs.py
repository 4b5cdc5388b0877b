from __future__ import annotations

import logging

import anyio
import anyio.lowlevel
import pytest

from ambient_runner.errors import RepoConflict, ServiceError
from ambient_runner.services.jobs import JobKey, Jobs
from tests.services.remotes import ANN, BOB

KEY = JobKey(ANN, "app")


async def test_who_asks_again_gets_the_same_outcome() -> None:
    started: list[str] = []
    go = anyio.Event()

    async def work() -> str:
        started.append("once")
        await go.wait()
        return "done"

    answers: list[str] = []

    async def ask() -> None:
        answers.append(await jobs.join(KEY, "x", work))

    with anyio.fail_after(5):
        async with Jobs() as jobs, anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert [job.key for job in jobs.under_way(ANN)] == [KEY]
            assert jobs.under_way(BOB) == []
            go.set()
        assert answers == ["done"] * 3
        assert started == ["once"]
        assert jobs.find(KEY) is None


async def test_an_error_of_ours_reaches_who_waits_and_the_others_go_on() -> None:
    async def refuse() -> str:
        raise RepoConflict

    async def work() -> str:
        return "fine"

    with anyio.fail_after(5):
        async with Jobs() as jobs:
            with pytest.raises(RepoConflict):
                await jobs.join(KEY, "x", refuse)
            assert await jobs.join(KEY, "x", work) == "fine"


async def test_an_error_nobody_foresaw_is_logged_and_its_words_stay_there(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> str:
        raise RuntimeError("secret words")

    with anyio.fail_after(5), caplog.at_level(logging.ERROR):
        async with Jobs() as jobs:
            with pytest.raises(ServiceError) as failed:
                await jobs.join(KEY, "x", crash)
            assert await jobs.join(KEY, "x", _fine) == "fine"
    assert "secret" not in failed.value.message
    assert "secret words" in caplog.text


async def _fine() -> str:
    return "fine"


async def test_cancelling_waits_until_the_job_has_cleaned_up() -> None:
    cleaned: list[str] = []

    async def work() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                cleaned.append("up")
        raise NotImplementedError

    async def ask() -> None:
        with pytest.raises(ServiceError):
            await jobs.join(KEY, "x", work)

    with anyio.fail_after(5):
        async with Jobs() as jobs, anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await jobs.cancel(*jobs.under_way(ANN))
            assert cleaned == ["up"]
            assert await jobs.join(KEY, "x", _fine) == "fine"


async def test_nothing_begins_after_the_end() -> None:
    async with Jobs() as jobs:
        pass
    with pytest.raises(ServiceError):
        await jobs.join(KEY, "x", _fine)
