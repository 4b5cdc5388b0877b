"""Routes for threads: stream and resume their events, list, read, patch and erase them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from ambient_runner.errors import InvalidInput, InvalidPatch, PatchConflict, Refused, StaleCursor, UnknownThread
from ambient_runner.ledger.records import Fact
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.known_calls import find_call_in
from ambient_runner.projections.safe import safe_snapshot
from ambient_runner.projections.state import SharedState
from ambient_runner.projections.thread_view import PATCHED, STATE_OWNER
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.encode import negotiate_format, parse_cursor
from ambient_runner.protocol.events import MessagesSnapshot, StateSnapshot, encode_event
from ambient_runner.protocol.profiles import Profile
from ambient_runner.runs.interrupt_answers import check_state_is_free
from ambient_runner.runs.reattach import gap_events, reopen_events
from ambient_runner.runs.view_cache import ThreadEpoch, load_view
from ambient_runner.server import metrics
from ambient_runner.server.end_conditions import NoEnd, UntilIdle
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.event_stream import EventStream
from ambient_runner.server.request_parsing import client_profile, read_body
from ambient_runner.server.routes.base import YieldingRoute

if TYPE_CHECKING:
    from ambient_runner.ledger.records import ThreadInfo, ThreadKey
    from ambient_runner.runs.run import Actor
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

_PATCH_TYPES = ("application/json", "application/json-patch+json")
_MAX_PATCH_BYTES = 1 << 20
_PAGE_SIZE = 100
_MAX_PAGE_SIZE = 1000
_MAX_ATTEMPTS = 10


def thread_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the routes `/threads/{id}/events`, `/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`, `/state_snapshot/{id}`,
    `/state/{id}`."""
    router = APIRouter(route_class=YieldingRoute)

    @router.get("/threads/{id:path}/events")
    async def stream_events(request: Request, id: str) -> Response:  # noqa: A002  the route's name
        return await _stream_events(runtime, request, (await guard(request)).thread_key(id))

    @router.get("/thread/list")
    async def list_threads(request: Request) -> Response:
        return await _list_threads(runtime, request, await guard(request))

    @router.get("/message_snapshot/{id:path}")
    async def message_snapshot(request: Request, id: str) -> Response:  # noqa: A002
        key = (await guard(request)).thread_key(id)
        return JsonResponse(encode_event(await read_messages(runtime, key)))

    @router.get("/state_snapshot/{id:path}")
    async def state_snapshot(request: Request, id: str) -> Response:  # noqa: A002
        key = (await guard(request)).thread_key(id)
        runner = await runtime.ensure_runner()
        view = await runner.view_thread(key)
        return _state_response(view.state, await hidden_keys(runner, key))

    @router.patch("/state/{id:path}")
    async def patch_state(request: Request, id: str) -> Response:  # noqa: A002
        return await _patch_response(runtime, request, (await guard(request)).thread_key(id))

    @router.delete("/thread/{id:path}")
    async def delete_thread(request: Request, id: str) -> Response:  # noqa: A002
        await runtime.erase_thread((await guard(request)).thread_key(id))
        return JsonResponse({"threadId": id, "deleted": True})

    return router


async def _stream_events(runtime: ServerRuntime, request: Request, key: ThreadKey) -> Response:
    runner = await runtime.ensure_runner()
    info = await runner.ledger.get_thread(key)
    if info is None:
        raise UnknownThread
    form = negotiate_format(request.headers.get("accept"))
    query = request.query_params
    after = _resume_after(request, info)
    framer = Framer(
        info.epoch,
        client_profile(request, declared=None, assumed=Profile.V1.value),
        wire_format=form,
        event_lines=query.get("event_lines") == "1",
        strict=query.get("strict") == "1",
        withdrawn=await runner.find_withdrawn_content(key) if after < info.last else None,
        exposure=runtime.audiences.exposure_for(info.agent),
    )
    start, preface = await _start_position(runner, info, framer, after)
    return EventStream(
        runtime,
        runner,
        ThreadEpoch(key, info.epoch),
        framer,
        after=start,
        preface=preface,
        until=UntilIdle(runner.ledger, key) if _ends_when_idle(query.get("until")) else NoEnd(),
    )


def _ends_when_idle(until: str | None) -> bool:
    if until not in {None, "idle"}:
        raise InvalidInput("`until` can only be `idle`.")
    return until == "idle"


