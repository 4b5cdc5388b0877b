"""Threads for pages of CopilotKit: list, rename, archive, erase, inspect, annotate. The routes are in `copilotkit.py`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import QueryParams

from ambient_runner.errors import IdempotencyConflict, InvalidInput
from ambient_runner.ledger.batches import slice_batch
from ambient_runner.ledger.records import ThreadLabels
from ambient_runner.projections.frames import Framer
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.copilotkit import CLIENT_VERSION, inspector_message, thread_row
from ambient_runner.protocol.copilotkit_input import parse_annotation
from ambient_runner.protocol.profiles import profile_for_version
from ambient_runner.runs.event_reader import read_stored_batches
from ambient_runner.runs.large_work import TimeSlice
from ambient_runner.runs.view_cache import fold_batch, load_view, read_despite_retention, require_thread
from ambient_runner.server.bounded_send import LargeJsonResponse
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.request_parsing import parse_thread_id
from ambient_runner.server.routes.feedback import langfuse_scores, submit_feedback
from ambient_runner.server.routes.threads import encode_visible_state, hidden_keys, label_thread, read_messages
from ambient_runner.server.thread_request import parse_labels, parse_list_request
from ambient_runner.services.feedback import read_feedback
from ambient_runner.services.feedback_events import has_feedback_event

if TYPE_CHECKING:
    from fastapi import Request, Response

    from ambient_runner.ledger.records import ThreadInfo
    from ambient_runner.protocol.copilotkit_input import Annotation
    from ambient_runner.runs.run import Actor
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.services.feedback import Feedback

_MAX_EVENTS = 2_000
"""Newest entries of a thread that the inspector gets."""


class CopilotKitThreads:
    """The threads of one server, for pages of CopilotKit. A page may know the agent of a thread as `default`, and gets that id back."""

    def __init__(self, runtime: ServerRuntime) -> None:
        self._runtime = runtime
        self._scores = langfuse_scores(runtime.settings)

    async def list_threads(self, actor: Actor, query: QueryParams) -> Response:
        """Return a page of the list, newest first. Raises: InvalidInput, InvalidCursor."""
        agent_id = query.get("agentId", "")
        page = parse_list_request(self._to_list_query(query, agent_id))
        ledger = (await self._runtime.ensure_runner()).ledger
        threads = await ledger.list_threads(
            actor.tenant,
            actor.owner,
            limit=page.limit,
            before=page.before,
            agents=page.agents,
            archived=page.archived,
        )
        following = threads[-1].cursor if len(threads) == page.limit else None
        return JsonResponse({"threads": [self._row(info, agent_id) for info in threads], "nextCursor": following})

    async def change_thread(self, actor: Actor, thread_id: str, body: bytes) -> Response:
        """Rename a thread, or move it to or from the archive; return its row. Raises: InvalidInput, UnknownThread."""
        members = strict_json.loads(body)
        if not isinstance(members, dict):
            raise InvalidInput("The body must be a JSON object.")
        changes: dict[str, Any] = {**members}
        agent_id = changes.pop("agentId", None)
        labels = parse_labels(changes, title_member="name")
        info = await label_thread(await self._runtime.ensure_runner(), actor.thread_key(thread_id), labels)
        return JsonResponse(self._row(info, agent_id if isinstance(agent_id, str) else ""))

    async def archive_thread(self, actor: Actor, thread_id: str) -> Response:
        """Move a thread to the archive. Raises: UnknownThread."""
        runner = await self._runtime.ensure_runner()
        await label_thread(runner, actor.thread_key(thread_id), ThreadLabels(archived=True))
        return JsonResponse({"threadId": thread_id, "archived": True})

    async def erase_thread(self, actor: Actor, thread_id: str) -> Response:
        """Erase a thread. Raises: UnknownThread, ServiceError."""
        await self._runtime.erase_thread(actor.thread_key(thread_id))
        return JsonResponse({"threadId": thread_id, "deleted": True})

    async def inspect_messages(self, actor: Actor, thread_id: str) -> Response:
        """Return the messages of a thread. Raises: UnknownThread."""
        snapshot = await read_messages(self._runtime, actor.thread_key(thread_id))
        rows: list[msgspec.Raw] = []
        time_slice = TimeSlice()
        for message in snapshot.messages:
            rows.append(msgspec.Raw(msgspec.json.encode(inspector_message(message))))
            await time_slice.yield_if_spent()
        return self._large_response({"messages": rows})

    async def inspect_state(self, actor: Actor, thread_id: str) -> Response:
        """Return the visible state of a thread. Raises: UnknownThread."""
        runner, key = await self._runtime.ensure_runner(), actor.thread_key(thread_id)
        view = await runner.view_thread(key)
        line = await encode_visible_state(view.state, await hidden_keys(runner, key))
        return self._large_response({"state": msgspec.Raw(line)})

    async def inspect_events(self, actor: Actor, thread_id: str) -> Response:
        """Return the newest events of a thread, without the snapshots of its messages. Raises: UnknownThread."""
        runner, key = await self._runtime.ensure_runner(), actor.thread_key(thread_id)

        async def read_events() -> list[bytes]:
            return await self._read_events(runner, await require_thread(runner.ledger, key))

        lines = await read_despite_retention(runner.ledger, key, read_events)
        return self._large_response({"events": [msgspec.Raw(line) for line in lines]})

    async def annotate(self, request: Request, actor: Actor, body: bytes) -> Response:
        """Store feedback, once for each id of the client. Raises: InvalidInput, UnknownThread."""
        annotation = parse_annotation(body)
        feedback = _to_feedback(annotation)
        key = actor.thread_key(parse_thread_id({"threadId": annotation.thread_id}))
        ledger = (await self._runtime.ensure_runner()).ledger
        is_duplicate = await has_feedback_event(ledger, key, annotation.event_id)
        if not is_duplicate:
            try:
                await submit_feedback(
                    self._runtime, request, actor, key, feedback, self._scores, event_id=annotation.event_id
                )
            except IdempotencyConflict:  # Stored since, by another request, maybe in another process.
                is_duplicate = True
        return JsonResponse({"id": annotation.event_id, "duplicate": is_duplicate})

    def _large_response(self, content: Any) -> Response:
        return LargeJsonResponse(content, slow_reader=self._runtime.settings.slow_reader)

    def _to_list_query(self, query: QueryParams, agent_id: str) -> QueryParams:
        """Return the query of CopilotKit's list as that of `GET /thread/list`."""
        archived = "with" if query.get("includeArchived") == "true" else "without"
        members = {"agent": self._runtime.resolve_agent(agent_id), "archived": archived}
        renamed = {"limit": query.get("limit"), "before": query.get("cursor")}
        return QueryParams({**members, **{name: value for name, value in renamed.items() if value}})

    def _row(self, info: ThreadInfo, agent_id: str) -> dict[str, Any]:
        agent = agent_id if self._runtime.resolve_agent(agent_id) == info.agent else info.agent
        return thread_row(info.key.id, info, agent=agent, tenant=info.key.tenant, owner=info.key.owner)

    async def _read_events(self, runner: Runner, info: ThreadInfo) -> list[bytes]:
        framer = Framer(
            info.epoch,
            profile_for_version(self._runtime.settings.client_for(info.agent) or CLIENT_VERSION),
            wire_format="ndjson",
            withdrawn=await runner.find_withdrawn_content(info.key),
            exposure=self._runtime.audiences.exposure_for(info.agent),
            snapshots=False,
        )
        after = max(info.first - 1, info.last - _MAX_EVENTS)
        view = await load_view(runner.ledger, info.key, until=after, epoch=info.epoch)
        lines: list[bytes] = []
        time_slice = TimeSlice()
        stored = read_stored_batches(runner.ledger, info.key, after, until=info.last, epoch=info.epoch)
        async with aclosing(stored) as batches:
            async for batch in batches:
                for seq in range(batch.first, batch.last + 1):
                    entry = slice_batch(batch, seq, seq)
                    await fold_batch(view, entry, time_slice)
                    contexts = {at: framer.read_view(entry, at, view) for at in framer.view_seqs(entry)}
                    lines += framer.render(entry, contexts).splitlines()
                    await time_slice.yield_if_spent()
        return lines


def _to_feedback(annotation: Annotation) -> Feedback:
    """Return the annotation as `POST /feedback` takes it, within its limits. Raises: InvalidInput."""
    payload = {"messageId": annotation.message_id, "comment": annotation.comment}
    body = {"type": "META", "metaType": annotation.value, "payload": payload}
    return read_feedback(msgspec.json.encode(body))
