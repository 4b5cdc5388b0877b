"""The web packages pass their own tests: types, behavior and sizes, by vitest."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.machine_speed import HANG_SECONDS

from .web_packages import WEB, build_packages

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("core", "react", "svelte")
SIZE = re.compile(r"@ambient-runner/\w+: .*")


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    build_packages()


def run_npm(*arguments: str) -> str:
    """Run npm in `web/`. Returns what it printed."""
    done = subprocess.run(
        ["npm", *arguments], cwd=WEB, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_packages_and_their_tests_have_correct_types() -> None:
    run_npm("run", "check")


def test_the_tests_of_all_packages_pass_and_the_sizes_are_held(tmp_path: Path) -> None:
    report = tmp_path / "vitest.json"
    printed = run_npm(
        "exec", "--", "vitest", "run", "--reporter=default", "--reporter=json", f"--outputFile.json={report}"
    )
    results: dict[str, Any] = json.loads(report.read_text())
    sizes = sorted(set(SIZE.findall(printed)))
    print(f"{results['numPassedTests']} tests passed", *sizes, sep="\n")
    files = [result["name"] for result in results["testResults"]]
    assert {name for name in PACKAGES if any(f"/packages/{name}/" in file for file in files)} == set(PACKAGES)
    assert (results["numPassedTests"], results["numFailedTests"]) == (results["numTotalTests"], 0)
    assert [size.partition(":")[0] for size in sizes] == [f"@ambient-runner/{name}" for name in PACKAGES]
