"""Routes that stream a thread: from its beginning, from a cursor, from a snapshot, or one run of it; and the list of its runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from ambient_runner.errors import EntriesDropped, InvalidInput, Refused, RunGone, StaleCursor, UnknownRun, UnknownThread
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.replay_snapshots import ReplaySnapshots, first_of_newest_ended_run
from ambient_runner.projections.thread_event import ThreadIdentity
from ambient_runner.projections.thread_status import run_members
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.projections.withdrawn import WithdrawnContent
from ambient_runner.protocol.encode import format_cursor, negotiate_format, parse_cursor
from ambient_runner.protocol.profiles import Profile
from ambient_runner.runs.event_reader import find_newest_ended_run
from ambient_runner.runs.reattach import gap_events
from ambient_runner.runs.run_history import list_retained_runs
from ambient_runner.runs.view_cache import (
    ThreadEpoch,
    load_view,
    read_despite_retention,
    require_thread,
)
from ambient_runner.server import metrics
from ambient_runner.server.connect_start import find_connect_start
from ambient_runner.server.end_conditions import NoEnd, UntilIdle, UntilRunEnds
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.event_stream import EventStream
from ambient_runner.server.request_parsing import client_profile, wants_all_snapshots, wants_snapshots
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.server.routes.threads import hidden_keys_of
from ambient_runner.server.stream_start import FIRST_WINDOW_BYTES, StreamStart
from ambient_runner.server.thread_request import parse_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.records import Batch, RunInfo, ThreadInfo, ThreadKey
    from ambient_runner.projections.frames import WireFormat
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run_history import RunDetails
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.end_conditions import EndCondition
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

_RUN_GONE = "This run is no longer retained, or only a part of it. `GET /threads/{id}/runs` lists those that are."


@dataclass(frozen=True, kw_only=True, slots=True)
class _StreamQuery:
    """The options of a stream. It keeps them instead of their request, which is most of the memory of an idle stream."""

    run: str | None
    is_connect: bool
    profile: Profile
    wire_format: WireFormat
    event_lines: bool
    strict: bool
    snapshots: bool
    all_snapshots: bool

    @classmethod
    def of_request(cls, request: Request) -> _StreamQuery:
        """Return the query of a request. Raises: InvalidInput if it names more than one start of the stream, or an unknown value."""
        query = request.query_params
        if query.get("from", "snapshot") != "snapshot":
            raise InvalidInput("`from` can only be `snapshot`.")
        if sum(name in query for name in ("from", "run", "after")) > 1:
            raise InvalidInput("Name one of `from`, `run` and `after`: each is another start of the stream.")
        return cls(
            run=query.get("run"),
            is_connect="from" in query,
            profile=client_profile(request, declared=None, assumed=Profile.V1.value),
            wire_format=negotiate_format(request.headers.get("accept")),
            event_lines=query.get("event_lines") == "1",
            strict=query.get("strict") == "1",
            snapshots=wants_snapshots(request),
            all_snapshots=wants_all_snapshots(request),
        )


def event_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the routes `/threads/{id}/events` and `/threads/{id}/runs`."""
    router = APIRouter(route_class=YieldingRoute)

    @router.get("/threads/{id:path}/events")
    async def stream_events(request: Request, id: str) -> Response:  # noqa: A002  the route's name
        return await _stream_events(runtime, request, (await guard(request)).thread_key(id))

    @router.get("/threads/{id:path}/runs")
    async def list_runs(request: Request, id: str) -> Response:  # noqa: A002
        return await _list_runs(runtime, request, (await guard(request)).thread_key(id))

    return router


async def _stream_events(runtime: ServerRuntime, request: Request, key: ThreadKey) -> Response:
    query = _StreamQuery.of_request(request)
    runner = await runtime.ensure_runner()
    info = await require_thread(runner.ledger, key)
    run = await _find_run(runner, info, query.run)
    until = _end_condition(runner, request, key, run)
    cursor = _resume_after(request, info)
    if run is not None and run.last and cursor is not None and cursor >= run.last:
        return Response(status_code=204)  # It has the whole run; on 204 an EventSource does not reconnect.
    thread = ThreadEpoch(key, info.epoch)
    find_start = partial(_find_start, runtime, runner, query, thread)
    return EventStream(runtime, runner, thread, await find_start(cursor, info), until=until, restart=find_start)


