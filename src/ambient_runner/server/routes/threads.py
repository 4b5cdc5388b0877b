"""Routes for threads: list, label, read, patch and erase them. Those that stream them are in `events.py`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from ambient_runner.errors import InvalidInput, InvalidPatch, PatchConflict, StaleCursor
from ambient_runner.ledger.records import Fact
from ambient_runner.projections.annotations import snapshot_with_feedback
from ambient_runner.projections.known_calls import find_call_in
from ambient_runner.projections.safe import safe_snapshot
from ambient_runner.projections.state import SharedState
from ambient_runner.projections.thread_view import LABELLED, PATCHED, STATE_OWNER, THREAD_OWNER
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.events import MessagesSnapshot, StateSnapshot, encode_event
from ambient_runner.runs.interrupt_answers import check_state_is_free
from ambient_runner.runs.large_work import LARGE_BYTES, run_in_thread_if_large
from ambient_runner.runs.view_cache import require_thread
from ambient_runner.server.bounded_send import LargeJsonResponse
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.request_parsing import read_body, read_object
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.server.thread_request import MAX_TITLE_LENGTH, describe_thread, parse_labels, parse_list_request

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo, ThreadKey, ThreadLabels
    from ambient_runner.runs.run import Actor
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime

_PATCH_TYPES = ("application/json", "application/json-patch+json")
_MAX_PATCH_BYTES = 1 << 20
_MAX_ATTEMPTS = 10


def thread_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the routes `/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`, `/state_snapshot/{id}`, `/state/{id}`."""
    router = APIRouter(route_class=YieldingRoute)

    @router.get("/thread/list")
    async def list_threads(request: Request) -> Response:
        return await _list_threads(runtime, request, await guard(request))

    @router.get("/message_snapshot/{id:path}")
    async def message_snapshot(request: Request, id: str) -> Response:  # noqa: A002
        key = (await guard(request)).thread_key(id)
        messages = encode_event(await read_messages(runtime, key))
        return LargeJsonResponse(messages, slow_reader=runtime.settings.slow_reader)

    @router.get("/state_snapshot/{id:path}")
    async def state_snapshot(request: Request, id: str) -> Response:  # noqa: A002
        key = (await guard(request)).thread_key(id)
        runner = await runtime.ensure_runner()
        view = await runner.view_thread(key)
        return await _state_response(runtime, view.state, await hidden_keys(runner, key))

    @router.patch("/state/{id:path}")
    async def patch_state(request: Request, id: str) -> Response:  # noqa: A002
        return await _patch_response(runtime, request, (await guard(request)).thread_key(id))

    @router.patch("/thread/{id:path}")
    async def label(request: Request, id: str) -> Response:  # noqa: A002
        return await _label_thread(runtime, request, (await guard(request)).thread_key(id))

    @router.delete("/thread/{id:path}")
    async def delete_thread(request: Request, id: str) -> Response:  # noqa: A002
        await runtime.erase_thread((await guard(request)).thread_key(id))
        return JsonResponse({"threadId": id, "deleted": True})

    return router


async def read_messages(runtime: ServerRuntime, key: ThreadKey) -> MessagesSnapshot:
    """Return the messages of a thread as clients of its agent see them. Raises: UnknownThread."""
    runner = await runtime.ensure_runner()
    info = await runner.ledger.get_thread(key)
    view = await runner.view_thread(key)
    snapshot = MessagesSnapshot(messages=view.transcript.messages())
    exposure = runtime.audiences.exposure_for(info.agent) if info else None
    shown = snapshot if exposure is None else safe_snapshot(snapshot, exposure, find_call_in(view))
    return snapshot_with_feedback(shown, view.feedback)


async def _list_threads(runtime: ServerRuntime, request: Request, actor: Actor) -> Response:
    query = parse_list_request(request.query_params)
    ledger = (await runtime.ensure_runner()).ledger
    if query.changed_after is not None:
        changed = await ledger.list_changed_threads(
            actor.tenant, actor.owner, after=query.changed_after, limit=query.limit
        )
        threads = [describe_thread(info) for info in changed.threads]
        return JsonResponse({"threads": threads, "erased": changed.erased, "next": None, "cursor": changed.cursor})
    # Read before the page: what changes in between is then reported again, and not lost.
    cursor = None if query.before is not None else await _newest_cursor(ledger, actor)
    page = await ledger.list_threads(
        actor.tenant,
        actor.owner,
        limit=query.limit,
        before=query.before,
        agents=query.agents,
        statuses=query.statuses,
        archived=query.archived,
        search=query.search,
    )
    following = page[-1].cursor if len(page) == query.limit else None
    return JsonResponse({"threads": [describe_thread(info) for info in page], "next": following, "cursor": cursor})


