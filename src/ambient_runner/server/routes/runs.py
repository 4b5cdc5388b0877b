"""The doors to runs: start one, stop one."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast, get_args
from urllib.parse import quote

import anyio
import msgspec
from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from ambient_runner.config import OnBusy, OnDisconnect
from ambient_runner.errors import InvalidInput, RunnerError, UnknownAgent
from ambient_runner.ledger.base import KeyClaim
from ambient_runner.projections.frames import Framer
from ambient_runner.protocol.encode import negotiate
from ambient_runner.protocol.profiles import profile_of
from ambient_runner.protocol.run_input import newest_user_message, read_input
from ambient_runner.runs.loop_detection import VIA, read_via
from ambient_runner.runs.run import Actor, SpanRef, Started, StartRequest
from ambient_runner.runs.view_cache import Life
from ambient_runner.server.end_conditions import UntilRunEnds
from ambient_runner.server.error_responses import AmbientRoute, Json
from ambient_runner.server.event_stream import EventStream
from ambient_runner.server.request_parsing import passed_headers, read_body

if TYPE_CHECKING:
    from collections.abc import Generator

    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.protocol.run_input import Inbound
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import Service

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2}).*")
_KEY = re.compile(r"[\x21-\x7e]{1,256}")
_MAX_STOP_BODY = 4096
_LARGE = 1 << 18

logger = logging.getLogger(__name__)


def run_routes(service: Service, guard: Guard, *, bare: bool = False) -> APIRouter:
    """`POST /`, `POST /agents/{name}` and `POST /interrupt`; with `bare` also the prefix itself, without a slash at its end."""
    router = APIRouter(route_class=AmbientRoute)

    @router.post("/")
    async def run_default(request: Request) -> Response:
        return await _run(service, request, await guard(request), service.default_agent)

    if bare:
        router.add_api_route("", run_default, methods=["POST"])

    @router.post("/agents/{name}/", include_in_schema=False)
    @router.post("/agents/{name}")
    async def run_named(request: Request, name: str) -> Response:
        return await _run(service, request, await guard(request), service.default_agent if name == "default" else name)

    @router.post("/interrupt")
    async def interrupt(request: Request) -> Response:
        return await _interrupt(service, request, await guard(request))

    return router


async def _run(service: Service, request: Request, actor: Actor, agent: str) -> Response:
    if agent not in service.agents:
        raise UnknownAgent
    body = await read_body(request, service.settings.max_body)
    read = await read_posted(service, body)
    posted = read.input
    on_disconnect = disconnect_policy(service, request)
    runner = await service.runner()
    asked = start_request(service, request, actor, agent, posted, body)
    if newest_user_message(posted.messages) is None:
        asked = replace(asked, prompt=await service.platform.startup_prompt(agent, actor.thread(posted.thread_id)))
    waits = (asked.on_busy or service.settings.on_busy) in {"queue", "supersede"}
    with saying_what_was_left_out(read):
        started = await (_start_while_connected(runner, asked, request) if waits else runner.start(asked))
    event_lines = request.query_params.get("event_lines") == "1"
    return run_stream(service, runner, request, started, posted, on_disconnect, event_lines=event_lines)


def start_request(
    service: Service, request: Request, actor: Actor, agent: str, posted: RunAgentInput, body: bytes
) -> StartRequest:
    """What the headers of a request ask of the Runner. Raises: InvalidInput, AgentLoop."""
    return StartRequest(
        agent=agent,
        actor=actor,
        input=posted,
        claim=_claim(request, actor, agent, body),
        on_busy=cast("OnBusy | None", _choice(request, "x-ambient-on-busy", get_args(OnBusy))),
        caller=_caller(request),
        headers=passed_headers(request, service.settings.pass_headers),
        via=read_via(request.headers.get(VIA)),
    )


def disconnect_policy(service: Service, request: Request) -> str:
    """What becomes of the run when its client leaves: the request's own wish first. Raises: InvalidInput."""
    return _choice(request, "x-ambient-on-disconnect", get_args(OnDisconnect)) or service.settings.on_disconnect


