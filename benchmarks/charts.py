"""A line chart as an SVG file, for the growth curves of docs/benchmarks.md. Both axes are logarithmic: what does not grow is flat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Point = tuple[float, float]

_WIDTH, _HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 84
_COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""A second sign beside the colour, for those who see no difference between two of them."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Named lines of points. All values are above zero."""

    name: str
    """The file's name without its suffix."""
    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[Point]]


def draw_chart(chart: Chart) -> str:
    """Return the SVG document."""
    points = [point for line in chart.lines.values() for point in line]
    scale = _Scale(xs=[x for x, _ in points], ys=[y for _, y in points])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="14" font-weight="bold">{escape(chart.title)}</text>',
        *_draw_grid(scale),
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 44}" text-anchor="middle">{escape(chart.x_label)}</text>',
        f'<text transform="translate(16 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y_label)}</text>",
    ]
    for index, (name, line) in enumerate(chart.lines.items()):
        parts += _draw_line(scale, index, name, line)
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Scale:
    """Positions of values. The axes end at values that are easy to read."""

    def __init__(self, *, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.x_ticks, self.y_ticks = _choose_ticks(xs), _choose_ticks(ys)

    def x(self, value: float) -> float:
        return _LEFT + _share(value, self.x_ticks) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - _share(value, self.y_ticks) * (_HEIGHT - _TOP - _BOTTOM)


def _share(value: float, ticks: Sequence[float]) -> float:
    low, high = math.log(ticks[0]), math.log(ticks[-1])
    return (math.log(value) - low) / (high - low)


def _choose_ticks(values: Sequence[float]) -> list[float]:
    """Return powers of ten from below the smallest value to above the largest; with 2 and 5 times each if there are few."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    factors = (1,) if high - low > 3 else (1, 2, 5)
    ticks = [factor * 10.0**power for power in range(low, high + 1) for factor in factors]
    below = [tick for tick in ticks if tick <= min(values) * 1.001]
    above = [tick for tick in ticks if tick >= max(values) * 0.999 and tick > below[-1]]
    return [tick for tick in ticks if below[-1] <= tick <= above[0]]


def _draw_grid(scale: _Scale) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    columns = [
        f'<path d="M{scale.x(tick):.1f} {_TOP}V{bottom}" stroke="#d0d7de"/>'
        f'<text x="{scale.x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{_format_tick(tick)}</text>'
        for tick in scale.x_ticks
    ]
    rows = [
        f'<path d="M{_LEFT} {scale.y(tick):.1f}H{right}" stroke="#d0d7de"/>'
        f'<text x="{_LEFT - 8}" y="{scale.y(tick) + 4:.1f}" text-anchor="end">{_format_tick(tick)}</text>'
        for tick in scale.y_ticks
    ]
    return [*columns, *rows]


def _format_tick(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1000:g} k" if value >= 10_000 else f"{value:g}"


def _draw_line(scale: _Scale, index: int, name: str, line: Sequence[Point]) -> list[str]:
    color, dash = _COLORS[index % len(_COLORS)], _DASHES[index % len(_DASHES)]
    places = [(scale.x(x), scale.y(y)) for x, y in line]
    style = f'stroke="{color}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
    path = f'<path fill="none" {style} d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) + '"/>'
    legend_x, legend_y = _LEFT + index % 2 * 290, _HEIGHT - 24 + index // 2 * 16
    legend = (
        f'<path {style} d="M{legend_x} {legend_y - 4}h24"/>'
        f'<text x="{legend_x + 30}" y="{legend_y}">{escape(name)}</text>'
    )
    return [path, *dots, legend]
