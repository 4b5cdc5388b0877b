"""Routes that start and stop runs."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import quote

import anyio
import msgspec
from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from ambient_runner.config import OnBusy, OnDisconnect
from ambient_runner.errors import InvalidInput, RunnerError, UnknownAgent
from ambient_runner.ledger.records import IdempotencyClaim
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.thread_event import ThreadIdentity
from ambient_runner.protocol.encode import format_cursor, negotiate_format
from ambient_runner.protocol.headers import AUDIENCE_HEADER, ON_DISCONNECT_HEADER, RUN_HEADER
from ambient_runner.protocol.profiles import Profile
from ambient_runner.protocol.run_input import newest_user_message, parse_input
from ambient_runner.protocol.strict_json import is_too_deep
from ambient_runner.runs.loop_detection import VIA, parse_via_header
from ambient_runner.runs.monitor import start_monitor
from ambient_runner.runs.reattach import facts_before_run
from ambient_runner.runs.run import Actor, SpanRef, Started, StartRequest
from ambient_runner.runs.view_cache import ThreadEpoch
from ambient_runner.server.end_conditions import UntilRunEnds
from ambient_runner.server.error_responses import AmbientRoute, JsonResponse
from ambient_runner.server.event_stream import EventStream
from ambient_runner.server.request_parsing import (
    RESPOND_ASYNC,
    client_profile,
    forwarded_headers,
    parse_fork_origin,
    read_body,
    read_run_body,
    wants_async_response,
    wants_snapshots,
)
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.server.stream_start import StreamStart

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from ambient_runner.config import OnPendingInterrupt
    from ambient_runner.projections.thread_fork import ForkOrigin
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.protocol.run_input import ParsedInput
    from ambient_runner.runs.run import RunAttribute
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2}).*")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,256}")
_MAX_STOP_BODY_BYTES = 4096
_STOP_BODY_HINT = 'Send {"threadId": "…"}, or an empty body when only one run is active.'

logger = logging.getLogger(__name__)


PrepareRun = Callable[[Request, "RunAgentInput"], Awaitable["Mapping[RunAttribute[Any], Any]"]]
"""Returns attributes for the run of a request. Nothing is started if it raises."""


def run_routes(
    runtime: ServerRuntime, guard: Guard, *, without_slash: bool = False, prepare_run: PrepareRun | None = None
) -> APIRouter:
    """Return the routes `POST /`, `POST /agents/{name}` and `POST /interrupt`; with `without_slash` also the bare prefix."""
    router = APIRouter(route_class=AmbientRoute)

    @router.post("/")
    async def run_default(request: Request) -> Response:
        return await _start_run(runtime, request, await guard(request), runtime.default_agent, prepare_run)

    if without_slash:
        router.add_api_route("", run_default, methods=["POST"])

    @router.post("/agents/{name}/", include_in_schema=False)
    @router.post("/agents/{name}")
    async def run_named(request: Request, name: str) -> Response:
        agent = runtime.resolve_agent(name)
        return await _start_run(runtime, request, await guard(request), agent, prepare_run)

    async def interrupt_run(request: Request) -> Response:
        return await _interrupt_run(runtime, request, await guard(request))

    router.add_api_route("/interrupt", interrupt_run, methods=["POST"], route_class_override=YieldingRoute)
    return router


async def _start_run(
    runtime: ServerRuntime, request: Request, actor: Actor, agent: str, prepare_run: PrepareRun | None
) -> Response:
    if agent not in runtime.agents:
        raise UnknownAgent
    body = await read_run_body(request, runtime.settings.max_body)
    parsed = await parse_run_input(runtime, body)
    run_input = parsed.input
    on_disconnect = disconnect_policy(runtime, request)
    snapshots = wants_snapshots(request)
    profile = client_profile(request, run_input.protocol_version, runtime.settings.client_for(agent))
    runner = await runtime.ensure_runner()
    start = start_request(runtime, request, actor, agent, run_input, body, fork=parse_fork_origin(request))
    start = await complete_start_request(runtime, request, start, prepare_run)
    may_wait = (start.on_busy or runtime.settings.on_busy) in {"queue", "supersede"}
    with with_skipped_messages(parsed):
        started = await (start_while_connected(runner, start, request) if may_wait else runner.start(start))
    if wants_async_response(request):
        return await _accepted_response(runner, started, run_input)
    event_lines = request.query_params.get("event_lines") == "1"
    return await run_stream(
        runtime,
        runner,
        request,
        started,
        agent,
        profile,
        on_disconnect,
        event_lines=event_lines,
        snapshots=snapshots,
    )


async def _accepted_response(runner: Runner, started: Started, run_input: RunAgentInput) -> Response:
    """Return the answer to a client that follows the thread by itself. The run has no reader of its own, so nothing stops it."""
    joined = await runner.ledger.get_run(started.thread, started.run) if started.is_joined else None
    body = {
        "threadId": started.thread.id,
        "run": started.run,
        "runId": joined.run_id if joined else run_input.run_id,
        "after": format_cursor(started.epoch, started.after),
    }
    return JsonResponse(body, 202, headers={**_run_headers(started), "Preference-Applied": RESPOND_ASYNC})


def _run_headers(started: Started) -> dict[str, str]:
    return {RUN_HEADER: started.run, "X-Ambient-Thread": _quote_header(started.thread.id)}


def start_request(
    runtime: ServerRuntime,
    request: Request,
    actor: Actor,
    agent: str,
    run_input: RunAgentInput,
    body: bytes,
    *,
    fork: ForkOrigin | None = None,
) -> StartRequest:
    """Return the StartRequest for the Runner, from the input and the headers. Raises: InvalidInput, AgentLoop, AudienceNotOpen."""
    runtime.audiences.require(agent, request.headers.get(AUDIENCE_HEADER))
    return StartRequest(
        agent=agent,
        actor=actor,
        input=run_input,
        claim=_idempotency_claim(request, actor, agent, body, fork),
        fork=fork,
        on_busy=cast("OnBusy | None", _header_choice(request, "x-ambient-on-busy", get_args(OnBusy))),
        on_pending_interrupt=_pending_interrupt_policy(runtime, request, agent, run_input),
        caller=_parse_traceparent(request),
        headers=forwarded_headers(request, runtime.settings.pass_headers),
        via=parse_via_header(request.headers.get(VIA)),
        size=len(body),
    )


async def complete_start_request(
    runtime: ServerRuntime, request: Request, start: StartRequest, prepare_run: PrepareRun | None
) -> StartRequest:
    """Return the request with the attributes that `prepare_run` returns, and a prompt if the input has no user message."""
    if prepare_run is not None:
        start = replace(start, attributes=await prepare_run(request, start.input))
    if newest_user_message(start.input.messages) is None:
        key = start.actor.thread_key(start.input.thread_id)
        start = replace(start, prompt=await runtime.platform.startup_prompt(start.agent, key))
    return start


def _pending_interrupt_policy(
    runtime: ServerRuntime, request: Request, agent: str, run_input: RunAgentInput
) -> OnPendingInterrupt:
    """Return the setting. By default only clients of AG-UI 1.0 have to answer: older ones may not know how."""
    profile = client_profile(request, run_input.protocol_version, runtime.settings.client_for(agent))
    return runtime.settings.on_pending_interrupt or ("reject" if profile is Profile.V1 else "cancel")


def disconnect_policy(runtime: ServerRuntime, request: Request) -> str:
    """Return what happens to the run when its client disconnects: the request's header, else the setting. Raises: InvalidInput."""
    return _header_choice(request, ON_DISCONNECT_HEADER, get_args(OnDisconnect)) or runtime.settings.on_disconnect