def run_stream(
    service: Service,
    runner: Runner,
    request: Request,
    started: Started,
    posted: RunAgentInput,
    on_disconnect: str,
    *,
    event_lines: bool = False,
) -> EventStream:
    """The answer to a POST: the run's frames up to its end."""
    return EventStream(
        service,
        runner,
        Life(started.thread, started.epoch),
        Framer(
            started.epoch,
            profile_of(posted.protocol_version),
            form=negotiate(request.headers.get("accept")),
            event_lines=event_lines,
        ),
        after=started.after,
        until=UntilRunEnds(started.run),
        headers={"X-Ambient-Run": started.run, "X-Ambient-Thread": _header(started.thread.id)},
        on_disconnect=partial(runner.stop_run, started, "disconnected") if on_disconnect == "stop" else None,
    )


async def _start_while_connected(runner: Runner, asked: StartRequest, request: Request) -> Started:
    """Start the run, or give up its place in the line when the client leaves. A run that has begun goes on.

    Raises: ClientDisconnect, and whatever `Runner.start` raises.
    """
    outcome: list[Started | RunnerError] = []
    async with anyio.create_task_group() as tasks:

        async def leave_with_the_client() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave_with_the_client)
        try:
            outcome.append(await runner.start(asked))
        except RunnerError as error:
            outcome.append(error)  # raised outside: a task group would wrap it
        tasks.cancel_scope.cancel()
    match outcome:
        case [Started() as started]:
            return started
        case [RunnerError() as refusal]:
            raise refusal
        case _:
            raise ClientDisconnect


@contextmanager
def saying_what_was_left_out(read: Inbound) -> Generator[None]:
    """Who sent a message that could not be read, and is told that nothing is there to answer, is told that too."""
    try:
        yield
    except InvalidInput as error:
        if not read.left_out:
            raise
        raise InvalidInput(f"{error.message} {read.left_out}") from error


async def read_posted(service: Service, body: bytes) -> Inbound:
    """The input of a body. A large one is read off the loop: checking it takes time that other streams need."""
    large = len(body) > _LARGE
    read = (
        await asyncio.get_running_loop().run_in_executor(service.reader, read_input, body)
        if large
        else read_input(body)
    )
    for warning in read.warnings:
        logger.info("Input: %s", warning)
    return read


async def _interrupt(service: Service, request: Request, actor: Actor) -> Response:
    runner = await service.runner()
    thread_id = _thread_id(await read_body(request, _MAX_STOP_BODY, types=("application/json", "")))
    key = actor.thread(thread_id) if thread_id else runner.only_active(actor)
    run = await runner.stop(key)
    return Json({"message": "Interrupt signal sent", "threadId": key.id, "runId": run})


def _thread_id(body: bytes) -> str:
    """The thread a stop names; empty for an empty body. The ADR's `thread_id` is accepted too."""
    if not body.strip():
        return ""
    try:
        given = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput('Send {"threadId": "…"}, or an empty body when only one run is active.') from error
    named = given.get("threadId", given.get("thread_id", ""))
    if not isinstance(named, str):
        raise InvalidInput("`threadId` must be a string.")
    return named


def _choice(request: Request, header: str, allowed: tuple[str, ...]) -> str | None:
    value = request.headers.get(header)
    if value is None:
        return None
    if value.lower() not in allowed:
        raise InvalidInput(f"{header} must be one of {', '.join(allowed)}.")
    return value.lower()


def _claim(request: Request, actor: Actor, agent: str, body: bytes) -> KeyClaim | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise InvalidInput("Idempotency-Key must be 1 to 256 visible ASCII characters.")
    scope = msgspec.json.encode([actor.tenant, actor.owner, agent, key]).decode()
    return KeyClaim(scope=scope, digest=hashlib.sha256(body).hexdigest())


def _caller(request: Request) -> SpanRef | None:
    found = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanRef(trace_id=found[1], span_id=found[2], sampled=bool(int(found[3], 16) & 1))


def _header(text: str) -> str:
    """A thread id as a header value: what is not ASCII is percent-encoded."""
    return quote(text, safe="!#$&'()*+,/:;=?@[]~ ")
