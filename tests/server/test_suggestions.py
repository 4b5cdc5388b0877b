"""Suggestions: which source an agent has, and what is wrong with a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ambient_runner import Settings
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import AgentSettings
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.copilotkit import Suggestion
from ambient_runner.protocol.run_input import parse_input
from ambient_runner.server.suggestions import collect_suggestions, load_suggestions
from tests.server.worker import WorkerBridge

INPUT = parse_input(b'{"threadId": "s", "messages": []}').input


def settings_with(suggestions: Any) -> Settings:
    return Settings(store="memory://", agents=(AgentSettings(name="mine", suggestions=suggestions),))


async def suggest(messages: Sequence[Any], state: Any) -> list[Any]:
    return ["x" * 2000, {"message": "only a message"}, *["more"] * 50]


def plain(messages: Sequence[Any], state: Any) -> list[Any]:
    return []


async def of_one(messages: Sequence[Any]) -> list[Any]:
    return []


async def test_an_agent_has_the_suggestions_of_its_table_else_its_own_else_none() -> None:
    bridges = {"mine": DemoBridge(), "demo": DemoBridge(), "worker": WorkerBridge()}
    sources = load_suggestions(settings_with(("Make tea",)), bridges)
    assert sources.keys() == {"mine", "demo"}
    assert await collect_suggestions("mine", sources["mine"], INPUT) == [
        Suggestion(title="Make tea", message="Make tea")
    ]
    assert len(await collect_suggestions("demo", sources["demo"], INPUT)) == 5
    assert await collect_suggestions("worker", None, INPUT) == []


async def test_suggestions_are_bounded_in_number_and_length() -> None:
    source = load_suggestions(settings_with(f"{__name__}:suggest"), {"mine": DemoBridge()})["mine"]
    found = await collect_suggestions("mine", source, INPUT)
    assert found[:2] == [
        Suggestion(title="x" * 1000, message="x" * 1000),
        Suggestion(title="only a message", message="only a message"),
    ]
    assert len(found) == 20


@pytest.mark.parametrize(
    "target", ["no.such.module:suggest", f"{__name__}:missing", f"{__name__}:plain", f"{__name__}:of_one", "mine.py:f"]
)
def test_a_function_that_cannot_suggest_is_named_with_its_agent(target: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_suggestions(settings_with(target), {"mine": DemoBridge()})
    assert "agent mine" in refused.value.message