async def _newest_cursor(ledger: Ledger, actor: Actor) -> str:
    return (await ledger.list_changed_threads(actor.tenant, actor.owner, after=None)).cursor


async def _label_thread(runtime: ServerRuntime, request: Request, key: ThreadKey) -> Response:
    labels = parse_labels(await read_object(request))
    return JsonResponse(describe_thread(await label_thread(await runtime.ensure_runner(), key, labels)))


async def label_thread(runner: Runner, key: ThreadKey, labels: ThreadLabels) -> ThreadInfo:
    """Write the labels that a client chose for a thread, without secrets; also during a run. Return the thread.

    Raises: UnknownThread, LedgerError.
    """
    if labels.title is not None:
        title = runner.secrets.redact_client_value(key, labels.title, "title")
        labels = replace(labels, title=title[:MAX_TITLE_LENGTH])
    chosen = {"title": labels.title, "archived": labels.archived}
    body = msgspec.json.encode({name: value for name, value in chosen.items() if value is not None})
    await runner.ledger.append_facts(key, [Fact(owner=THREAD_OWNER, kind=LABELLED, body=body)], labels=labels)
    return await require_thread(runner.ledger, key)


async def _patch_response(runtime: ServerRuntime, request: Request, key: ThreadKey) -> Response:
    body = await read_patch(request)
    runner = await runtime.ensure_runner()
    return await _state_response(runtime, *await patch_state(runner, key, body))


async def patch_state(runner: Runner, key: ThreadKey, body: bytes) -> tuple[SharedState, frozenset[str]]:
    """Apply a JSON Patch to a thread's visible state; return the new state and the hidden keys.

    Raises: InvalidPatch, PatchConflict, PendingInterrupts, UnknownThread, ThreadBusy.
    """
    operations, fact = await run_in_thread_if_large(len(body), _prepare_patch, runner, key, body)
    hidden = await hidden_keys(runner, key)
    for _ in range(_MAX_ATTEMPTS):
        view = await runner.view_thread(key)
        check_state_is_free(view)
        state = view.state.copy()  # For the thread: others may use this view.
        size = max(len(body), state.measure_size(LARGE_BYTES))
        patched = await run_in_thread_if_large(size, state.with_client_patch, operations, hidden)
        with suppress(StaleCursor):  # The thread has changed since: apply the patch to the new state.
            await runner.ledger.append_facts(key, [fact], expect=view.seq)
            return SharedState(patched), hidden
    raise PatchConflict


def _prepare_patch(runner: Runner, key: ThreadKey, body: bytes) -> tuple[Any, Fact]:
    """Return the operations of a patch without secrets, and the fact that stores them. Raises: InvalidPatch, PayloadTooLarge."""
    operations = runner.secrets.redact_client_value(key, parse_patch(body), "state")
    return operations, Fact(owner=STATE_OWNER, kind=PATCHED, body=msgspec.json.encode({"patch": operations}))


def parse_patch(body: bytes) -> Any:
    """Return the JSON value of a patch; the state validates it. Raises: InvalidPatch."""
    try:
        return strict_json.loads(body)
    except InvalidInput as error:
        raise InvalidPatch(error.message) from error


async def read_patch(request: Request) -> bytes:
    """Return the body of a patch. Raises: UnsupportedMediaType, PayloadTooLarge, InvalidInput."""
    return await read_body(request, _MAX_PATCH_BYTES, media_types=_PATCH_TYPES)


async def _state_response(runtime: ServerRuntime, state: SharedState, hidden: frozenset[str]) -> Response:
    line = await encode_visible_state(state, hidden)
    snapshot = encode_event(StateSnapshot(snapshot=msgspec.Raw(line)))
    return LargeJsonResponse(snapshot, slow_reader=runtime.settings.slow_reader)


async def encode_visible_state(state: SharedState, hidden: frozenset[str]) -> bytes:
    """Return what clients see of a state, as JSON. A large one is encoded in a thread."""
    return await run_in_thread_if_large(state.measure_size(LARGE_BYTES), _encode_visible, state.copy(), hidden)


def _encode_visible(state: SharedState, hidden: frozenset[str]) -> bytes:
    return msgspec.json.encode(state.visible_part(hidden))


async def hidden_keys(runner: Runner, key: ThreadKey) -> frozenset[str]:
    """Return the state keys that the thread's agent hides from clients."""
    info = await runner.ledger.get_thread(key)
    return hidden_keys_of(runner, info) if info else frozenset()


def hidden_keys_of(runner: Runner, info: ThreadInfo) -> frozenset[str]:
    """Return the state keys that the agent of this row hides from clients."""
    agent = runner.agents.get(info.agent)
    return agent.hidden_state if agent else frozenset()
