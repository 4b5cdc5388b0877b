"""The start of a session in a new process: it resumes or loads the earlier session of the thread, or begins a new one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ambient_runner.bridges.acp.errors import ACPAuthRequired, ACPError, ACPExited
from ambient_runner.bridges.acp.messages import as_list
from ambient_runner.bridges.toolkit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.session_messages import SessionReceiver

__all__ = ["PROTOCOL_VERSION", "SessionStart", "SessionStarter", "StartedSession", "check_version", "has_ability"]

logger = logging.getLogger(__name__)

PROTOCOL_VERSION = 1

SessionStart = Literal["new", "resumed", "loaded"]
Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedSession:
    """A session of the agent, and how it started. `settings` are its modes, models and options."""

    id: str
    how: SessionStart
    settings: Mapping[str, Any]


def check_version(agent: Mapping[str, Any], title: str) -> None:
    """Return if the agent speaks our version of the protocol, by its response to `initialize`. Raises: ACPError."""
    version = agent.get("protocolVersion")
    if version != PROTOCOL_VERSION:
        raise ACPError(
            f"{title} does not speak version {PROTOCOL_VERSION} of the Agent Client Protocol. Install a version of it that does."
        )


def has_ability(agent: Mapping[str, Any], name: str) -> bool:
    """Return True if the agent offers this operation on its sessions, by its response to `initialize`. Null is no offer."""
    abilities = as_object(as_object(agent.get("agentCapabilities")).get("sessionCapabilities"))
    return abilities.get(name) not in (None, False)


class SessionStarter:
    """Starts the session of a process with this launch. `agent` is its response to `initialize`, `call` sends it a request."""

    def __init__(
        self, launch: Launch, agent: Mapping[str, Any], call: Call, receiver: SessionReceiver, thread_id: str
    ) -> None:
        self._receiver = receiver
        self._launch = launch
        self._profile = launch.profile
        self._agent = agent
        self._call = call
        self._thread_id = thread_id

    async def start(self, session_id: str, params: dict[str, Any]) -> StartedSession:
        """Continue the session, or begin a new one if the id is empty or the agent has lost it. Raises: BridgeError."""
        capabilities = as_object(self._agent.get("agentCapabilities"))
        started = None
        if session_id and has_ability(self._agent, "resume"):
            started = await self._continue("session/resume", session_id, params, "resumed")
        if session_id and started is None and capabilities.get("loadSession") is True:
            started = await self._load(session_id, params)
        return started or await self._begin(params)

    async def _begin(self, params: dict[str, Any]) -> StartedSession:
        settings = as_object(await self._call_signed_in("session/new", params))
        session_id = settings.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise ACPError(f"{self._profile.title} opened no session. The server's log has the reason.")
        return StartedSession(id=session_id, how="new", settings=settings)

    async def _load(self, session_id: str, params: dict[str, Any]) -> StartedSession | None:
        """Load the session. Its replay is dropped, since clients have the conversation; some agents send it after the response."""
        self._receiver.is_replaying = True
        try:
            started = await self._continue("session/load", session_id, params, "loaded")
            if started is not None and self._profile.quirks.replays_after_load:
                await self._receiver.wait_for_replay()
            return started
        finally:
            self._receiver.is_replaying = False

    async def _continue(
        self, method: str, session_id: str, params: dict[str, Any], how: SessionStart
    ) -> StartedSession | None:
        """Return None if the agent does not have the session any more."""
        try:
            settings = await self._call_signed_in(method, {**params, "sessionId": session_id})
        except (ACPExited, ACPAuthRequired):
            raise
        except ACPError as error:
            logger.info(
                "Thread %s: %s refused %s; it gets the conversation again unless it can continue otherwise.",
                self._thread_id,
                self._profile.title,
                method,
                exc_info=error,
            )
            return None
        return StartedSession(id=session_id, how=how, settings=as_object(settings))

    async def _call_signed_in(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, after signing in if the agent asks for that. Raises: ACPAuthRequired."""
        try:
            return await self._call(method, params)
        except ACPAuthRequired as error:
            await self._authenticate(error)
        return await self._call(method, params)

    async def _authenticate(self, error: ACPAuthRequired) -> None:
        """Sign in with the key that the process has, if the agent offers that. Raises: ACPAuthRequired otherwise."""
        methods = [as_object(method) for method in as_list(self._agent.get("authMethods"))]
        has_key = bool(self._launch.environment.get(self._profile.key_variable))
        by_key = next((method for method in methods if has_key and "api-key" in str(method.get("id"))), None)
        if by_key is None:
            names = ", ".join(str(method.get("name") or method.get("id")) for method in methods)
            raise ACPAuthRequired(f"{error.message} It offers: {names}." if names else None) from error
        await self._call("authenticate", {"methodId": by_key["id"]})
