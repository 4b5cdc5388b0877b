"""Runs for pages of CopilotKit: start, connect, stop, suggest. The routes are in `copilotkit.py`.

They differ from `runs.py` and `events.py` in their answers alone: a connect ends with the run it joined, a stop names the client's run id,
and a run that has to wait opens its stream first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.errors import AgentMismatch, UnknownAgent
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.thread_event import ThreadIdentity
from ambient_runner.protocol.copilotkit import (
    CLIENT_VERSION,
    Suggestion,
    is_suggestion_request,
    refusal_events,
    stop_answer,
    suggestion_events,
)
from ambient_runner.protocol.copilotkit_input import parse_stopped_run
from ambient_runner.protocol.encode import encode_ndjson, encode_sse_without_id, negotiate_format
from ambient_runner.protocol.events import encode_event
from ambient_runner.runs.view_cache import ThreadEpoch, read_despite_retention
from ambient_runner.server.connect_start import find_connect_start
from ambient_runner.server.end_conditions import UntilRunEnds
from ambient_runner.server.error_responses import JsonResponse, response_for
from ambient_runner.server.event_stream import EventStream
from ambient_runner.server.pending_run import PendingRun, stream_response
from ambient_runner.server.request_parsing import client_profile
from ambient_runner.server.routes.runs import (
    complete_start_request,
    parse_run_input,
    run_stream,
    start_request,
    with_skipped_messages,
)
from ambient_runner.server.routes.threads import hidden_keys
from ambient_runner.server.stream_start import StreamStart
from ambient_runner.server.suggestions import collect_suggestions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import Request, Response

    from ambient_runner.errors import RunnerError
    from ambient_runner.ledger.records import RunInfo, ThreadInfo
    from ambient_runner.projections.frames import WireFormat
    from ambient_runner.protocol.events import Event, RunAgentInput
    from ambient_runner.protocol.profiles import Profile
    from ambient_runner.protocol.run_input import ParsedInput
    from ambient_runner.runs.run import Actor, Started, StartRequest
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.error_responses import RenderError
    from ambient_runner.server.routes.runs import PrepareRun
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.server.suggestions import Suggest


class CopilotKitRuns:
    """The runs of one server, for pages of CopilotKit. A `body` is the JSON of a request, also of one within the single route."""

    def __init__(
        self,
        runtime: ServerRuntime,
        suggestions: Mapping[str, Suggest],
        prepare_run: PrepareRun | None,
        render_error: RenderError,
    ) -> None:
        self._runtime = runtime
        self._suggestions = suggestions
        self._prepare_run = prepare_run
        self._render_error = render_error
        self._open_runs: set[PendingRun] = set()

    def find_agent(self, agent_id: str) -> str:
        """Return the name of an agent; `default` is the first one. Raises: UnknownAgent."""
        name = self._runtime.resolve_agent(agent_id)
        if name not in self._runtime.agents:
            raise UnknownAgent
        return name

    async def start(self, request: Request, actor: Actor, agent_id: str, body: bytes) -> Response:
        """Return the stream of a new run. A request for suggestions starts none. Raises: Refused."""
        agent = self.find_agent(agent_id)
        parsed = await parse_run_input(self._runtime, body)
        if is_suggestion_request(parsed.input):
            return await self._answer_suggestions(request, actor, agent, parsed.input)
        runner = await self._runtime.ensure_runner()
        start = start_request(self._runtime, request, actor, agent, parsed.input, body)
        start = await complete_start_request(self._runtime, request, start, self._prepare_run)
        profile = self._profile(request, agent, parsed.input)
        responses = _StartResponses(self._runtime, runner, request, start, parsed, profile, self._render_error)
        return PendingRun(
            actor.thread_key(parsed.input.thread_id),
            parsed.input.run_id,
            responses,
            open_runs=self._open_runs,
            heartbeat=self._runtime.settings.heartbeat,
        )

    async def connect(self, request: Request, actor: Actor, agent_id: str, body: bytes) -> Response:
        """Return the thread as one small run, and its active run up to its end; nothing for an unknown thread. Raises: Refused."""
        agent = self.find_agent(agent_id)
        run_input = (await parse_run_input(self._runtime, body)).input
        runner = await self._runtime.ensure_runner()
        profile = self._profile(request, agent, run_input)
        key = actor.thread_key(run_input.thread_id)

        async def open_connect() -> Response:
            info = await runner.ledger.get_thread(key)
            if info is None:
                return _stream_response(request, ())
            if info.agent != agent:
                raise AgentMismatch
            return await self._open_connect(request, runner, info, profile)

        return await read_despite_retention(runner.ledger, key, open_connect)

    async def stop(self, actor: Actor, agent_id: str, thread_id: str, body: bytes) -> Response:
        """Stop the run with the client's id in the body, or the active one if it names none. Raises: Refused."""
        self.find_agent(agent_id)
        run_id = parse_stopped_run(body)
        key = actor.thread_key(thread_id)
        named = [each for each in self._open_runs if run_id and (each.thread, each.run_id) == (key, run_id)]
        waiting = [each for each in named if each.started_run is None]
        for each in waiting:
            each.stop_waiting()
        ledger = (await self._runtime.ensure_runner()).ledger
        info = await ledger.get_thread(key)
        active = await ledger.get_run(key, info.active) if info and info.active else None
        # A request that joined a run has another id for it.
        is_named = active is not None and (
            run_id in {"", active.run_id} or active.key in {each.started_run for each in named}
        )
        is_stopped = active is not None and is_named and await ledger.request_stop(key, "stopped", run=active.key)
        return JsonResponse(stop_answer(is_stopped or bool(waiting)))

    async def suggest(self, request: Request, actor: Actor, agent_id: str, body: bytes) -> Response:
        """Return suggestions as the stream of a run. No thread comes of it. Raises: Refused."""
        agent = self.find_agent(agent_id)
        return await self._answer_suggestions(request, actor, agent, (await parse_run_input(self._runtime, body)).input)

    async def _answer_suggestions(
        self, request: Request, actor: Actor, agent: str, run_input: RunAgentInput
    ) -> Response:
        found = await collect_suggestions(agent, self._suggestions.get(agent), run_input)
        secrets = (await self._runtime.ensure_runner()).secrets
        redactor = secrets.new_redactor(actor.thread_key(run_input.thread_id))
        shown = [
            Suggestion(title=redactor.redact_value(each.title), message=redactor.redact_value(each.message))
            for each in found
        ]
        return _stream_response(request, suggestion_events(run_input, shown))

    def _profile(self, request: Request, agent: str, run_input: RunAgentInput) -> Profile:
        assumed = self._runtime.settings.client_for(agent) or CLIENT_VERSION
        return client_profile(request, run_input.protocol_version, assumed)

    async def _open_connect(self, request: Request, runner: Runner, info: ThreadInfo, profile: Profile) -> Response:
        start = await find_connect_start(runner, info)
        joined = start.active_run
        framer = await self._create_framer(request, runner, info, profile, joined)
        preface = start.render(framer, await hidden_keys(runner, info.key))
        if joined is None:
            return stream_response(preface, framer.wire_format)
        thread = ThreadEpoch(info.key, info.epoch)
        until = UntilRunEnds(joined.key, is_own_stream=False)
        stream_start = StreamStart(after=start.seq, framer=framer, preface=preface, view=start.view)
        return EventStream(self._runtime, runner, thread, stream_start, until=until)

    async def _create_framer(
        self, request: Request, runner: Runner, info: ThreadInfo, profile: Profile, joined: RunInfo | None
    ) -> Framer:
        return Framer(
            info.epoch,
            profile,
            wire_format=_wire_format(request),
            withdrawn=await runner.find_withdrawn_content(info.key) if joined else None,
            exposure=self._runtime.audiences.exposure_for(info.agent),
            thread=ThreadIdentity.of_info(info),
        )


