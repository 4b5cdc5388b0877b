"""Real frameworks, traced: their runs, their tools and what their models took."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from strands import tool

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.runs.runner import Runner
from ambient_runner.telemetry.tracing import tracing
from tests.bridges.adk.scripted import Scripted
from tests.bridges.adk.scripted import call as adk_call
from tests.bridges.adk.scripted import reply as adk_reply
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says
from tests.bridges.strands.world import agent_of
from tests.telemetry.world import Spans, spans_of
from tests.world import SETTINGS, run_once, user


async def run_traced(bridge: Any, spans: Spans) -> None:
    middleware = [tracing(spans.provider, content=True)]
    async with (
        MemoryLedger() as ledger,
        Runner(ledger, {"agent": AgentHost("agent", bridge)}, SETTINGS, middleware) as runner,
    ):
        await run_once(runner, user("u1", "weather?"))


def check(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    root, called, message = spans.all
    assert spans.tree()[:2] == ["invoke_agent agent", "  execute_tool weather"]
    assert "Oslo" in called.attributes["gen_ai.tool.call.arguments"]
    assert "sunny" in called.attributes["gen_ai.tool.call.result"]
    assert "It is sunny." in message.attributes["gen_ai.output.messages"]
    assert message.name.startswith("chat")
    assert root.attributes["ambient.outcome"] == "success"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_strands_run_is_one_tree_of_spans_with_its_models_usage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    model = ScriptedModel(calls(call("c1", "weather", '{"city": ', '"Oslo"}')), says("It is ", "sunny."))
    with spans_of() as spans:
        await run_traced(StrandsBridge(agent_of(model, weather)), spans)
    check(spans, caplog)
    took = {name: value for name, value in spans.roots[0].attributes.items() if ".usage." in name}
    assert (took["gen_ai.usage.input_tokens"], took["gen_ai.usage.output_tokens"]) == (20, 10)


async def test_a_run_of_an_adk_agent_is_one_tree_of_spans(caplog: pytest.LogCaptureFixture) -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    model = Scripted.of([adk_reply(adk_call("weather", "c1", city="Oslo"))], ["It is ", "sunny."])
    with spans_of() as spans:
        await run_traced(ADKBridge(LlmAgent(name="forecaster", model=model, tools=[weather])), spans)
    check(spans, caplog)
