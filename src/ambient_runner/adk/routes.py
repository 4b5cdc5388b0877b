"""Routes of the ADK facade: those of `adk-agui-middleware`, on the same Runner, ledger and streams as all other routes.

The application's extractors identify a request: app name and user id become the Actor, the session id the thread. So a client cannot name
another user's thread. For a busy thread the error is in the stream, as clients of that package expect.
"""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from ambient_runner.bridges.adk.hooks import (
    HookRequest,
    InputInfo,
    current_hook_request,
    instantiate_handler,
    instantiate_lock_handler,
    record_input,
    record_output,
)
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.errors import InvalidPatch, ThreadBusy
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.frames import Framer
from ambient_runner.protocol.agui_models import coerce_event, input_to_agui
from ambient_runner.protocol.encode import negotiate_format
from ambient_runner.protocol.events import (
    MessagesSnapshot,
    RunAgentInput,
    RunError,
    RunStarted,
    StateSnapshot,
    encode_event,
)
from ambient_runner.runs.execution import FINALIZE_TIMEOUT
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import Actor, QueueLimits
from ambient_runner.server.error_responses import AmbientRoute, JsonResponse
from ambient_runner.server.request_parsing import client_profile, read_run_body
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.server.routes.runs import (
    disconnect_policy,
    parse_run_input,
    run_stream,
    start_request,
    start_while_connected,
    with_skipped_messages,
)
from ambient_runner.server.routes.threads import hidden_keys, parse_patch, patch_state, read_messages, read_patch

if TYPE_CHECKING:
    from ambient_runner.bridges.adk.config import ConfigContext, SessionLockConfig
    from ambient_runner.bridges.adk.hooks import HandlerContext
    from ambient_runner.ledger.records import ThreadInfo
    from ambient_runner.protocol.profiles import Profile
    from ambient_runner.runs.run import Started, StartRequest
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

_PAGE_SIZE = 1000
_MAX_WAITING = 1000
"""Requests that may wait for one thread. The time each may wait limits them before that."""


