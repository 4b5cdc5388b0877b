"""docs/reliability.md lists every fault and the tests that are named after it."""

from __future__ import annotations

from tests.tables import read_table

from .fault_table import FAULTS, PAGE, find_named_tests, render_table


def test_the_page_has_the_tests_that_exist() -> None:
    assert read_table(PAGE, "faults") == render_table(), "run: python -m tests.faults.fault_table"


def test_every_fault_is_known() -> None:
    assert find_named_tests().keys() <= FAULTS.keys()
