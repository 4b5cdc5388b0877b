from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from benchmarks.charts import Chart, Point, draw_chart
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.floats(min_value=1e-3, max_value=1e9)
SVG = "{http://www.w3.org/2000/svg}"


def draw(lines: dict[str, list[Point]]) -> ElementTree.Element:
    chart = Chart(name="chart", title="POST & <replay>", x_label="runs", y_label="ms", lines=lines)
    return ElementTree.fromstring(draw_chart(chart))


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=8))
def test_every_point_is_inside_the_chart(points: list[Point]) -> None:
    drawn = draw({"line": points})
    circles = drawn.findall(f"{SVG}circle")
    assert len(circles) == len(points)
    for circle in circles:
        assert 60 <= float(circle.attrib["cx"]) <= 640
        assert 30 <= float(circle.attrib["cy"]) <= 340


def test_what_does_not_grow_is_a_flat_line() -> None:
    drawn = draw({"grows": [(1, 1), (1000, 1000)], "does not": [(1, 5), (1000, 5)]})
    heights = [float(circle.attrib["cy"]) for circle in drawn.findall(f"{SVG}circle")]
    assert heights[2] == heights[3]
    assert heights[0] > heights[1]


def test_texts_are_escaped() -> None:
    assert draw({"a < b": [(1, 1)]}).findtext(f"{SVG}title") == "POST & <replay>"


@pytest.mark.parametrize("value", [1.0, 10.0, 1000.0])
def test_a_single_value_at_a_power_of_ten_has_an_axis(value: float) -> None:
    assert draw({"line": [(value, value)]}).find(f"{SVG}circle") is not None