class ADKEndpoints:
    """Serves one ADK agent to HTTP clients."""

    def __init__(
        self, runtime: ServerRuntime, guard: Guard, config: ConfigContext, handlers: HandlerContext, agent: str
    ) -> None:
        self._runtime = runtime
        self._guard = guard
        self._config = config
        self._handlers = handlers
        self._agent = agent
        self._lock_handler = instantiate_lock_handler(handlers.session_lock_handler, config.session_lock_config)

    async def start_run(self, request: Request) -> Response:
        """Start a run and stream it. For a busy thread the stream contains the error."""
        await self._guard(request)
        return await self._start_run(request, await read_run_body(request, self._runtime.settings.max_body))

    async def start_run_from(self, request: Request, body: bytes) -> Response:
        """Start a run with this input instead of the body of the request."""
        await self._guard(request)
        return await self._start_run(request, body)

    async def _start_run(self, request: Request, body: bytes) -> Response:
        parsed = await parse_run_input(self._runtime, body)
        policy = disconnect_policy(self._runtime, request)
        info, run_input = await self._identify_run(request, parsed.input)
        hook_request = HookRequest(info=info, recorder=instantiate_handler(self._handlers.in_out_record_handler, info))
        await record_input(hook_request.recorder, info)
        profile = client_profile(request, run_input.protocol_version, self._runtime.settings.client_for(self._agent))
        runner = await self._runtime.ensure_runner()
        actor = Actor(tenant=info.app_name, owner=info.user_id)
        start = start_request(self._runtime, request, actor, self._agent, run_input, body)
        try:
            with with_skipped_messages(parsed):
                started = await self._start_locked(runner, start, hook_request, request)
        except ThreadBusy:
            return await self._locked_response(request, run_input, hook_request, profile)
        lines = self._config.event_source_response_mode
        return await run_stream(
            self._runtime, runner, request, started, self._agent, profile, policy, event_lines=lines
        )

    async def thread_key(self, request: Request, thread_id: str) -> ThreadKey:
        """Return the key of the requester's thread with this id. Raises: Unauthorized."""
        await self._guard(request)
        agui_input = input_to_agui(RunAgentInput(thread_id=thread_id, run_id="", messages=[]))
        app, user, thread = await self._config.identify_request(agui_input, request)
        return ThreadKey(app, user, thread)

    async def list_threads(self, request: Request) -> list[dict[str, str]]:
        """Return the requester's threads, newest first."""
        infos = await self.list_infos(await self.thread_key(request, "-"))
        return [{"threadId": info.key.id} for info in infos]

    async def list_infos(self, key: ThreadKey) -> list[ThreadInfo]:
        """Return the rows of all threads of the key's owner, newest first."""
        runner = await self._runtime.ensure_runner()
        infos: list[ThreadInfo] = []
        before: str | None = None
        while page := await runner.ledger.list_threads(
            key.tenant, key.owner, limit=_PAGE_SIZE, before=before, archived="with"
        ):
            infos += page
            before = page[-1].cursor
        return infos

    async def delete_thread(self, request: Request, thread_id: str) -> None:
        """Erase a thread and its ADK session. Raises: UnknownThread."""
        await self.erase_thread(await self.thread_key(request, thread_id))

    async def erase_thread(self, key: ThreadKey) -> None:
        """Erase a thread and its ADK session. Raises: UnknownThread."""
        await self._runtime.erase_thread(key)

    async def messages_snapshot(self, request: Request, thread_id: str) -> MessagesSnapshot:
        """Return the messages of a thread with the ids that were streamed. Raises: UnknownThread."""
        return await read_messages(self._runtime, await self.thread_key(request, thread_id))

    async def state_snapshot(self, request: Request, thread_id: str) -> StateSnapshot:
        """Return the visible state of a thread. Raises: UnknownThread."""
        key = await self.thread_key(request, thread_id)
        runner = await self._runtime.ensure_runner()
        view = await runner.view_thread(key)
        return StateSnapshot(snapshot=view.state.visible_part(await hidden_keys(runner, key)))

    async def read_patch(self, request: Request, thread_id: str) -> Any:
        """Return the patch in the body of a request, after its user is identified. Raises: Unauthorized, InvalidPatch, PayloadTooLarge."""
        await self.thread_key(request, thread_id)
        return parse_patch(await read_patch(request))

    async def patch_thread_state(self, request: Request, thread_id: str, patch: Any) -> None:
        """Patch the visible state of a thread. Raises: UnknownThread, InvalidPatch, PatchConflict."""
        key = await self.thread_key(request, thread_id)
        await patch_state(await self._runtime.ensure_runner(), key, _encode_patch(patch))

    async def _identify_run(self, request: Request, run_input: RunAgentInput) -> tuple[InputInfo, RunAgentInput]:
        agui_input = input_to_agui(run_input)
        app, user, thread = await self._config.identify_request(agui_input, request)
        state = await self._config.initial_state(agui_input, request)
        info = InputInfo(
            agui_content=agui_input,
            app_name=app,
            user_id=user,
            session_id=thread,
            initial_state=state,
            request=request,
        )
        return info, msgspec.structs.replace(run_input, thread_id=thread, state=state)

    async def _start_locked(
        self, runner: Runner, start: StartRequest, hook_request: HookRequest, request: Request
    ) -> Started:
        """Start the run under the user's lock and ours. Raises: ThreadBusy, ClientDisconnect, and what `Runner.start` raises."""
        lock_call = LockHandlerCall(self._lock_handler, hook_request.info)
        if not await lock_call.acquire():
            raise ThreadBusy
        start = dataclasses.replace(start, on_end=lock_call.release)
        token = current_hook_request.set(hook_request)
        try:
            started = await start_when_free(runner, start, self._config.session_lock_config, request)
        except BaseException:
            await lock_call.release()
            raise
        finally:
            current_hook_request.reset(token)
        if started.is_joined:
            await lock_call.release()
        return started

    async def _locked_response(
        self, request: Request, run_input: RunAgentInput, hook_request: HookRequest, profile: Profile
    ) -> Response:
        """Return the error as a complete run of two events, which any client understands."""
        error = RunError(message="Thread is currently locked", code="THREAD_IS_LOCKED")
        if self._lock_handler is not None and hasattr(self._lock_handler, "get_locked_message"):
            with isolate("running the hook get_locked_message"):
                custom = coerce_event(await call_hook(self._lock_handler.get_locked_message, hook_request.info))
                error = custom if isinstance(custom, RunError) else error
        started = RunStarted(thread_id=run_input.thread_id, run_id=run_input.run_id)
        events = [await record_output(hook_request.recorder, event) for event in (started, error)]
        form = negotiate_format(request.headers.get("accept"))
        framer = Framer(
            "",
            profile,
            wire_format=form,
            event_lines=self._config.event_source_response_mode,
        )
        media_type = "text/event-stream" if form == "sse" else "application/x-ndjson"
        return Response(
            framer.render_without_ids(events),
            media_type=media_type,
            headers={"Cache-Control": "no-cache, no-transform"},
        )


