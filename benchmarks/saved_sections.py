"""Sections of a full run, saved as soon as they are measured: one that was interrupted can be continued."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.charts import Chart
from benchmarks.report import Cost, Goal, Section

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["clear_sections", "load_section", "save_section"]

MAX_AGE = 12 * 3600.0
"""Seconds after which a section is measured again: code and machine may be others."""


def save_section(directory: Path, scene: str, section: Section) -> None:
    """Save the section of a scene."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{scene}.json").write_text(json.dumps(asdict(section)))


def load_section(directory: Path, scene: str) -> Section | None:
    """Return the saved section of a scene; None if there is none, or it is too old."""
    file = directory / f"{scene}.json"
    if not file.exists() or time.time() - file.stat().st_mtime > MAX_AGE:
        return None
    saved = json.loads(file.read_text())
    goals = [Goal(**goal) for goal in saved.pop("goals")]
    costs = [Cost(**cost) for cost in saved.pop("costs")]
    charts = [Chart(**chart) for chart in saved.pop("charts")]
    return Section(**saved, goals=goals, costs=costs, charts=charts)


def clear_sections(directory: Path) -> None:
    """Delete all saved sections: they are on the page."""
    for file in directory.glob("*.json"):
        file.unlink()
