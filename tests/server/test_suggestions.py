"""Suggestions: which source an agent has, and what is wrong with a setting."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
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


def generated() -> Iterator[str]:
    yield "one"
    yield "two"


@pytest.mark.parametrize(
    "returned", [("one", "two"), {"one": 1, "two": 2}.keys(), generated()], ids=["tuple", "keys", "generator"]
)
async def test_any_iterable_of_suggestions_will_do(returned: Any) -> None:
    async def suggest_these(messages: Sequence[Any], state: Any) -> Any:
        return returned

    found = await collect_suggestions("mine", suggest_these, INPUT)
    assert [suggestion.message for suggestion in found] == ["one", "two"]


@pytest.mark.parametrize(
    ("returned", "described"),
    [
        ("Make tea", "str"),
        (b"Make tea", "bytes"),
        ({"title": "Tea", "message": "Make tea"}, "dict"),
        (5, "int"),
        (["Make tea", 5], "int"),
        ([["Make tea"]], "list"),
        ([{"title": "Tea"}], "message"),
        ([{"message": 5}], "message"),
        ([{"title": 5, "message": "Make tea"}], "title"),
    ],
)
async def test_what_is_not_a_list_of_suggestions_is_logged_with_what_to_return(
    returned: Any, described: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def suggest_wrongly(messages: Sequence[Any], state: Any) -> Any:
        return returned

    assert await collect_suggestions("mine", suggest_wrongly, INPUT) == []
    [record] = caplog.records
    assert (record.levelno, record.exc_info) == (logging.ERROR, None)
    message = record.getMessage()
    assert {
        part for part in ("agent mine", "suggest_wrongly", described, "list of texts") if part not in message
    } == set()


async def test_a_bridge_that_suggests_a_text_is_named_by_its_class(caplog: pytest.LogCaptureFixture) -> None:
    class Talkative(DemoBridge):
        async def suggest(self, messages: Sequence[Any], state: Mapping[str, Any]) -> Any:
            return "Make tea"

    source = load_suggestions(Settings(store="memory://"), {"mine": Talkative()})["mine"]
    assert await collect_suggestions("mine", source, INPUT) == []
    assert "Talkative.suggest" in caplog.text
