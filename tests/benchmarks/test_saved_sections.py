"""A section that was saved is the one that goes on the page."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.report import write_page
from benchmarks.saved_sections import MAX_AGE, clear_sections, load_section, save_section

from tests.benchmarks.test_report import SECTION


def test_a_saved_section_makes_the_same_page_and_charts(tmp_path: Path) -> None:
    save_section(tmp_path / "saved", "scene", SECTION)
    loaded = load_section(tmp_path / "saved", "scene")
    assert loaded is not None
    pages = [tmp_path / name / "page.md" for name in ("measured", "loaded")]
    for page, section in zip(pages, (SECTION, loaded), strict=True):
        page.parent.mkdir()
        write_page(page, [section], [])
    assert pages[0].read_text() == pages[1].read_text()
    charts = [(page.parent / "page" / "post.svg").read_text() for page in pages]
    assert charts[0] == charts[1]


def test_a_section_is_gone_once_it_is_old_or_on_the_page(tmp_path: Path) -> None:
    assert load_section(tmp_path, "scene") is None
    save_section(tmp_path, "scene", SECTION)
    file = tmp_path / "scene.json"
    saved_at = file.stat().st_mtime
    os.utime(file, (saved_at, saved_at - MAX_AGE - 60))
    assert load_section(tmp_path, "scene") is None
    save_section(tmp_path, "scene", SECTION)
    clear_sections(tmp_path)
    assert load_section(tmp_path, "scene") is None
