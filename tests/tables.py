"""Tables that tests print and keep in the documentation, between `<!-- table:NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def read_table(page: Path, name: str) -> str:
    """Return the table of that name on the page."""
    match = _marked(name).search(page.read_text())
    assert match is not None, f"{page.name} has no table {name}."
    return match[2].strip()


def replace_table(page: Path, name: str, table: str) -> None:
    page.write_text(_marked(name).sub(lambda match: f"{match[1]}\n\n{table}\n\n{match[3]}", page.read_text()))


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- table:{re.escape(name)} -->)(.*?)(<!-- end -->)", re.DOTALL)
