"""The short form of `python -m tests.fuzz.secrets`: what is planted does not leave the server, and without redaction it would."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.event_slots import EVENT_TEMPLATES, SLOT, fill_template
from tests.fuzz.scripted_models import FRAMEWORKS
from tests.fuzz.secrets import AGENTS, Result, fuzz_secrets

_SEED = 1


def find_leaks(agent: str, placements: int) -> list[str]:
    result = Result()
    fuzz_secrets(agent, range(placements), _SEED, result)
    assert result.placed.total() == placements
    return [f"{placement.index} {placement.planted.form} in {placement.detail}" for placement, _ in result.leaks]


@pytest.mark.parametrize("agent", AGENTS)
def test_no_planted_secret_leaves_the_server(agent: str) -> None:
    assert find_leaks(agent, 250) == []


@pytest.mark.parametrize("agent", FRAMEWORKS)
def test_no_secret_planted_in_a_framework_leaves_the_server(agent: str) -> None:
    assert find_leaks(agent, 25) == []


@pytest.mark.parametrize(
    ("agent", "least"), [("demo", 0.9), ("agui", 0.5), ("strands", 0.9), ("adk", 0.9), ("langgraph", 0.9)]
)
def test_without_redaction_what_is_planted_is_found(agent: str, least: float) -> None:
    """Of an AG-UI agent's events, some are never stored, such as RAW and its own RUN_STARTED."""
    result = Result()
    fuzz_secrets(agent, range(30), _SEED, result, redacts=False)
    assert result.found.total() >= least * 30


def test_every_string_of_every_event_has_a_template_with_one_slot() -> None:
    for fields in EVENT_TEMPLATES.values():
        templates = [template for templates in fields.values() for template in templates]
        assert templates
        assert all(json.dumps(template, ensure_ascii=False).count(SLOT) == 1 for template in templates)
        assert all(SLOT not in str(fill_template(template, "planted")) for template in templates)