async def run_stream(
    runtime: ServerRuntime,
    runner: Runner,
    request: Request,
    started: Started,
    agent: str,
    profile: Profile,
    on_disconnect: str,
    *,
    event_lines: bool = False,
    snapshots: bool = True,
) -> EventStream:
    """Return the response to a POST: the run's event stream up to its end. What happened since the run before follows its first event."""
    framer = Framer(
        started.epoch,
        profile,
        wire_format=negotiate_format(request.headers.get("accept")),
        event_lines=event_lines,
        start_events=await facts_before_run(runner.ledger, started),
        withdrawn=await runner.find_withdrawn_content(started.thread) if started.is_joined else None,
        exposure=runtime.audiences.exposure_for(agent),
        thread=ThreadIdentity(id=started.thread.id, agent=agent),
        snapshots=snapshots,
    )
    return EventStream(
        runtime,
        runner,
        ThreadEpoch(started.thread, started.epoch),
        StreamStart(after=started.after, framer=framer),
        until=UntilRunEnds(started.run),
        headers=_run_headers(started),
        on_disconnect=partial(runner.stop_run, started, "disconnected") if on_disconnect == "stop" else None,
    )


async def start_while_connected(runner: Runner, start: StartRequest, request: Request) -> Started:
    """Start the run, or leave the queue when the client disconnects. A run that has started continues.

    Raises: ClientDisconnect, and whatever `Runner.start` raises.
    """
    outcome: list[Started | RunnerError] = []
    async with anyio.create_task_group() as tasks:

        async def cancel_on_disconnect() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        monitoring = start_monitor(tasks, cancel_on_disconnect)
        try:
            outcome.append(await runner.start(start))
        except RunnerError as error:
            outcome.append(error)  # Raised outside: the task group would wrap it.
        monitoring.cancel()
    match outcome:
        case [Started() as started]:
            return started
        case [RunnerError() as refusal]:
            raise refusal
        case _:
            raise ClientDisconnect


