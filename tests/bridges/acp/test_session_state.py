"""What an agent says about its session, as clients get it."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.bridges.acp.session_state import STATE_KEY, SessionState
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.protocol import events as e

MODES = {
    "currentModeId": "default",
    "availableModes": [{"id": "default", "name": "Default"}, {"id": "plan", "name": "Plan"}],
}
MODE_OPTION = {
    "id": "mode",
    "name": "Mode",
    "category": "mode",
    "type": "select",
    "currentValue": "default",
    "options": [{"value": "default", "name": "Default"}, {"value": "plan", "name": "Plan"}],
}
MODEL_OPTION = {
    "id": "model",
    "name": "Model",
    "category": "model",
    "type": "select",
    "currentValue": "large",
    "options": [{"group": "all", "name": "All", "options": [{"value": "large", "name": "Large"}]}],
}


def update(name: str, **members: Any) -> dict[str, Any]:
    return {"sessionUpdate": name, **members}


def session(**opened: Any) -> SessionState:
    state = SessionState()
    state.apply_session(opened)
    return state


def test_a_new_session_brings_its_modes_models_and_options() -> None:
    models = {"currentModelId": "flash", "availableModels": []}
    state = session(sessionId="s", modes=MODES, models=models, configOptions=[MODE_OPTION, MODEL_OPTION])
    assert state.value == {"modes": MODES, "models": models, "configOptions": [MODE_OPTION, MODEL_OPTION]}
    assert (state.mode_id, state.mode_ids, state.model_id) == ("default", ["default", "plan"], "large")
    assert state.find_option("model") == MODEL_OPTION
    assert state.find_option("effort") is None


def test_an_agent_without_options_has_the_model_of_its_models() -> None:
    assert session(models={"currentModelId": "flash"}).model_id == "flash"
    assert (SessionState().model_id, SessionState().mode_id, SessionState().mode_ids) == (None, None, [])


def test_an_agent_without_modes_has_the_mode_of_its_options() -> None:
    assert session(configOptions=[MODE_OPTION]).mode_id == "default"


def test_a_new_mode_is_also_the_value_of_the_option() -> None:
    state = session(modes=MODES, configOptions=[MODE_OPTION, MODEL_OPTION])
    state.apply(update("current_mode_update", currentModeId="plan"))
    assert state.value["modes"]["currentModeId"] == "plan"
    assert state.value["configOptions"] == [{**MODE_OPTION, "currentValue": "plan"}, MODEL_OPTION]


def test_a_new_value_of_the_option_is_also_the_mode() -> None:
    state = session(modes=MODES, configOptions=[MODE_OPTION])
    state.apply(update("config_option_update", configOptions=[{**MODE_OPTION, "currentValue": "plan"}]))
    assert state.mode_id == "plan"


def test_a_mode_that_the_option_does_not_have_leaves_the_option_alone() -> None:
    state = session(modes=MODES, configOptions=[MODE_OPTION])
    state.set_mode("yolo")
    assert (state.mode_id, state.value["configOptions"]) == ("yolo", [MODE_OPTION])


def test_commands_have_names() -> None:
    state = SessionState()
    commands = [
        {"name": "web", "description": "Search", "input": {"hint": "query"}, "_meta": {}},
        {"description": "?"},
        7,
    ]
    state.apply(update("available_commands_update", availableCommands=commands))
    assert state.value == {"commands": [{"name": "web", "description": "Search", "input": {"hint": "query"}}]}


def test_a_title_can_be_set_and_removed_and_stays_if_it_is_not_mentioned() -> None:
    state = SessionState()
    state.apply(update("session_info_update", title="A", updatedAt="2026-01-01"))
    state.apply(update("session_info_update", _meta={"codex": {"threadStatus": {"type": "idle"}}}))
    assert state.value == {"title": "A", "updatedAt": "2026-01-01"}
    state.apply(update("session_info_update", title=None))
    assert state.value == {"updatedAt": "2026-01-01"}


def test_usage_is_counted_and_the_cost_stays_until_there_is_a_newer_one() -> None:
    state = SessionState()
    state.apply(update("usage_update", used=10, size=100, cost={"amount": 0.5, "currency": "USD"}))
    state.apply(update("usage_update", used=20, size=100, _meta={"x": 1}))
    assert state.value == {"usage": {"used": 20, "size": 100, "cost": {"amount": 0.5, "currency": "USD"}}}


def test_the_number_of_plans_is_bounded() -> None:
    state = SessionState()
    for number in range(100):
        state.apply(update("plan_update", plan={"planId": f"p{number}", "entries": []}))
    assert list(state.value["plans"])[-1] == "p99"
    assert len(state.value["plans"]) <= 21


@pytest.mark.parametrize(
    "name",
    [
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "plan",
        "plan_update",
        "plan_removed",
    ],
)
@pytest.mark.parametrize("junk", [None, 7, "x", [1], {"a": 1}, [[]], True])
def test_members_of_the_wrong_type_are_passed_over(name: str, junk: Any) -> None:
    members = (
        "availableCommands",
        "currentModeId",
        "configOptions",
        "title",
        "used",
        "cost",
        "entries",
        "plan",
        "planId",
    )
    state = SessionState()
    state.apply(update(name, **dict.fromkeys(members, junk)))
    state.apply_session(dict.fromkeys(("modes", "models", "configOptions"), junk))
    assert state.is_session_update(update(name))
    e.encode_event(e.StateSnapshot(snapshot=state.value))
    _ = state.mode_id, state.model_id, state.mode_ids


def test_updates_of_a_turn_are_not_about_the_session() -> None:
    state = SessionState()
    state.apply(update("agent_message_chunk"))
    assert not state.is_changed
    assert not SessionState().is_session_update(update("agent_message_chunk"))
    assert not SessionState().is_session_update({"sessionUpdate": ["plan"]})


def test_a_run_gets_everything_first_and_then_what_has_changed() -> None:
    state, store = session(modes=MODES), StateStore({"mine": 1, STATE_KEY: "what a client has written"})
    assert state.is_changed
    store.update_with_patch({STATE_KEY: state.take_value()})
    assert (state.is_changed, state.take_patch()) == (False, [])
    state.apply(update("session_info_update", title="A"))
    state.apply(update("session_info_update", title="A"))
    assert state.take_patch() == [{"op": "add", "path": "/acp/title", "value": "A"}]
    state.apply(update("session_info_update", title=None))
    store.apply_patch(state.take_patch())
    assert store.value == {"mine": 1, "acp": {"modes": MODES, "title": None}}


def test_changes_between_two_runs_are_not_lost() -> None:
    state = session(modes=MODES)
    state.take_value()
    state.apply(update("current_mode_update", currentModeId="plan"))
    state.apply(update("session_info_update", title="A"))
    assert [operation["path"] for operation in state.take_patch()] == ["/acp/modes", "/acp/title"]


def test_lists_of_any_length_fit_into_the_state() -> None:
    state = SessionState()
    commands = [{"name": f"c{number}", "description": "d" * 10_000} for number in range(10_000)]
    state.apply(update("available_commands_update", availableCommands=commands))
    state.apply(update("config_option_update", configOptions=[{"id": "x", "options": commands}]))
    state.apply(update("plan", entries=[{"content": "e" * 1000}] * 10_000))
    assert len(e.encode_event(e.StateSnapshot(snapshot=state.value))) < 2 << 20
    assert state.value["commands"][0]["name"] == "c0"


def test_a_state_that_anyone_may_see_has_nothing_of_the_conversation() -> None:
    state = SessionState(is_safe=True)
    state.apply({"sessionUpdate": "session_info_update", "title": "Fix the login of the customer"})
    state.apply({"sessionUpdate": "plan", "entries": [{"content": "secret", "priority": "high", "status": "pending"}]})
    state.apply(
        {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "x", "description": "y"}]}
    )
    state.apply({"sessionUpdate": "current_mode_update", "currentModeId": "plan"})
    assert state.value.keys() == {"modes"}
