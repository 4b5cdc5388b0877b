"""The guard of a session's permission mode: an agent that widens it by itself is set back, unless a person's answer allowed it.

`modes.py` has the modes, `session_options.py` sets them at the beginning of a run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.buffered_messages import BridgeEvent
from ambient_runner.bridges.acp.modes import is_widened
from ambient_runner.bridges.acp.session_options import option_values
from ambient_runner.bridges.acp.session_state import announced_mode
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.processes.json_rpc_messages import RequestId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.modes import AgentMode
    from ambient_runner.bridges.acp.profiles import Profile
    from ambient_runner.bridges.acp.session_options import SessionOptions
    from ambient_runner.bridges.acp.session_state import SessionState
    from ambient_runner.processes.json_rpc_messages import Response

__all__ = ["ModeGuard"]

logger = logging.getLogger(__name__)

_MAX_RESETS = 10
"""Number of times that the mode is set back in one turn, before the agent is stopped."""

Send = Callable[[str, dict[str, Any]], RequestId]


class ModeGuard:
    """The guard of one session. `state` is what the agent has reported of it, `send` sends a request."""

    def __init__(self, profile: Profile, state: SessionState, send: Send, thread_id: str) -> None:
        self.options: SessionOptions | None = None
        """The options that the session is kept to; None while its mode is being set."""
        self.has_failed = False
        """True if the agent cannot be kept in its mode. It must be stopped."""
        chatter = {"agent_message_chunk"} if profile.quirks.has_mode_chatter else set[str]()
        self.update_kinds = frozenset({"current_mode_update", "config_option_update", *chatter})
        """Kinds of the updates that may report a mode."""
        self._profile = profile
        self._state = state
        self._send = send
        self.thread_id = thread_id
        self._may_widen = False
        self._reset_count = 0
        self._resets: dict[RequestId, str] = {}
        """The modes of the requests that set it back, by their ids."""

    def begin_turn(self) -> None:
        """Forget what a person allowed in an earlier turn."""
        self._may_widen, self._reset_count = False, 0

    def allow_switch(self) -> None:
        """Let the agent leave its mode once: a person has allowed it."""
        self._may_widen = True

    def check(self, session_id: str, update: Mapping[str, Any]) -> BridgeEvent | None:
        """Set the mode back if this update reports a wider one. Return the event that informs clients of it."""
        found = None if self.options is None else _reported_mode(update)
        if self.options is None or found is None or not self._is_widened(found, update, self.options):
            return None
        if self._may_widen:
            self._may_widen = False
            return None
        wanted = self.options.agent_mode
        logger.warning(
            "Thread %s: %s widened its mode to %r by itself; it is set back to %r.",
            self.thread_id,
            self._profile.title,
            found,
            wanted.mode_id,
        )
        self._reset_count += 1
        self.has_failed = self._reset_count > _MAX_RESETS or not self._send_reset(session_id, wanted)
        return BridgeEvent("mode_set_back", {"from": found, "to": wanted.mode_id})

    def handle_response(self, response: Response) -> dict[str, Any] | None:
        """Return the update that reports the mode after a request of the guard; None for a response to another request."""
        mode_id = self._resets.pop(response.id, None)
        if mode_id is None:
            return None
        if response.error is not None:
            logger.warning("Thread %s: %s refuses the mode %r.", self.thread_id, self._profile.title, mode_id)
            self.has_failed = True
        result = as_object(response.result)
        if "configOptions" in result:
            return {**result, "sessionUpdate": "config_option_update"}
        return {"sessionUpdate": "current_mode_update", "currentModeId": mode_id} if response.error is None else None

    def _is_widened(self, found: str, update: Mapping[str, Any], options: SessionOptions) -> bool:
        values = option_values(update)
        if not values and found == options.agent_mode.mode_id:
            return False
        return is_widened(
            self._profile.name, options.widest_mode, found, {**option_values(self._state.value), **values}
        )

    def _send_reset(self, session_id: str, mode: AgentMode) -> bool:
        """Send the requests that set the mode and its options. Return False if the agent has no such mode."""
        options: dict[str, str] = {}
        if mode.mode_id in self._state.mode_ids:
            params = {"sessionId": session_id, "modeId": mode.mode_id}
            self._resets[self._send("session/set_mode", params)] = mode.mode_id
        elif (option := self._state.find_option("mode")) is not None:
            options[str(option.get("id"))] = mode.mode_id
        else:
            return False
        for name, value in {**options, **mode.options}.items():
            params = {"sessionId": session_id, "configId": name, "value": value}
            self._resets[self._send("session/set_config_option", params)] = mode.mode_id
        return True


def _reported_mode(update: Mapping[str, Any]) -> str | None:
    """Return the mode that an update of one of `update_kinds` reports; None if it reports none."""
    match update:
        case {"sessionUpdate": "current_mode_update", "currentModeId": str(mode_id)}:
            return mode_id
        case {"sessionUpdate": "config_option_update"}:
            return option_values(update).get("mode")
        case {"sessionUpdate": "agent_message_chunk"}:
            return announced_mode(update)
        case _:
            return None