class LockHandlerCall:
    """The application's lock handler, called before our own lock. It can refuse or delay a run; only an acquired lock is released, once."""

    def __init__(self, handler: Any, info: InputInfo) -> None:
        self._handler = handler
        self._info = info
        self._is_held = False

    async def acquire(self) -> bool:
        if self._handler is None:
            return True
        self._is_held = bool(await call_hook(self._handler.lock, self._info))
        return self._is_held

    async def release(self) -> None:
        was_held, self._is_held = self._is_held, False
        if was_held:
            with isolate("running the hook unlock"):
                await call_hook(self._handler.unlock, self._info)


async def start_when_free(runner: Runner, start: StartRequest, lock: SessionLockConfig, request: Request) -> Started:
    """Start the run, or wait for the thread as long as `lock` allows, in the order of the requests and while the client is connected.

    Raises: ThreadBusy, ClientDisconnect, and what `Runner.start` raises.
    """
    try:
        return await runner.start(start)
    except ThreadBusy:
        if start.on_busy not in {None, "reject"}:
            raise
    seconds = lock.lock_retry_times * lock.lock_retry_interval
    if await _is_held_too_long(runner, start, lock):
        seconds = max(seconds, runner.settings.timeouts.grace + FINALIZE_TIMEOUT)
    limits = QueueLimits(depth=_MAX_WAITING, seconds=seconds, max_hold=lock.lock_timeout)
    return await start_while_connected(runner, dataclasses.replace(start, on_busy="queue", queue=limits), request)


async def _is_held_too_long(runner: Runner, start: StartRequest, lock: SessionLockConfig) -> bool:
    info = await runner.ledger.get_thread(start.actor.thread_key(start.input.thread_id))
    if lock.lock_timeout is None or info is None or not info.active:
        return False
    return time.time() - info.updated / 1000 > lock.lock_timeout


def adk_routes(endpoints: ADKEndpoints, path: str = "/", router: APIRouter | None = None) -> APIRouter:
    """Return the router with `POST path`, which starts a run: the given one, or a new one."""
    router = router or APIRouter()

    async def run(request: Request) -> Response:
        return await endpoints.start_run(request)

    router.add_api_route(path, run, methods=["POST"], route_class_override=AmbientRoute)
    return router


def adk_history_routes(endpoints: ADKEndpoints) -> APIRouter:
    """Return the router with the five history and state routes of the ADK AGUI Middleware."""
    router = APIRouter(route_class=YieldingRoute)

    @router.get("/thread/list")
    async def list_threads(request: Request) -> Response:
        return JsonResponse(await endpoints.list_threads(request))

    @router.delete("/thread/{thread_id:path}")
    async def delete_thread(request: Request, thread_id: str) -> Response:
        await endpoints.delete_thread(request, thread_id)
        return JsonResponse({"status": "deleted"})

    @router.get("/message_snapshot/{thread_id:path}")
    async def messages_snapshot(request: Request, thread_id: str) -> Response:
        return JsonResponse(encode_event(await endpoints.messages_snapshot(request, thread_id)))

    @router.get("/state_snapshot/{thread_id:path}")
    async def state_snapshot(request: Request, thread_id: str) -> Response:
        return JsonResponse(encode_event(await endpoints.state_snapshot(request, thread_id)))

    @router.patch("/state/{thread_id:path}")
    async def patch_state_route(request: Request, thread_id: str) -> Response:
        patch = await endpoints.read_patch(request, thread_id)
        await endpoints.patch_thread_state(request, thread_id, patch)
        return JsonResponse({"status": "updated"})

    return router


def _encode_patch(patch: Any) -> bytes:
    """Return the JSON of a patch. The parser refuses half of a surrogate pair, which is escaped here. Raises: InvalidPatch."""
    try:
        return json.dumps(patch, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPatch("The patch holds a value that JSON cannot represent.") from error
