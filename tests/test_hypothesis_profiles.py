"""Property tests try the same examples in every run, whatever ran before them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hypothesis_profiles import examples


def draw_examples() -> list[Any]:
    found: list[Any] = []

    @examples(50)
    @given(st.integers() | st.text())
    def gather(value: Any) -> None:
        found.append(value)

    gather()
    return found


@pytest.mark.skipif(not settings().derandomize, reason="searches at random")
def test_examples_are_the_same_whatever_modules_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = draw_examples()
    source = tmp_path / "many_constants.py"
    source.write_text(f"NUMBERS = {list(range(1000, 1500))}\nWORDS = {[f'word {n}' for n in range(500)]}\n")
    spec = importlib.util.spec_from_file_location(source.stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, source.stem, module)
    assert draw_examples() == before
