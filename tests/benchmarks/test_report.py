from __future__ import annotations

from pathlib import Path

from benchmarks.charts import Chart
from benchmarks.report import Cost, Section, at_least, at_most, summarize_goals, write_page

CHART = Chart(name="post", title="POST", x_label="runs", y_label="ms", lines={"cold": [(1, 2), (10, 3)]})
SECTION = Section(
    title="A scene",
    how="Measured.",
    columns=("", "ms"),
    rows=[["one", "1.0"]],
    goals=[at_most("time", 2.0, 1.0, "ms"), at_least("rate", 7.0, 6.0, "times")],
    costs=[Cost(what="dicts", rate=100.0, plain_rate=300.0)],
    charts=[CHART],
    explanation="Half of it is the disk. Next: write less.",
)


def test_a_page_has_every_section_with_its_charts_and_what_leaves_the_fast_path(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    write_page(page, [SECTION], [("cores", "2")])
    text = page.read_text()
    assert "| time | at most 1 ms | 2.0 ms | missed |" in text
    assert "| rate | at least 6 times | 7.0 times | ok |" in text
    assert "- **A scene**: time: 2.0 ms, at most 1 ms wanted. Half of it is the disk. Next: write less." in text
    assert "![POST](benchmarks/post.svg)" in text
    assert "| dicts | 100 | 3.0 |" in text
    assert (tmp_path / "benchmarks" / "post.svg").read_text().startswith("<svg")


def test_missed_goals_are_named() -> None:
    assert summarize_goals([SECTION]) == "1 of 2 goals met. Missed: time."