def _resume_after(request: Request, info: ThreadInfo) -> int:
    """Return the seq of the last event the client has; 0 for none. Raises: InvalidCursor, StaleCursor."""
    text = request.query_params.get("after", request.headers.get("last-event-id"))
    if text is None:
        return 0
    try:
        cursor = parse_cursor(text)
        if cursor.epoch != info.epoch or cursor.seq > info.last:
            raise StaleCursor
    except Refused:
        metrics.RESUMES.labels("refused").inc()
        raise
    return cursor.seq


async def _start_position(runner: Runner, info: ThreadInfo, framer: Framer, after: int) -> tuple[int, bytes]:
    """Return the seq to start after, and the frames to send before it."""
    if after < info.first - 1:
        view = await load_view(runner.ledger, info.key, until=info.first - 1)
        metrics.RESUMES.labels("gap").inc()
        events = gap_events(info, after, view, await hidden_keys(runner, info.key))
        return info.first - 1, framer.render_without_ids(events, view)
    if not after:
        return 0, b""
    metrics.RESUMES.labels("exact").inc()
    return after, framer.render_without_ids(await reopen_events(runner.ledger, info.key, after))


async def read_messages(runtime: ServerRuntime, key: ThreadKey) -> MessagesSnapshot:
    """Return the messages of a thread as clients of its agent see them. Raises: UnknownThread."""
    runner = await runtime.ensure_runner()
    info = await runner.ledger.get_thread(key)
    view = await runner.view_thread(key)
    snapshot = MessagesSnapshot(messages=view.transcript.messages())
    exposure = runtime.audiences.exposure_for(info.agent) if info else None
    return snapshot if exposure is None else safe_snapshot(snapshot, exposure, find_call_in(view))


async def _list_threads(runtime: ServerRuntime, request: Request, actor: Actor) -> Response:
    runner = await runtime.ensure_runner()
    limit = min(max(_integer_param(request, "limit") or _PAGE_SIZE, 1), _MAX_PAGE_SIZE)
    page = await runner.ledger.list_threads(
        actor.tenant, actor.owner, limit=limit, before=_integer_param(request, "before")
    )
    threads = [
        {
            "threadId": info.key.id,
            "agent": info.agent,
            "createdAt": info.created,
            "updatedAt": info.updated,
            "running": bool(info.active),
        }
        for info in page
    ]
    return JsonResponse({"threads": threads, "next": page[-1].updated if len(page) == limit else None})


def _integer_param(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(f"`{name}` must be a whole number.")
    return int(text)


async def _patch_response(runtime: ServerRuntime, request: Request, key: ThreadKey) -> Response:
    body = await read_patch(request)
    runner = await runtime.ensure_runner()
    return _state_response(*await patch_state(runner, key, body))


async def patch_state(runner: Runner, key: ThreadKey, body: bytes) -> tuple[SharedState, frozenset[str]]:
    """Apply a JSON Patch to a thread's visible state; return the new state and the hidden keys.

    Raises: InvalidPatch, PatchConflict, PendingInterrupts, UnknownThread, ThreadBusy.
    """
    operations = runner.secrets.redact_client_value(key, parse_patch(body), "state")
    fact = Fact(owner=STATE_OWNER, kind=PATCHED, body=msgspec.json.encode({"patch": operations}))
    hidden = await hidden_keys(runner, key)
    for _ in range(_MAX_ATTEMPTS):
        view = await runner.view_thread(key)
        check_state_is_free(view)
        patched = view.state.with_client_patch(operations, hidden)
        with suppress(StaleCursor):  # The thread has changed since: apply the patch to the new state.
            await runner.ledger.append_facts(key, [fact], expect=view.seq)
            return SharedState(patched), hidden
    raise PatchConflict


def parse_patch(body: bytes) -> Any:
    """Return the JSON value of a patch; the state validates it. Raises: InvalidPatch."""
    try:
        return strict_json.loads(body)
    except InvalidInput as error:
        raise InvalidPatch(error.message) from error


async def read_patch(request: Request) -> bytes:
    """Return the body of a patch. Raises: UnsupportedMediaType, PayloadTooLarge, InvalidInput."""
    return await read_body(request, _MAX_PATCH_BYTES, media_types=_PATCH_TYPES)


def _state_response(state: SharedState, hidden: frozenset[str]) -> JsonResponse:
    return JsonResponse(encode_event(StateSnapshot(snapshot=state.visible_part(hidden))))


async def hidden_keys(runner: Runner, key: ThreadKey) -> frozenset[str]:
    """Return the state keys that the thread's agent hides from clients."""
    info = await runner.ledger.get_thread(key)
    agent = runner.agents.get(info.agent) if info else None
    return agent.hidden_state if agent else frozenset()
