"""The field-retention table of `docs/how-to/audience.md`, for the tests that compare it with what clients receive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "audience.md"


class Retention(NamedTuple):
    """The members of an event by what the audience `safe` gets of them."""

    kept: set[str]
    changed: set[str]
    left_out: set[str]


def documented_retention() -> dict[str, Retention]:
    """Return the rows of the table by event type."""
    rows = re.findall(r"^\| `([A-Z_]+)` \|([^|]*)\|([^|]*)\|([^|]*)\|$", _PAGE.read_text(), re.MULTILINE)
    return {name: Retention(*(set(re.findall(r"`(\w+)`", cell)) for cell in cells)) for name, *cells in rows}
