"""The ranges of SDK versions that are declared, documented and tested are the same. `make test-versions` runs the tests at both
ends of each range; this is its short form."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from tests.environments import ROOT
from tests.tables import read_table
from tests.versions.__main__ import PAGE
from tests.versions.sdks import declared_range, sdk_ranges

if TYPE_CHECKING:
    from ambient_runner.bridges.toolkit.sdk import Sdk


def _pinned(package: str) -> str:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    return pins[package]


def _documented_versions() -> set[tuple[str, str, str]]:
    rows = [line.strip("| ").split(" | ") for line in read_table(PAGE, "versions").splitlines()[2:]]
    return {(row[0], row[1], row[2]) for row in rows}


@pytest.mark.parametrize("bridge", ["adk", "claude", "langgraph", "strands"])
def test_a_bridge_names_the_versions_it_is_tested_with(bridge: str) -> None:
    sdk: Sdk = importlib.import_module(f"ambient_runner.bridges.{bridge}.sdk").SDK
    package, lowest, _ = declared_range(bridge)
    assert (sdk.package, sdk.lowest) == (package, lowest)
    assert sdk.newest == _pinned(package)


def test_the_page_shows_a_tested_version_for_both_ends_of_every_range() -> None:
    documented = _documented_versions()
    lowest = {(sdk.package, "lowest", sdk.lowest) for sdk in sdk_ranges()}
    assert lowest <= documented
    assert len(documented) == 2 * len(sdk_ranges())


def test_every_documented_run_has_passed() -> None:
    rows = [line.strip("| ").split(" | ") for line in read_table(PAGE, "versions").splitlines()[2:]]
    assert [row for row in rows if row[4] != "0" or int(row[3]) == 0] == []
