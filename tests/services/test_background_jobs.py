"""Work that belongs to the server: joined, called off, and told of before anyone else hears."""

from __future__ import annotations

import logging

import anyio
import anyio.lowlevel
import pytest

from ambient_runner.errors import Draining, RepoConflict, ServiceError
from ambient_runner.services.background_jobs import Job, JobKey, Jobs
from tests.services.remotes import ANN, BOB

KEY = JobKey(ANN, "repo", "app")


async def test_who_asks_again_gets_the_same_outcome() -> None:
    started: list[str] = []
    go = anyio.Event()

    async def work() -> str:
        started.append("once")
        await go.wait()
        return "done"

    answers: list[str] = []

    async def ask() -> None:
        answers.append(await jobs.begin(KEY, "x", work).outcome())

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
                await jobs.begin(KEY, "x", refuse).outcome()
            assert await jobs.begin(KEY, "x", work).outcome() == "fine"


async def test_an_error_nobody_foresaw_is_logged_and_its_words_stay_there(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> str:
        raise RuntimeError("secret words")

    with anyio.fail_after(5), caplog.at_level(logging.ERROR):
        async with Jobs() as jobs:
            with pytest.raises(ServiceError) as failed:
                await jobs.begin(KEY, "x", crash).outcome()
            assert await jobs.begin(KEY, "x", _fine).outcome() == "fine"
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
            await jobs.begin(KEY, "x", work).outcome()

    with anyio.fail_after(5):
        async with Jobs() as jobs, anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await jobs.cancel(*jobs.under_way(ANN))
            assert cleaned == ["up"]
            assert await jobs.begin(KEY, "x", _fine).outcome() == "fine"


async def test_what_came_of_it_is_told_before_anyone_else_hears_and_once() -> None:
    told: list[tuple[list[str], str]] = []
    go = anyio.Event()

    async def tell(job: Job[str]) -> None:
        told.append((list(job.result), job.error.code if job.error else ""))

    async def refuse() -> str:
        await go.wait()
        raise RepoConflict

    with anyio.fail_after(5):
        async with Jobs() as jobs:
            first, joined = (jobs.begin(KEY, "x", refuse, tell) for _ in range(2))
            go.set()
            for job in (first, joined):
                with pytest.raises(RepoConflict):
                    await job.outcome()
            assert told == [([], "repo_conflict")]
            assert await jobs.begin(KEY, "x", _fine, tell).outcome() == "fine"
            assert told[1:] == [(["fine"], "")]


async def test_what_is_ended_from_outside_tells_nothing() -> None:
    told: list[object] = []

    async def tell(job: Job[None]) -> None:
        told.append(job)

    with anyio.fail_after(5):
        async with Jobs() as jobs:
            job = jobs.begin(KEY, "x", anyio.sleep_forever, tell)
            await anyio.wait_all_tasks_blocked()
            await jobs.cancel(*jobs.under_way(ANN))
            with pytest.raises(ServiceError):
                await job.outcome()
    assert told == []


async def test_a_teller_that_fails_does_not_harm_the_job() -> None:
    async def fail(job: object) -> None:
        raise RuntimeError

    with anyio.fail_after(5):
        async with Jobs() as jobs:
            assert await jobs.begin(KEY, "x", _fine, fail).outcome() == "fine"


async def test_nothing_begins_after_the_end() -> None:
    async with Jobs() as jobs:
        pass
    with pytest.raises(Draining):
        await jobs.begin(KEY, "x", _fine).outcome()


async def test_what_is_called_off_hears_of_the_shutdown_and_nothing_begins_after_it() -> None:
    """Both said that it failed, or was no longer wanted: a client could not know that trying again helps."""

    async def ask() -> None:
        with pytest.raises(Draining):
            await jobs.begin(KEY, "x", anyio.sleep_forever).outcome()

    with anyio.fail_after(5):
        async with Jobs() as jobs:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                jobs.call_off()
            with pytest.raises(Draining):
                await jobs.begin(KEY, "x", _fine).outcome()