async def _find_start(
    runtime: ServerRuntime,
    runner: Runner,
    query: _StreamQuery,
    thread: ThreadEpoch,
    cursor: int | None,
    info: ThreadInfo | None = None,
) -> StreamStart:
    """Return the start that the query asks for, or that follows this entry. Raises: UnknownThread, RunGone, LedgerError.

    `info` is the thread's row if it was just read: it is read again only if retention has overtaken it.
    """
    if info is not None:
        with suppress(EntriesDropped):
            return await _read_start(runtime, runner, query, info, cursor)

    async def find_start() -> StreamStart:
        newer = await require_thread(runner.ledger, thread.key)
        if newer.epoch != thread.epoch:
            raise UnknownThread
        return await _read_start(runtime, runner, query, newer, cursor)

    return await read_despite_retention(runner.ledger, thread.key, find_start)


async def _read_start(
    runtime: ServerRuntime, runner: Runner, query: _StreamQuery, info: ThreadInfo, cursor: int | None
) -> StreamStart:
    """Return the start in the thread as it was when its row was read. Raises: EntriesDropped, UnknownThread, RunGone, LedgerError."""
    if cursor is None and query.is_connect:
        start = await _connect(runtime, runner, query, info)
    else:
        run = await _find_run(runner, info, query.run)
        start = await _resume(runtime, runner, query, info, run, cursor)
    return await _add_view(runner, info, start)


async def _read_following(runner: Runner, info: ThreadInfo, after: int) -> list[Batch]:
    """Return the first batches after an entry; none at the end of the thread.

    They are read before the stream opens, because retention may drop them meanwhile. Raises: EntriesDropped if it already has.
    """
    if after >= info.last:
        return []
    batches = await runner.ledger.read_batches(info.key, after, limit=FIRST_WINDOW_BYTES, epoch=info.epoch)
    if not batches or batches[0].first > after + 1:
        raise EntriesDropped
    return batches


async def _add_view(runner: Runner, info: ThreadInfo, start: StreamStart) -> StreamStart:
    """Return the start with the view that the first snapshot in its batches needs. Raises: EntriesDropped, UnknownThread, LedgerError.

    It is as of that snapshot and not of the start: near the end of a long run, a checkpoint is between the two.
    """
    if start.view is not None:
        return start
    seq = next((seqs[0] for batch in start.batches if (seqs := start.framer.view_seqs(batch))), None)
    if seq is None:
        return start
    return replace(start, view=await load_view(runner.ledger, info.key, until=seq, epoch=info.epoch))


async def _find_run(runner: Runner, info: ThreadInfo, key: str | None) -> RunInfo | None:
    """Return the run that the query names, or None. Raises: UnknownRun, RunGone."""
    if key is None:
        return None
    run = await runner.ledger.get_run(info.key, key)
    if run is None:
        raise UnknownRun
    if run.first < info.first:
        raise RunGone(_RUN_GONE)
    return run


def _end_condition(runner: Runner, request: Request, key: ThreadKey, run: RunInfo | None) -> EndCondition:
    until = request.query_params.get("until")
    if until not in {None, "idle"}:
        raise InvalidInput("`until` can only be `idle`.")
    if run is not None:
        return UntilRunEnds(run.key, is_own_stream=False)
    return UntilIdle(runner.ledger, key) if until == "idle" else NoEnd()


def _resume_after(request: Request, info: ThreadInfo) -> int | None:
    """Return the seq of the last event the client has; None if it names none. Raises: InvalidCursor, StaleCursor.

    A browser repeats the address when it reconnects, so Last-Event-ID takes precedence over `from` and continues a `run`.
    """
    text = request.query_params.get("after", request.headers.get("last-event-id"))
    if text is None:
        return None
    try:
        return _parse_seq(text, info)
    except Refused:
        metrics.RESUMES.labels("refused").inc()
        raise


def _parse_seq(text: str, info: ThreadInfo) -> int:
    cursor = parse_cursor(text)
    if cursor.epoch != info.epoch or cursor.seq > info.last:
        raise StaleCursor
    return cursor.seq


async def _connect(runtime: ServerRuntime, runner: Runner, query: _StreamQuery, info: ThreadInfo) -> StreamStart:
    """Return the entry that the connect stands for, and its frames."""
    start = await find_connect_start(runner, info)
    framer = await _create_framer(runtime, runner, query, info, after=start.seq)
    preface = start.render(framer, hidden_keys_of(runner, info))
    batches = await _read_following(runner, info, start.seq)
    return StreamStart(after=start.seq, framer=framer, preface=preface, view=start.view, batches=batches)


