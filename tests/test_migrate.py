"""The table of examples in docs/how-to/migrate.md has every example, and all of them passed. `make test-migrate` writes it."""

from __future__ import annotations

import re

import pytest

from tests.environments import ROOT
from tests.migrate.__main__ import PACKAGES, PAGE, Package
from tests.tables import read_table


def _documented() -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in read_table(PAGE, "examples").splitlines()[2:]]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.module)
def test_every_example_of_a_package_is_in_the_table(package: Package) -> None:
    tests = re.findall(r"^async def test_(\w+)", (ROOT / package.tests).read_text(), re.MULTILINE)
    assert {row[2] for row in _documented() if row[0] == package.module} == set(tests)


def test_every_documented_example_passes() -> None:
    assert {row[3] for row in _documented()} == {"passes"}
