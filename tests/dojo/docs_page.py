"""The page `docs/agents/features.md`, written from what the clients saw."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.dojo.differences import FRAMEWORKS, KNOWN_FAILURES, NO_AGENT
from tests.dojo.features import FEATURES

__all__ = ["PAGE", "render_page"]

PAGE = Path(__file__).parents[2] / "docs" / "agents" / "features.md"

_INTRODUCTION = (
    "# Features by framework\n\n"
    "Each page of the AG-UI dojo shows one feature of the protocol. This table says which of them work with an agent of which framework "
    "behind this server.\n"
    "It is written by `make features`: one server has small agents on the real SDKs, with scripted models; the official clients 1.0.0 "
    "and 0.0.59 run each page's\n"
    "conversation against each agent, and a check decides whether the page gets every event and field that it reads. `make test` does the "
    "same and compares the result\n"
    "with this page; `make test-all` also uses the clients 0.0.57, 0.0.55 and 0.0.42.\n"
)


def render_page(works: Mapping[tuple[str, str], bool]) -> str:
    """Return the page. `works` is what the clients saw, by feature and framework."""
    reasons: list[str] = []
    titles = " | ".join(FRAMEWORKS.values())
    lines = [f"| feature | {titles} |", "|---" * (len(FRAMEWORKS) + 1) + "|"]
    for feature in FEATURES:
        cells = [_cell((feature.name, framework), works, reasons) for framework in FRAMEWORKS]
        lines.append(f"| {feature.title} | {' | '.join(cells)} |")
    reads = [f"| {feature.title} | `{feature.name}` | {feature.reads} |" for feature in FEATURES]
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join(
        [
            _INTRODUCTION,
            *lines,
            "",
            *notes,
            "",
            "## What a page reads",
            "",
            "| feature | page of the dojo | what it reads |",
            "|---|---|---|",
            *reads,
            "",
        ]
    )


def _cell(cell: tuple[str, str], works: Mapping[tuple[str, str], bool], reasons: list[str]) -> str:
    if works.get(cell):
        return "yes"
    reason = NO_AGENT.get(cell) or KNOWN_FAILURES.get(cell) or "The test of this cell fails."
    if reason not in reasons:
        reasons.append(reason)
    return f"no ({reasons.index(reason) + 1})"
