from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import FAULTS

ROOT = Path(__file__).parent.parent


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_the_reference_has_tests_that_exist(fault: str) -> None:
    named = [test.split("::") for test in FAULTS[fault].tests]
    assert named
    assert [(path, name) for path, name in named if name not in _functions(path)] == []


def test_no_fault_was_left_out() -> None:
    assert list(FAULTS) == [*(f"S{number}" for number in range(1, 9)), *(f"C{number}" for number in range(1, 11))]
