"""The doors to threads: watch and resume one, and the history API."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from ambient_runner.errors import InvalidInput, InvalidPatch, PatchConflict, Refused, StaleCursor, UnknownThread
from ambient_runner.ledger.base import Fact
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.state import SharedState
from ambient_runner.projections.thread_view import PATCHED, STATE_OWNER
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.encode import negotiate, parse_cursor
from ambient_runner.protocol.events import MessagesSnapshot, StateSnapshot, encode_event
from ambient_runner.protocol.profiles import Profile, profile_of
from ambient_runner.runs import metrics
from ambient_runner.runs.reattach import gap, reopening
from ambient_runner.runs.view_cache import Life, load_view
from ambient_runner.server.end_conditions import Never, UntilIdle
from ambient_runner.server.error_responses import AmbientRoute, Json
from ambient_runner.server.event_stream import EventStream
from ambient_runner.server.request_parsing import read_body

if TYPE_CHECKING:
    from ambient_runner.ledger.base import ThreadInfo, ThreadKey
    from ambient_runner.projections.redaction import Redactor
    from ambient_runner.runs.run import Actor
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import Service

PATCH_TYPES = ("application/json", "application/json-patch+json")
MAX_PATCH = 1 << 20
_PAGE = 100
_MAX_PAGE = 1000
_TRIES = 10


def thread_routes(service: Service, guard: Guard) -> APIRouter:
    """`GET /threads/{id}/events`, `/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`, `/state_snapshot/{id}` and `/state/{id}`."""
    router = APIRouter(route_class=AmbientRoute)

    @router.get("/threads/{id:path}/events")
    async def events(request: Request, id: str) -> Response:  # noqa: A002  the route's name
        return await _events(service, request, (await guard(request)).thread(id))

    @router.get("/thread/list")
    async def threads(request: Request) -> Response:
        return await _list(service, request, await guard(request))

    @router.get("/message_snapshot/{id:path}")
    async def message_snapshot(request: Request, id: str) -> Response:  # noqa: A002
        key = (await guard(request)).thread(id)
        view = await (await service.runner()).view(key)
        return Json(encode_event(MessagesSnapshot(messages=view.transcript.messages())))

    @router.get("/state_snapshot/{id:path}")
    async def state_snapshot(request: Request, id: str) -> Response:  # noqa: A002
        key = (await guard(request)).thread(id)
        runner = await service.runner()
        view = await runner.view(key)
        return _state(view.state, await hidden_keys(runner, key))

    @router.patch("/state/{id:path}")
    async def patch_state(request: Request, id: str) -> Response:  # noqa: A002
        return await _patch(service, request, (await guard(request)).thread(id))

    @router.delete("/thread/{id:path}")
    async def delete(request: Request, id: str) -> Response:  # noqa: A002
        await service.erase((await guard(request)).thread(id))
        return Json({"threadId": id, "deleted": True})

    return router


async def _events(service: Service, request: Request, key: ThreadKey) -> Response:
    runner = await service.runner()
    info = await runner.ledger.thread(key)
    if info is None:
        raise UnknownThread
    form = negotiate(request.headers.get("accept"))
    query = request.query_params
    framer = Framer(
        info.epoch,
        _profile(query.get("protocol")),
        form=form,
        event_lines=query.get("event_lines") == "1",
        strict=query.get("strict") == "1",
    )
    after = _resume_after(request, info)
    begin, preface = await _opening(runner, info, framer, after)
    return EventStream(
        service,
        runner,
        Life(key, info.epoch),
        framer,
        after=begin,
        preface=preface,
        until=UntilIdle(runner.ledger, key) if _until_idle(query.get("until")) else Never(),
    )


def _profile(asked: str | None) -> Profile:
    return Profile.V1 if asked is None else profile_of(asked)


def _until_idle(asked: str | None) -> bool:
    if asked not in {None, "idle"}:
        raise InvalidInput("`until` can only be `idle`.")
    return asked == "idle"


def _resume_after(request: Request, info: ThreadInfo) -> int:
    """The seq a reader has already seen; 0 for none. Raises: InvalidCursor, StaleCursor."""
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


async def _opening(runner: Runner, info: ThreadInfo, framer: Framer, after: int) -> tuple[int, bytes]:
    """Where to begin, and the frames this reader needs before that."""
    if after < info.first - 1:
        view = await load_view(runner.ledger, info.key, until=info.first - 1)
        metrics.RESUMES.labels("gap").inc()
        return info.first - 1, framer.bare(gap(info, after, view, await hidden_keys(runner, info.key)))
    if not after:
        return 0, b""
    metrics.RESUMES.labels("exact").inc()
    return after, framer.bare(await reopening(runner.ledger, info.key, after))


async def _list(service: Service, request: Request, actor: Actor) -> Response:
    runner = await service.runner()
    limit = min(max(_number(request, "limit") or _PAGE, 1), _MAX_PAGE)
    page = await runner.ledger.threads(actor.tenant, actor.owner, limit=limit, before=_number(request, "before"))
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
    return Json({"threads": threads, "next": page[-1].updated if len(page) == limit else None})


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(f"`{name}` must be a whole number.")
    return int(text)


async def _patch(service: Service, request: Request, key: ThreadKey) -> Response:
    body = await read_body(request, MAX_PATCH, types=PATCH_TYPES)
    runner = await service.runner()
    return _state(*await patch_state(runner, key, body))


async def patch_state(runner: Runner, key: ThreadKey, body: bytes) -> tuple[SharedState, frozenset[str]]:
    """Apply a JSON Patch to a thread's visible state; gives the state and which keys are hidden.

    Raises: InvalidPatch, PatchConflict, UnknownThread, ThreadBusy.
    """
    operations = _operations(body, runner.redactor())
    fact = Fact(owner=STATE_OWNER, kind=PATCHED, body=msgspec.json.encode({"patch": operations}))
    hidden = await hidden_keys(runner, key)
    for _ in range(_TRIES):
        view = await runner.view(key)
        patched = view.state.patch(operations, hidden)
        with suppress(StaleCursor):  # Someone else was faster: patch what they left.
            await runner.ledger.note(key, [fact], expect=view.seq)
            return SharedState(patched), hidden
    raise PatchConflict


def _operations(body: bytes, redactor: Redactor) -> Any:
    """The patch as it was sent, without secrets. Whether it is one is for the state to say."""
    try:
        operations = strict_json.loads(body)
    except InvalidInput as error:
        raise InvalidPatch(error.message) from error
    return redactor.redact_value(operations)


def _state(state: SharedState, hidden: frozenset[str]) -> Json:
    return Json(encode_event(StateSnapshot(snapshot=state.visible(hidden))))


async def hidden_keys(runner: Runner, key: ThreadKey) -> frozenset[str]:
    """The state keys this thread's agent keeps to itself."""
    info = await runner.ledger.thread(key)
    agent = runner.agents.get(info.agent) if info else None
    return agent.hidden_state if agent else frozenset()
