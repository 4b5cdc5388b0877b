"""Access of a history or state service to threads: those of the store, and sessions from before the move to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.sessions import Session

from ambient_runner.adk import ConfigContext, HandlerContext
from ambient_runner.adk.routes import ADKEndpoints
from ambient_runner.bridges.adk.config import HIDDEN
from ambient_runner.bridges.adk.external_events import adopted_messages
from ambient_runner.bridges.adk.session_sync import live_events
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.compat.adk_agui_middleware.service.service_registry import find_service
from ambient_runner.errors import ConfigError, UnknownThread
from ambient_runner.projections.state import is_hidden
from ambient_runner.protocol.events import MessagesSnapshot, StateSnapshot

if TYPE_CHECKING:
    from fastapi import Request

    from ambient_runner.compat.adk_agui_middleware.data_model.config import RequestExtractor, ThreadConfig
    from ambient_runner.compat.adk_agui_middleware.service.sse_service import SSEService
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["ThreadAccess"]


class ThreadAccess:
    """Reads, patches and deletes the threads that a configuration identifies. `app` is set when its routes are registered."""

    def __init__(self, config: ThreadConfig) -> None:
        self._config = config
        self.app: Any = None

    async def list_sessions(self, request: Request) -> list[Session]:
        """Return the requester's threads as ADK sessions without events, newest first."""
        service, endpoints = self._find_service(), self._endpoints(session_id="-")
        key = await endpoints.thread_key(request, "-")
        infos = await endpoints.list_infos(key)
        known = [await _to_session(service, info.key, info.updated / 1000) for info in infos]
        known_ids = {session.id for session in known}
        stored = await service.bridge.config.get_session_service().list_sessions(app_name=key.tenant, user_id=key.owner)
        older = [_without_hidden_state(session) for session in stored.sessions if session.id not in known_ids]
        return sorted([*known, *older], key=lambda session: session.last_update_time, reverse=True)

    async def delete_thread(self, request: Request) -> None:
        """Erase the thread and its session, if there is one."""
        endpoints = self._endpoints()
        key = await endpoints.thread_key(request, "")
        try:
            await endpoints.erase_thread(key)
        except UnknownThread:
            await self._find_service().bridge.erase_thread(key)

    async def messages_snapshot(self, request: Request) -> MessagesSnapshot:
        """Return the messages of the thread. Raises: UnknownThread."""
        endpoints = self._endpoints()
        try:
            return await endpoints.messages_snapshot(request, "")
        except UnknownThread:
            session = await self._stored_session(await endpoints.thread_key(request, ""))
            bridge = self._find_service().bridge
            events = live_events(session.events)
            return MessagesSnapshot(
                messages=adopted_messages(events, bridge.root.name, structured_agents=bridge.structured_agents)
            )

    async def state_snapshot(self, request: Request) -> StateSnapshot:
        """Return the state of the thread. Raises: UnknownThread."""
        endpoints = self._endpoints()
        try:
            return await endpoints.state_snapshot(request, "")
        except UnknownThread:
            session = await self._stored_session(await endpoints.thread_key(request, ""))
            return StateSnapshot(snapshot=_without_hidden_state(session).state)

    async def read_patch(self, request: Request) -> Any:
        """Return the patch in the body of a request. Raises: Unauthorized, InvalidPatch, PayloadTooLarge."""
        return await self._endpoints().read_patch(request, "")

    async def patch_state(self, request: Request, patch: Any) -> None:
        """Apply a JSON Patch to the state of the thread. Raises: UnknownThread, InvalidPatch, PatchConflict."""
        await self._endpoints().patch_thread_state(request, "", patch)

    async def _stored_session(self, key: ThreadKey) -> Session:
        location = self._find_service().bridge.session_location(key)
        session = (
            await self._find_service()
            .bridge.config.get_session_service()
            .get_session(app_name=location.app, user_id=location.user, session_id=location.session)
        )
        if session is None:
            raise UnknownThread
        return session

    def _endpoints(self, session_id: str | RequestExtractor | None = None) -> ADKEndpoints:
        service, config = self._find_service(), self._config
        context = ConfigContext(
            app_name=_of_request(config.app_name),
            user_id=_of_request(config.user_id),
            session_id=_of_request(session_id or config.session_id),
        )
        return ADKEndpoints(service.runtime, service.guard_for(context), context, HandlerContext(), service.agent_name)

    def _find_service(self) -> SSEService:
        service = find_service(self._config, self.app)
        if service is None:
            raise ConfigError(
                "This service has no SSEService: create one with the session_service of this configuration."
            )
        return service


def _of_request(source: str | RequestExtractor) -> Any:
    """Return a fixed value as it is, and a function of a request as one of input and request."""
    if isinstance(source, str):
        return source

    async def extract_from_request(agui_content: Any, request: Request) -> str:
        return await call_hook(source, request)

    return extract_from_request


async def _to_session(service: SSEService, key: ThreadKey, updated: float) -> Session:
    view = await (await service.runtime.ensure_runner()).view_thread(key)
    state = view.state.visible_part(HIDDEN)
    return Session(id=key.id, app_name=key.tenant, user_id=key.owner, state=state, last_update_time=updated)


def _without_hidden_state(session: Session) -> Session:
    visible = {key: value for key, value in session.state.items() if not is_hidden(key, HIDDEN)}
    return session.model_copy(update={"state": visible})
