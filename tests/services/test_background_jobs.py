"""Background jobs: joined, cancelled, and reported to `on_done` before any waiter resumes."""

from __future__ import annotations

import logging

import anyio
import anyio.lowlevel
import pytest

from ambient_runner.errors import Draining, RepoConflict, ServiceError
from ambient_runner.services.background_jobs import BackgroundJob, BackgroundJobs, JobKey
from tests.machine_speed import unless_hung
from tests.services.remotes import ANN, BOB

KEY = JobKey(ANN, "repo", "app")


async def test_a_second_request_gets_the_same_result() -> None:
    started: list[str] = []
    go = anyio.Event()

    async def work() -> str:
        started.append("once")
        await go.wait()
        return "done"

    answers: list[str] = []

    async def ask() -> None:
        answers.append(await jobs.start_or_join(KEY, "x", work).wait_for_result())

    with unless_hung():
        async with BackgroundJobs() as jobs, anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert [job.key for job in jobs.for_thread(ANN)] == [KEY]
            assert jobs.for_thread(BOB) == []
            go.set()
        assert answers == ["done"] * 3
        assert started == ["once"]
        assert jobs.find(KEY) is None


async def test_a_runner_error_reaches_the_waiters_and_other_jobs_continue() -> None:
    async def refuse() -> str:
        raise RepoConflict

    async def work() -> str:
        return "fine"

    with unless_hung():
        async with BackgroundJobs() as jobs:
            with pytest.raises(RepoConflict):
                await jobs.start_or_join(KEY, "x", refuse).wait_for_result()
            assert await jobs.start_or_join(KEY, "x", work).wait_for_result() == "fine"


async def test_an_unexpected_error_is_logged_and_its_text_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> str:
        raise RuntimeError("secret words")

    with unless_hung(), caplog.at_level(logging.ERROR):
        async with BackgroundJobs() as jobs:
            with pytest.raises(ServiceError) as failed:
                await jobs.start_or_join(KEY, "x", crash).wait_for_result()
            assert await jobs.start_or_join(KEY, "x", _fine).wait_for_result() == "fine"
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
            await jobs.start_or_join(KEY, "x", work).wait_for_result()

    with unless_hung():
        async with BackgroundJobs() as jobs, anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await jobs.cancel_and_wait(*jobs.for_thread(ANN))
            assert cleaned == ["up"]
            assert await jobs.start_or_join(KEY, "x", _fine).wait_for_result() == "fine"


async def test_on_done_is_called_once_before_any_waiter_resumes() -> None:
    calls: list[tuple[list[str], str]] = []
    go = anyio.Event()

    async def tell(job: BackgroundJob[str]) -> None:
        calls.append((list(job.result), job.error.code if job.error else ""))

    async def refuse() -> str:
        await go.wait()
        raise RepoConflict

    with unless_hung():
        async with BackgroundJobs() as jobs:
            first, joined = (jobs.start_or_join(KEY, "x", refuse, tell) for _ in range(2))
            go.set()
            for job in (first, joined):
                with pytest.raises(RepoConflict):
                    await job.wait_for_result()
            assert calls == [([], "repo_conflict")]
            assert await jobs.start_or_join(KEY, "x", _fine, tell).wait_for_result() == "fine"
            assert calls[1:] == [(["fine"], "")]


async def test_a_cancelled_job_does_not_call_its_callback() -> None:
    calls: list[object] = []

    async def tell(job: BackgroundJob[None]) -> None:
        calls.append(job)

    with unless_hung():
        async with BackgroundJobs() as jobs:
            job = jobs.start_or_join(KEY, "x", anyio.sleep_forever, tell)
            await anyio.wait_all_tasks_blocked()
            await jobs.cancel_and_wait(*jobs.for_thread(ANN))
            with pytest.raises(ServiceError):
                await job.wait_for_result()
    assert calls == []


async def test_a_teller_that_fails_does_not_harm_the_job() -> None:
    async def fail(job: object) -> None:
        raise RuntimeError

    with unless_hung():
        async with BackgroundJobs() as jobs:
            assert await jobs.start_or_join(KEY, "x", _fine, fail).wait_for_result() == "fine"


async def test_nothing_begins_after_the_end() -> None:
    async with BackgroundJobs() as jobs:
        pass
    with pytest.raises(Draining):
        await jobs.start_or_join(KEY, "x", _fine).wait_for_result()


async def test_waiters_get_draining_on_shutdown_and_nothing_starts_after_it() -> None:
    """Bug: both reported a failure or a cancellation, so that a client could not know that a retry helps."""

    async def ask() -> None:
        with pytest.raises(Draining):
            await jobs.start_or_join(KEY, "x", anyio.sleep_forever).wait_for_result()

    with unless_hung():
        async with BackgroundJobs() as jobs:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                jobs.cancel_all()
            with pytest.raises(Draining):
                await jobs.start_or_join(KEY, "x", _fine).wait_for_result()