class _StartResponses:
    """The responses to one request for a run. See `pending_run.RunResponses`."""

    def __init__(
        self,
        runtime: ServerRuntime,
        runner: Runner,
        request: Request,
        start: StartRequest,
        parsed: ParsedInput,
        profile: Profile,
        render_error: RenderError,
    ) -> None:
        self._runtime = runtime
        self._runner = runner
        self._request = request
        self._start = start
        self._parsed = parsed
        self._profile = profile
        self._render_error = render_error
        self.wire_format: WireFormat = _wire_format(request)

    async def start(self) -> Started:
        with with_skipped_messages(self._parsed):
            return await self._runner.start(self._start)

    async def open_stream(self, started: Started) -> Response:
        """Return the run's stream. When the page leaves, the run continues: a page stops a run with a request of its own."""
        return await run_stream(
            self._runtime, self._runner, self._request, started, self._start.agent, self._profile, "continue"
        )

    def refuse(self, error: RunnerError) -> Response:
        return response_for(error, f"{self._request.method} {self._request.url.path}", self._render_error)

    def refusal_frames(self, code: str, message: str) -> bytes:
        return _encode_frames(self.wire_format, refusal_events(self._parsed.input, code, message))

    async def stop(self, started: Started) -> None:
        await self._runner.stop_run(started, "stopped")


def _stream_response(request: Request, events: Sequence[Event]) -> Response:
    wire_format = _wire_format(request)
    return stream_response(_encode_frames(wire_format, events), wire_format)


def _encode_frames(wire_format: WireFormat, events: Sequence[Event]) -> bytes:
    lines = [encode_event(event) for event in events]
    return encode_ndjson(lines) if wire_format == "ndjson" else b"".join(map(encode_sse_without_id, lines))


def _wire_format(request: Request) -> WireFormat:
    return negotiate_format(request.headers.get("accept"))
