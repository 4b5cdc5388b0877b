"""Feedback as a fact of its thread and a score of its trace."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from ambient_runner.config import LangfuseSettings, Settings
from ambient_runner.errors import InvalidFeedback, InvalidInput, UnknownThread
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.protocol.events import Event, RunStarted
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from ambient_runner.services.feedback import Feedback, LangfuseScores, Payload, Score, read_feedback, record_feedback
from tests.machine_speed import unless_hung
from tests.receiver import SCORES, receiving
from tests.scripts import begun, forever, hello
from tests.world import KEY, ScriptedAgent, run_once, runner_of, user

SECRET = "sk-live-0123456789abcdef"
SETTINGS = Settings(store="memory://", history="server", secrets=(SECRET,))


class Notebook:
    """Scores kept in a list; `takes` says whether they arrive."""

    def __init__(self, *, takes: bool = True) -> None:
        self.scores: list[Score] = []
        self._takes = takes

    async def send_score(self, score: Score) -> bool:
        self.scores.append(score)
        return self._takes


def thumbs(up: bool = True, **payload: Any) -> Feedback:
    return Feedback(type="META", meta_type="thumbs_up" if up else "thumbs_down", payload=Payload(**payload))


def langfuse(url: str) -> LangfuseSettings:
    return LangfuseSettings(url=url, public_key="pk-lf-1", secret_key="sk-lf-1", stage="staging")


async def facts(runner: Runner) -> list[dict[str, Any]]:
    batches = await runner.ledger.read_batches(KEY, 0)
    return [json.loads(line) for batch in batches if batch.owner == "ambient.feedback" for line in batch.lines]


def trace_and_message(events: list[Event]) -> tuple[str, str]:
    """The trace of a run and the id of its message."""
    started = events[0]
    assert isinstance(started, RunStarted)
    assert started.metadata is not None
    [message] = {event.message_id for event in events if hasattr(event, "message_id")}  # type: ignore[attr-defined]
    return started.metadata["traceId"], message


async def test_feedback_on_a_message_scores_the_trace_of_the_run_that_wrote_it() -> None:
    book = Notebook()
    async with runner_of(ScriptedAgent(hello)) as runner:
        runs = [trace_and_message(await run_once(runner, user(f"u{at}"))) for at in range(3)]
        for _, message in runs:
            _, recorded = await record_feedback(runner, KEY, thumbs(message_id=message), book)
            assert recorded
        kept = await facts(runner)
    assert [score.trace_id for score in book.scores] == [trace for trace, _ in runs]
    assert kept == [
        {"messageId": message, "metaType": "thumbs_up", "userId": "local", "recorded": True, "traceId": trace}
        for trace, message in runs
    ]


async def test_a_trace_that_is_named_is_scored_if_this_thread_has_it() -> None:
    book = Notebook()
    async with runner_of(ScriptedAgent(hello)) as runner:
        mine, _ = trace_and_message(await run_once(runner, user("u1")))
        newer, message = trace_and_message(await run_once(runner, user("u2")))
        others, _ = trace_and_message(await run_once(runner, user("u1"), thread="other"))
        assert await record_feedback(runner, KEY, thumbs(trace_id=mine, message_id=message), book) == (
            Payload(trace_id=mine, message_id=message),
            True,
        )
        assert (await record_feedback(runner, KEY, thumbs(trace_id=others), book))[1] is False
    assert [score.trace_id for score in book.scores] == [mine]
    assert newer != mine


async def test_without_a_message_or_a_trace_the_newest_run_is_meant() -> None:
    book = Notebook()
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        newest, _ = trace_and_message(await run_once(runner, user("u2")))
        await record_feedback(runner, KEY, thumbs(up=False), book)
        # A fact after the run is not a run.
        await record_feedback(runner, KEY, thumbs(up=True), book)
    assert [(score.trace_id, score.value) for score in book.scores] == [(newest, False), (newest, True)]


async def test_feedback_on_an_unknown_message_is_stored_and_not_scored() -> None:
    book = Notebook()
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        assert (await record_feedback(runner, KEY, thumbs(message_id="never-said"), book))[1] is False
        [kept] = await facts(runner)
    assert book.scores == []
    assert kept == {"messageId": "never-said", "metaType": "thumbs_up", "userId": "local", "recorded": False}


async def test_a_score_that_did_not_arrive_is_not_recorded() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        assert (await record_feedback(runner, KEY, thumbs(), Notebook(takes=False)))[1] is False
        assert (await record_feedback(runner, KEY, thumbs(), None))[1] is False
        assert [fact["recorded"] for fact in await facts(runner)] == [False, False]


async def test_repeated_or_changed_feedback_keeps_one_score_per_user() -> None:
    book = Notebook()
    async with runner_of(ScriptedAgent(hello)) as runner:
        _, message = trace_and_message(await run_once(runner, user("u1")))
        for feedback in (
            thumbs(message_id=message, user_id="ann"),
            thumbs(message_id=message, user_id="ann"),
            thumbs(up=False, message_id=message, user_id="ann"),
            thumbs(message_id=message, user_id="bob"),
        ):
            await record_feedback(runner, KEY, feedback, book)
    ids = [score.id for score in book.scores]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert [score.value for score in book.scores] == [True, True, False, True]


async def test_secrets_stay_out_of_the_fact_and_the_score() -> None:
    book = Notebook()
    async with runner_of(ScriptedAgent(hello), SETTINGS) as runner:
        await run_once(runner, user("u1"))
        payload, _ = await record_feedback(runner, KEY, thumbs(comment=f"it showed {SECRET}", reason=SECRET), book)
        kept = await facts(runner)
    assert payload == Payload(comment="it showed [redacted]", reason="[redacted]")
    assert [SECRET in str(kept), SECRET in book.scores[0].comment, SECRET in str(book.scores[0].metadata)] == [
        False
    ] * 3
    assert book.scores[0].comment == "it showed [redacted]"


async def test_feedback_on_an_earlier_message_is_accepted_during_a_run() -> None:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        async for event in forever(run) if run.is_continuation else hello(run):
            yield event

    book = Notebook()
    async with runner_of(ScriptedAgent(script)) as runner:
        trace, message = trace_and_message(await run_once(runner, user("u1")))
        await begun(runner, user("u2"))
        assert (await record_feedback(runner, KEY, thumbs(message_id=message), book))[1] is True
        await runner.stop(KEY)
    assert [(score.trace_id, score.metadata["owner"]) for score in book.scores] == [(trace, "local")]


async def test_a_thread_of_someone_else_does_not_exist() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        for key in (ThreadKey("default", "bob", "t"), ThreadKey("default", "local", "unknown")):
            with pytest.raises(UnknownThread):
                await record_feedback(runner, key, thumbs(), Notebook())


async def test_langfuse_gets_one_request_with_the_score() -> None:
    score = Score(id="feedback-1", trace_id="ab" * 16, value=False, comment="too long", metadata={"user": "ann"})
    with receiving() as receiver:
        assert await LangfuseScores(langfuse(receiver.url)).send_score(score)
    [post] = receiver.posts
    assert (post.path, post.headers["authorization"]) == (SCORES, langfuse("").authorization)
    assert json.loads(post.body) == {
        "id": "feedback-1",
        "traceId": "ab" * 16,
        "name": "user-feedback",
        "value": 0,
        "dataType": "BOOLEAN",
        "comment": "too long",
        "metadata": {"user": "ann"},
        "environment": "staging",
    }


@pytest.mark.parametrize("status", [301, 400, 401, 500])
async def test_a_response_other_than_success_is_not_recorded(status: int, caplog: pytest.LogCaptureFixture) -> None:
    score = Score(id="f", trace_id="ab" * 16, value=True, comment="a private remark")
    with receiving(answer=status) as receiver:
        assert not await LangfuseScores(langfuse(receiver.url)).send_score(score)
    assert len(receiver.posts) == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "private" not in caplog.text


async def test_a_langfuse_that_never_answers_is_not_waited_for_and_the_loop_continues() -> None:
    score = Score(id="f", trace_id="ab" * 16, value=True)
    order: list[str] = []

    async def look() -> None:
        await hole.until(lambda receiver: bool(receiver.posts))
        order.append("it has come and is not answered")

    with receiving(answer=0) as hole, unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            assert not await LangfuseScores(langfuse(hole.url), timeout=1.0).send_score(score)
            order.append("given up")
    assert order == ["it has come and is not answered", "given up"]


async def test_a_score_for_an_unreachable_server_is_not_recorded() -> None:
    assert not await LangfuseScores(langfuse("http://127.0.0.1:1")).send_score(
        Score(id="f", trace_id="ab" * 16, value=True)
    )


def test_feedback_is_parsed_into_its_fields() -> None:
    body = {
        "type": "META",
        "metaType": "thumbs_down",
        "threadId": "t",
        "ts": 1,
        "payload": {"messageId": "m1", "comment": "no", "transcript": [{"role": "user"}], "includeTranscript": True},
    }
    assert read_feedback(json.dumps(body).encode()) == Feedback(
        type="META", meta_type="thumbs_down", thread_id="t", payload=Payload(message_id="m1", comment="no")
    )


@pytest.mark.parametrize("change", [{"type": "CUSTOM"}, {"metaType": "shrug"}, {"metaType": ""}])
def test_invalid_feedback_is_refused(change: dict[str, str]) -> None:
    body = {"type": "META", "metaType": "thumbs_up", "payload": {}} | change
    with pytest.raises(InvalidFeedback):
        read_feedback(json.dumps(body).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"type":"META","metaType":"thumbs_up"}',
        b'{"type":"META","metaType":"thumbs_up","payload":{"comment":1}}',
        b'{"type":"META","metaType":"thumbs_up","payload":{},"threadId":7}',
        b'{"type":"META","metaType":"thumbs_up","payload":' + b"[" * 100_000,
        b'{"type":"META","metaType":"thumbs_up","payload":{},"more":' + b"[" * 64 + b"]" * 64 + b"}",
        json.dumps({"type": "META", "metaType": "thumbs_up", "payload": {"comment": "x" * 10_001}}).encode(),
        json.dumps({"type": "META", "metaType": "thumbs_up", "payload": {"messageId": "x" * 257}}).encode(),
    ],
)
def test_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_feedback(body)