async def _resume(
    runtime: ServerRuntime,
    runner: Runner,
    query: _StreamQuery,
    info: ThreadInfo,
    run: RunInfo | None,
    cursor: int | None,
) -> StreamStart:
    """Return the entry to start after, and the frames to send before the next one."""
    begin = run.first - 1 if run else 0
    after = max(cursor or 0, begin)
    is_gap = after < info.first - 1
    reopening: list[Event] = []
    if after != begin and not is_gap:
        # Before the batches: they show if retention has dropped the run meanwhile.
        reopening = await runtime.reopening_points.reopen_events(runner.ledger, info.key, after)
    batches = await _read_following(runner, info, max(after, info.first - 1))
    selects_snapshots = run is None and not query.all_snapshots
    replay = await _select_snapshots(runner, info, after, batches) if selects_snapshots else None
    framer = await _create_framer(runtime, runner, query, info, after=after, replay=replay)
    if is_gap:
        view = await load_view(runner.ledger, info.key, until=info.first - 1, epoch=info.epoch)
        metrics.RESUMES.labels("gap").inc()
        events = gap_events(info, after, view, hidden_keys_of(runner, info))
        preface = framer.render_without_ids(events, view)
        return StreamStart(after=info.first - 1, framer=framer, preface=preface, view=view, batches=batches)
    if after == begin:
        return StreamStart(after=after, framer=framer, view=None if after else ThreadView(), batches=batches)
    metrics.RESUMES.labels("exact").inc()
    preface = framer.render_without_ids(reopening)
    return StreamStart(after=after, framer=framer, preface=preface, batches=batches, is_run_open=bool(preface))


async def _select_snapshots(
    runner: Runner, info: ThreadInfo, after: int, batches: Sequence[Batch]
) -> ReplaySnapshots | None:
    """Return the selection of the snapshots that are stored after this entry; None if all of them are sent.

    `batches` are the first ones after it. If they are all of them, the runs need no query.
    """
    if not batches:
        return None
    if batches[-1].last >= info.last:
        newest_run = first_of_newest_ended_run(batches)
    else:
        newest = await find_newest_ended_run(runner.ledger, info)
        newest_run = newest.first if newest else 0
    if newest_run <= after + 1:
        return None
    is_restated = after > 0 and (await runner.read_view(info)).is_restated_up_to(after)
    return ReplaySnapshots(newest_run=newest_run, is_restated=is_restated)


async def _create_framer(
    runtime: ServerRuntime,
    runner: Runner,
    query: _StreamQuery,
    info: ThreadInfo,
    *,
    after: int,
    replay: ReplaySnapshots | None = None,
) -> Framer:
    return Framer(
        info.epoch,
        query.profile,
        wire_format=query.wire_format,
        event_lines=query.event_lines,
        strict=query.strict,
        withdrawn=WithdrawnContent.of_view(await runner.read_view(info)) if after < info.last else None,
        exposure=runtime.audiences.exposure_for(info.agent),
        thread=ThreadIdentity.of_info(info),
        snapshots=query.snapshots,
        replay=replay,
    )


async def _list_runs(runtime: ServerRuntime, request: Request, key: ThreadKey) -> Response:
    ledger = (await runtime.ensure_runner()).ledger
    limit = parse_limit(request.query_params.get("limit"))
    text = request.query_params.get("before")

    async def read_runs() -> tuple[ThreadInfo, list[RunDetails]]:
        info = await require_thread(ledger, key)
        before = None if text is None else _parse_seq(text, info)
        return info, await list_retained_runs(ledger, info, limit=limit, before=before)

    info, runs = await read_despite_retention(ledger, key, read_runs)
    next_page = format_cursor(info.epoch, runs[-1].info.first) if len(runs) == limit else None
    return JsonResponse({"runs": [_listed_run(run, info.epoch) for run in runs], "next": next_page})


def _listed_run(run: RunDetails, epoch: str) -> dict[str, Any]:
    members = run_members(
        key=run.info.key,
        run_id=run.info.run_id,
        status=run.status,
        trace_id=run.trace_id,
        started=run.started,
        ended=run.ended,
        usage=run.usage,
    )
    last = {"last": format_cursor(epoch, run.info.last)} if run.info.last else {}
    return {**members, "events": run.entry_count, "first": format_cursor(epoch, run.info.first), **last}
