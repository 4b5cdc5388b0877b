"""Aligned columns for the terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["align_columns"]

_COLUMN_GAP = 2


def align_columns(rows: Sequence[Sequence[Text]]) -> list[Text]:
    """Return one line per row. No cell is cut or wrapped: ids and paths are there to be copied. Print the lines with `soft_wrap`."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    return [_join_cells(row, widths) for row in rows]


def _join_cells(row: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, width in zip(row, widths, strict=True):
        line.append_text(cell).append(" " * (width - cell.cell_len + _COLUMN_GAP))
    line.rstrip()
    return line
