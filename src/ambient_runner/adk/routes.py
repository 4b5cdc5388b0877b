"""The door of the ADK façade: the document's own routes and words, on the same Runner, ledger and streams as every other door.

Who asks is what the application's extractors say: app name and user id become the Actor, the session id the thread, so nobody can name
another's. A thread that is taken answers inside the stream, as clients of that document expect it.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from ambient_runner.bridges.adk.hooks import InputInfo, Visit, made, record_input, recorded, visiting
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.errors import ThreadBusy
from ambient_runner.ledger.base import ThreadKey
from ambient_runner.projections.frames import Framer
from ambient_runner.protocol.agui_models import coerce, input_to_agui
from ambient_runner.protocol.encode import negotiate
from ambient_runner.protocol.events import (
    MessagesSnapshot,
    RunAgentInput,
    RunError,
    RunStarted,
    StateSnapshot,
    encode_event,
)
from ambient_runner.protocol.profiles import profile_of
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import Actor
from ambient_runner.server.error_responses import AmbientRoute, Json
from ambient_runner.server.request_parsing import read_body
from ambient_runner.server.routes.runs import (
    disconnect_policy,
    read_posted,
    run_stream,
    saying_what_was_left_out,
    start_request,
)
from ambient_runner.server.routes.threads import MAX_PATCH, PATCH_TYPES, hidden_keys, patch_state

if TYPE_CHECKING:
    from ambient_runner.bridges.adk.config import ConfigContext, SessionLockConfig
    from ambient_runner.bridges.adk.hooks import HandlerContext
    from ambient_runner.runs.run import Started, StartRequest
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import Service

_PAGE = 1000


class AdkDoor:
    """Serves one ADK agent to HTTP clients."""

    def __init__(
        self, service: Service, guard: Guard, config: ConfigContext, handlers: HandlerContext, agent: str
    ) -> None:
        self._service = service
        self._guard = guard
        self._config = config
        self._handlers = handlers
        self._agent = agent
        self._lock_handler = made(handlers.session_lock_handler)

    async def run(self, request: Request) -> Response:
        """Start a run and stream it; a thread that is taken is said in the stream."""
        await self._guard(request)
        body = await read_body(request, self._service.settings.max_body)
        read = await read_posted(self._service, body)
        policy = disconnect_policy(self._service, request)
        info, posted = await self._arriving(request, read.input)
        visit = Visit(info=info, recorder=made(self._handlers.in_out_record_handler))
        await record_input(visit.recorder, info)
        runner = await self._service.runner()
        actor = Actor(tenant=info.app_name, owner=info.user_id)
        asked = start_request(self._service, request, actor, self._agent, posted, body)
        try:
            with saying_what_was_left_out(read):
                started = await self._admitted(runner, asked, visit)
        except ThreadBusy:
            return await self._locked(request, posted, visit)
        lines = self._config.event_source_response_mode
        return run_stream(self._service, runner, request, started, posted, policy, event_lines=lines)

    async def key(self, request: Request, thread_id: str) -> ThreadKey:
        """The thread this request may speak of under that id. Raises: Unauthorized."""
        await self._guard(request)
        asked = input_to_agui(RunAgentInput(thread_id=thread_id, run_id="", messages=[]))
        app, user, thread = await self._config.identify(asked, request)
        return ThreadKey(app, user, thread)

    async def threads(self, request: Request) -> list[dict[str, str]]:
        """The threads of whoever asks, the newest first."""
        key = await self.key(request, "-")
        runner = await self._service.runner()
        found: list[dict[str, str]] = []
        before: int | None = None
        while page := await runner.ledger.threads(key.tenant, key.owner, limit=_PAGE, before=before):
            found += [{"threadId": info.key.id} for info in page]
            before = page[-1].updated
        return found

    async def delete(self, request: Request, thread_id: str) -> None:
        """Erase a thread and ADK's session of it. Raises: UnknownThread."""
        await self._service.erase(await self.key(request, thread_id))

    async def messages(self, request: Request, thread_id: str) -> MessagesSnapshot:
        """The messages of a thread under the ids that were streamed. Raises: UnknownThread."""
        key = await self.key(request, thread_id)
        view = await (await self._service.runner()).view(key)
        return MessagesSnapshot(messages=view.transcript.messages())

    async def state(self, request: Request, thread_id: str) -> StateSnapshot:
        """The visible state of a thread. Raises: UnknownThread."""
        key = await self.key(request, thread_id)
        runner = await self._service.runner()
        view = await runner.view(key)
        return StateSnapshot(snapshot=view.state.visible(await hidden_keys(runner, key)))

    async def patch(self, request: Request, thread_id: str, body: bytes) -> None:
        """Patch the visible state of a thread. Raises: UnknownThread, InvalidPatch, PatchConflict."""
        key = await self.key(request, thread_id)
        await patch_state(await self._service.runner(), key, body)

    async def _arriving(self, request: Request, posted: RunAgentInput) -> tuple[InputInfo, RunAgentInput]:
        given = input_to_agui(posted)
        app, user, thread = await self._config.identify(given, request)
        state = await self._config.initial_state(given, request)
        info = InputInfo(
            agui_content=given,
            app_name=app,
            user_id=user,
            session_id=thread,
            initial_state=state,
            request=request,
        )
        return info, msgspec.structs.replace(posted, thread_id=thread, state=state)

    async def _admitted(self, runner: Runner, asked: StartRequest, visit: Visit) -> Started:
        """The run, once the user's gate and our own lock have let it in. Raises: ThreadBusy, and what `Runner.start` raises."""
        gate = Gate(self._lock_handler, visit.info)
        if not await gate.enter():
            raise ThreadBusy
        asked = dataclasses.replace(asked, on_end=gate.leave)
        token = visiting.set(visit)
        try:
            started = await start_patiently(runner, asked, self._config.session_lock_config)
        except BaseException:
            await gate.leave()
            raise
        finally:
            visiting.reset(token)
        if started.joined:
            await gate.leave()
        return started

    async def _locked(self, request: Request, posted: RunAgentInput, visit: Visit) -> Response:
        """The refusal as a whole small run, which any client understands."""
        said = RunError(message="Thread is currently locked", code="THREAD_IS_LOCKED")
        if self._lock_handler is not None and hasattr(self._lock_handler, "get_locked_message"):
            with isolate("asking a lock handler for its message"):
                given = coerce(await call_hook(self._lock_handler.get_locked_message, visit.info))
                said = given if isinstance(given, RunError) else said
        begun = RunStarted(thread_id=posted.thread_id, run_id=posted.run_id)
        events = [await recorded(visit.recorder, one) for one in (begun, said)]
        form = negotiate(request.headers.get("accept"))
        framer = Framer(
            "", profile_of(posted.protocol_version), form=form, event_lines=self._config.event_source_response_mode
        )
        kind = "text/event-stream" if form == "sse" else "application/x-ndjson"
        return Response(framer.bare(events), media_type=kind, headers={"Cache-Control": "no-cache, no-transform"})


