"""The examples, each with a scripted model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from google.adk.models.base_llm import BaseLlm

from tests.bridges.adk.scripted import HANG, Scripted, call, piece, text
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def app_of(name: str, model: BaseLlm, **more: Any) -> FastAPI:
    return example(name).create(model, SETTINGS, **more)


def text_of(response: Any) -> str:
    events = [event for _, event in frames(response)]
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("adk_*.py")), ids=lambda path: path.stem)
def test_every_example_has_its_own_app(path: Path) -> None:
    assert isinstance(example(path.stem).app, FastAPI)


async def test_the_basic_app_calls_its_tool_and_answers() -> None:
    model = Scripted.of([call("get_weather", "w1", city="Rome")], ["It is ", "clear."])
    async with client_of(app_of("adk_basic_sse_app", model)) as client:
        response = await client.post("/", json=run_body("Rome?"), headers={"X-User-ID": "ada"})
    assert text_of(response) == "It is clear."
    assert model.saw[1][-1] == ("user", ("result", "get_weather", {"city": "Rome", "sky": "clear"}))


async def test_the_context_example_separates_users_and_teams_and_answers_a_call_with_text() -> None:
    model = Scripted.of([call("ask_user", "a1", question="Which?")], ["Blue it is."])
    headers = {"X-User-ID": "ada", "X-Team": "red", "Accept-Language": "fr"}
    async with client_of(app_of("adk_custom_context", model)) as client:
        assert (await client.post("/", json=run_body("Paint"))).status_code == 401
        first = await client.post("/", json=run_body("Paint"), headers=headers)
        second = await client.post("/", json=run_body("blue", message="u2"), headers=headers)
    assert frames(first)[-1][1]["outcome"] == {"type": "success", "pendingToolCallIds": ["a1"]}
    assert text_of(second) == "Blue it is."
    assert model.saw[1][-1] == ("user", ("result", "ask_user", {"result": "blue"}))
    assert "Answer in fr." in str(model.requests[0].config.system_instruction)


async def test_the_plugin_example_changes_text_ends_late_runs_and_replaces_error_codes() -> None:
    module = example("adk_plugins_and_timeouts")
    model = Scripted.of(["Hello!"], [piece(text("Hm")), HANG], RuntimeError("down"))
    app = module.create(model, SETTINGS, module.TimeoutHandler(run_timeout=5.0, event_timeout=1.0))
    async with client_of(app) as client:
        with unless_hung():
            first, second, third = [
                await client.post("/", json=run_body("hi", message=f"u{number}")) for number in (1, 2, 3)
            ]
    assert text_of(first) == "Hello."
    assert {"type": "STATE_SNAPSHOT", "snapshot": {"key_count": 0}}.items() <= frames(first)[-3][1].items()
    assert text_of(second) == "HmSorry, that took too long."
    assert frames(third)[-1][1]["code"] == "ACME-500"


async def test_the_history_example_lists_threads_by_their_first_message() -> None:
    model = Scripted.of([call("save_fact", "r1", fact="7")], ["I will."])
    me = {"X-User-ID": "ada"}
    async with client_of(app_of("adk_history_api", model)) as client:
        await client.post("/", json=run_body("Remember 7"), headers=me)
        titles = await client.get("/titles", headers=me)
        state = await client.get("/state_snapshot/t", headers=me)
        others = await client.get("/titles", headers={"X-User-ID": "bob"})
    assert titles.json() == {"t": "Remember 7"}
    assert state.json()["snapshot"] == {"facts": ["7"]}
    assert others.json() == {}


async def test_the_lock_example_allows_one_run_per_user() -> None:
    model = Scripted.of([piece(text("One")), HANG], ["Two"])
    me = {"X-User-ID": "ada", "X-Ambient-On-Disconnect": "stop"}
    app = app_of("adk_custom_lock", model)
    async with client_of(app) as client:
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.post("/", json=run_body("hold"), headers=me))
                await model.wait_for_calls()
                refused = await client.post("/", json=run_body("hi", thread="other"), headers=me)
                welcome = await client.post("/", json=run_body("hi", thread="mine"), headers={"X-User-ID": "bob"})
                tasks.cancel_scope.cancel()
    assert frames(refused)[-1][1]["code"] == "ONE_AT_A_TIME"
    assert text_of(welcome) == "Two"


async def test_the_human_in_the_loop_example_waits_for_an_expert_and_for_a_confirmation() -> None:
    model = Scripted.of(
        [call("ask_expert", "e1", question="?")], ["It is fine."], [call("refund", "f1", amount=3.0)], ["Refunded."]
    )
    async with client_of(app_of("adk_hitl_tool_flow", model)) as client:
        waits = await client.post("/", json=run_body("Is it broken?"))
        answer = {"id": "r1", "role": "tool", "toolCallId": "e1", "content": "No."}
        answered = await client.post("/", json={**run_body("x"), "messages": [answer]})
        asks = await client.post("/", json=run_body("Refund me", message="u2"))
        [question] = frames(asks)[-1][1]["outcome"]["interrupts"]
        entry = {"interruptId": question["id"], "status": "resolved", "payload": {"confirmed": True}}
        confirmed = await client.post("/", json={**run_body("x"), "messages": [], "resume": [entry]})
    assert frames(waits)[-1][1]["outcome"]["pendingToolCallIds"] == ["e1"]
    assert text_of(answered) == "It is fine."
    assert question["toolCallId"] == "f1"
    assert text_of(confirmed) == "Refunded."
    assert model.saw[3][-1] == ("user", ("result", "refund", {"refunded": 3.0}))