@contextmanager
def with_skipped_messages(parsed: ParsedInput) -> Generator[None]:
    """Add the skipped messages to an InvalidInput: a message that could not be parsed may be why there is nothing to answer."""
    try:
        yield
    except InvalidInput as error:
        if not parsed.skip_reason:
            raise
        raise InvalidInput(f"{error.message} {parsed.skip_reason}") from error


async def parse_run_input(runtime: ServerRuntime, body: bytes) -> ParsedInput:
    """Return the run input in a body. Raises: InvalidInput, PayloadTooLarge."""
    parsed = await runtime.parse_body(partial(parse_input, message_cache=runtime.message_cache), body)
    for warning in parsed.warnings:
        logger.info("The run input for thread %s was corrected: %s", parsed.input.thread_id, warning)
    return parsed


async def _interrupt_run(runtime: ServerRuntime, request: Request, actor: Actor) -> Response:
    runner = await runtime.ensure_runner()
    thread_id = _parse_stop_body(await read_body(request, _MAX_STOP_BODY_BYTES, media_types=("application/json", "")))
    key = actor.thread_key(thread_id) if thread_id else await runner.find_active_thread(actor)
    run = await runner.stop(key)
    return JsonResponse({"message": "Interrupt signal sent", "threadId": key.id, "runId": run})


def _parse_stop_body(body: bytes) -> str:
    """Return the thread id in the body of a stop; empty for an empty body. `thread_id` is accepted too."""
    if not body.strip():
        return ""
    if is_too_deep(body):
        raise InvalidInput(_STOP_BODY_HINT)
    try:
        payload = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(_STOP_BODY_HINT) from error
    thread_id = payload.get("threadId", payload.get("thread_id", ""))
    if not isinstance(thread_id, str):
        raise InvalidInput("`threadId` must be a string.")
    return thread_id


def _header_choice(request: Request, header: str, allowed: tuple[str, ...]) -> str | None:
    value = request.headers.get(header)
    if value is None:
        return None
    if value.lower() not in allowed:
        raise InvalidInput(f"{header} must be one of {', '.join(allowed)}.")
    return value.lower()


def _idempotency_claim(
    request: Request, actor: Actor, agent: str, body: bytes, fork: ForkOrigin | None
) -> IdempotencyClaim | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidInput("Idempotency-Key must be 1 to 256 visible ASCII characters.")
    scope = msgspec.json.encode([actor.tenant, actor.owner, agent, key])
    what = body if fork is None else msgspec.json.encode([fork.thread_id, fork.message_id]) + body
    return IdempotencyClaim(scope=hashlib.sha256(scope).hexdigest(), digest=hashlib.sha256(what).hexdigest())


def _parse_traceparent(request: Request) -> SpanRef | None:
    found = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanRef(trace_id=found[1], span_id=found[2], sampled=bool(int(found[3], 16) & 1))


def _quote_header(text: str) -> str:
    """Return a thread id as a header value, percent-encoded: spaces too, which HTTP strips at its ends."""
    return quote(text, safe="!#$&'()*+,/:;=?@[]~")