class Gate:
    """A user's lock before ours. It can refuse or delay, never let two in; and only who was let in gives it back, once."""

    def __init__(self, handler: Any, info: InputInfo) -> None:
        self._handler = handler
        self._info = info
        self._entered = False

    async def enter(self) -> bool:
        if self._handler is None:
            return True
        self._entered = bool(await call_hook(self._handler.lock, self._info))
        return self._entered

    async def leave(self) -> None:
        entered, self._entered = self._entered, False
        if entered:
            with isolate("giving back a lock"):
                await call_hook(self._handler.unlock, self._info)


async def start_patiently(runner: Runner, asked: StartRequest, lock: SessionLockConfig) -> Started:
    """Start the run, waiting for the thread as long as `lock` says. Raises: ThreadBusy, and what `Runner.start` raises."""
    key = asked.actor.thread(asked.input.thread_id)
    for _ in range(lock.lock_retry_times):
        try:
            return await runner.start(await _superseding_if_old(runner, asked, key, lock))
        except ThreadBusy:
            await runner.ledger.released(key, lock.lock_retry_interval)
    return await runner.start(await _superseding_if_old(runner, asked, key, lock))


async def _superseding_if_old(
    runner: Runner, asked: StartRequest, key: ThreadKey, lock: SessionLockConfig
) -> StartRequest:
    """The request as it stands: one that finds a run older than the lock may last stops it."""
    info = await runner.ledger.thread(key)
    if lock.lock_timeout is None or info is None or not info.active:
        return asked
    is_old = time.time() - info.updated / 1000 > lock.lock_timeout
    return dataclasses.replace(asked, on_busy="supersede") if is_old else asked


def adk_routes(door: AdkDoor, path: str = "/") -> APIRouter:
    """`POST` at the path: run."""
    router = APIRouter(route_class=AmbientRoute)

    @router.post(path)
    async def run(request: Request) -> Response:
        return await door.run(request)

    return router


def adk_history_routes(door: AdkDoor) -> APIRouter:
    """The five history and state routes of the ADK AGUI Middleware."""
    router = APIRouter(route_class=AmbientRoute)

    @router.get("/thread/list")
    async def threads(request: Request) -> Response:
        return Json(await door.threads(request))

    @router.delete("/thread/{thread_id:path}")
    async def delete(request: Request, thread_id: str) -> Response:
        await door.delete(request, thread_id)
        return Json({"status": "deleted"})

    @router.get("/message_snapshot/{thread_id:path}")
    async def messages(request: Request, thread_id: str) -> Response:
        return Json(encode_event(await door.messages(request, thread_id)))

    @router.get("/state_snapshot/{thread_id:path}")
    async def state(request: Request, thread_id: str) -> Response:
        return Json(encode_event(await door.state(request, thread_id)))

    @router.patch("/state/{thread_id:path}")
    async def patch(request: Request, thread_id: str) -> Response:
        body = await read_body(request, MAX_PATCH, types=PATCH_TYPES)
        await door.patch(request, thread_id, body)
        return Json({"status": "updated"})

    return router
