"""The guard of a session's permission mode, without a process."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.bridges.acp.buffered_messages import BridgeEvent
from ambient_runner.bridges.acp.modes import Mode, agent_mode
from ambient_runner.bridges.acp.profiles import GENERIC, Profile, find_profile
from ambient_runner.bridges.acp.session_guard import ModeGuard
from ambient_runner.bridges.acp.session_options import SessionOptions
from ambient_runner.bridges.acp.session_state import SessionState
from ambient_runner.processes.json_rpc_messages import JsonRpcError, Response

Json = dict[str, Any]


class GuardedSession:
    """A guard, and the requests it has sent."""

    def __init__(self, profile: Profile, mode: Mode, modes: list[str], options: Json | None = None) -> None:
        self.sent: list[tuple[str, Json]] = []
        self.state = SessionState()
        available = [{"id": name, "name": name} for name in modes]
        if modes:
            self.state.apply_session({"modes": {"currentModeId": modes[0], "availableModes": available}})
        if options:
            self.state.apply_session({"configOptions": config_options(options)})
        self.guard = ModeGuard(profile, self.state, self._send, "t")
        self.guard.options = SessionOptions(mode=mode, agent_mode=agent_mode(profile.name, mode))

    def report(self, mode_id: str) -> BridgeEvent | None:
        return self.guard.check("s", {"sessionUpdate": "current_mode_update", "currentModeId": mode_id})

    def report_options(self, options: Json) -> BridgeEvent | None:
        update = {"sessionUpdate": "config_option_update", "configOptions": config_options(options)}
        return self.guard.check("s", update)

    def _send(self, method: str, params: Json) -> int:
        self.sent.append((method, params))
        return len(self.sent)


def config_options(values: Json) -> list[Json]:
    return [{"id": name, "category": name, "type": "select", "currentValue": item} for name, item in values.items()]


def _claude(mode: Mode = "default") -> GuardedSession:
    return GuardedSession(find_profile("claude-acp"), mode, ["default", "acceptEdits", "plan", "auto"])


@pytest.mark.parametrize("mode_id", ["acceptEdits", "auto", "bypassPermissions", "something-new"])
def test_a_wider_or_unknown_mode_is_set_back(mode_id: str) -> None:
    session = _claude()
    assert session.report(mode_id) == BridgeEvent("mode_set_back", {"from": mode_id, "to": "default"})
    assert session.sent == [("session/set_mode", {"sessionId": "s", "modeId": "default"})]


@pytest.mark.parametrize("mode_id", ["default", "plan"])
def test_the_mode_itself_and_a_narrower_one_stay(mode_id: str) -> None:
    session = _claude()
    assert session.report(mode_id) is None
    assert session.sent == []


def test_a_person_allows_one_switch_in_this_turn() -> None:
    session = _claude("plan")
    session.guard.allow_switch()
    assert session.report("acceptEdits") is None
    assert session.report("auto") is not None
    session.guard.allow_switch()
    session.guard.begin_turn()
    assert session.report("acceptEdits") is not None


def test_nothing_is_checked_while_the_mode_is_being_set() -> None:
    session = _claude()
    session.guard.options = None
    assert session.report("auto") is None


def test_nothing_is_known_about_the_modes_of_an_agent_without_a_profile() -> None:
    assert GuardedSession(GENERIC, "plan", ["a", "b"]).report("b") is None


def test_an_option_that_belongs_to_the_mode_is_set_back_too() -> None:
    """Codex is as wide as its sandbox and its collaboration mode together."""
    values = {"mode": "read-only", "collaboration_mode": "plan"}
    session = GuardedSession(find_profile("codex"), "plan", ["read-only", "agent"], values)
    assert session.report_options(values) is None
    assert session.report("read-only") is None
    assert session.report_options({"mode": "read-only", "collaboration_mode": "default"}) is not None
    assert session.sent[-1] == (
        "session/set_config_option",
        {"sessionId": "s", "configId": "collaboration_mode", "value": "plan"},
    )


def test_a_mode_that_is_an_option_is_set_as_an_option() -> None:
    session = GuardedSession(find_profile("opencode"), "plan", [], {"mode": "plan"})
    assert session.report_options({"mode": "build"}) is not None
    assert session.sent == [("session/set_config_option", {"sessionId": "s", "configId": "mode", "value": "plan"})]


def test_the_response_reports_the_mode_and_a_refusal_is_a_failure() -> None:
    session = _claude()
    session.report("auto")
    assert session.guard.handle_response(Response(99, {})) is None
    update = session.guard.handle_response(Response(1, {}))
    assert update == {"sessionUpdate": "current_mode_update", "currentModeId": "default"}
    assert not session.guard.has_failed
    session.report("auto")
    assert session.guard.handle_response(Response(2, None, JsonRpcError(-32602, "no"))) is None
    assert session.guard.has_failed


def test_a_mode_that_does_not_exist_is_a_failure() -> None:
    session = GuardedSession(find_profile("claude-acp"), "default", ["auto"])
    session.report("auto")
    assert session.guard.has_failed


@pytest.mark.parametrize("mode", ["accept-edits", "bypass", "yolo"])
def test_an_agent_that_must_ask_because_of_rules_is_set_back_from_the_mode_of_the_settings(mode: Mode) -> None:
    session = GuardedSession(find_profile("gemini"), mode, ["default", "autoEdit", "yolo", "plan"])
    session.guard.options = SessionOptions(mode=mode, agent_mode=agent_mode("gemini", mode, asks=True), asks=True)
    assert session.report("autoEdit") == BridgeEvent("mode_set_back", {"from": "autoEdit", "to": "default"})
