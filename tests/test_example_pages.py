"""The web pages in `examples/` install the same everywhere and are all tried by `make test-copilotkit`. No npm is needed for that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BROWSER = ROOT / "tests" / "pages"
PAGES = sorted(path.parent for path in (ROOT / "examples").glob("*/package.json"))
WEB: dict[str, str] = json.loads((ROOT / "web" / "package.json").read_text())["devDependencies"]


def name_of(path: Path) -> str:
    return path.name


def dependencies(directory: Path) -> dict[str, str]:
    package: dict[str, Any] = json.loads((directory / "package.json").read_text())
    return {**package["dependencies"], **package.get("devDependencies", {}), **package.get("overrides", {})}


@pytest.mark.parametrize("directory", [*PAGES, BROWSER], ids=name_of)
def test_dependencies_are_exact_and_nothing_says_where_they_come_from(directory: Path) -> None:
    exact = re.compile(r"\d+\.\d+\.\d+|file:\.\./\.\./web/packages/\w+")
    assert {name: version for name, version in dependencies(directory).items() if not exact.fullmatch(version)} == {}
    # npm reads no lock here, so none can bring a download address.
    assert {"package-lock=false", "ignore-scripts=true"} <= set((directory / ".npmrc").read_text().split())
    assert not (directory / "package-lock.json").exists()


@pytest.mark.parametrize("directory", PAGES, ids=name_of)
def test_pages_have_the_versions_of_the_web_packages(directory: Path) -> None:
    shared = {name: version for name, version in dependencies(directory).items() if name in WEB}
    assert shared == {name: WEB[name] for name in shared}


@pytest.mark.parametrize("directory", PAGES, ids=name_of)
def test_every_page_is_tried_in_the_browser(directory: Path) -> None:
    tests = "".join(path.read_text() for path in sorted(BROWSER.glob("*.test.mjs")))
    assert f'"{directory.name}"' in tests
    assert f"examples/{directory.name}/node_modules/.installed" in (ROOT / "Makefile").read_text()
