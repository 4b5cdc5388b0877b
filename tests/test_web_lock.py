"""The lock file of the web packages: every package with its hash, none with a download address. No npm is needed to check it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

WEB = Path(__file__).parents[1] / "web"
PACKAGES = ("core", "react", "svelte")
EXACT = re.compile(r"(npm:[a-z]+@)?\d+\.\d+\.\d+")


def read_json(path: str) -> dict[str, Any]:
    return json.loads((WEB / path).read_text())


def test_every_package_has_a_hash() -> None:
    entries: dict[str, dict[str, Any]] = read_json("package-lock.json")["packages"]
    installed = {path: entry for path, entry in entries.items() if "node_modules/" in path and not entry.get("link")}
    assert len(installed) > 50
    assert [path for path, entry in installed.items() if not entry["integrity"].startswith("sha512-")] == []


def test_no_package_has_a_download_address() -> None:
    entries: dict[str, dict[str, Any]] = read_json("package-lock.json")["packages"]
    linked = {path: entry["resolved"] for path, entry in entries.items() if "resolved" in entry}
    assert linked == {f"node_modules/@ambient-runner/{name}": f"packages/{name}" for name in PACKAGES}
    assert "omit-lockfile-registry-resolved=true" in (WEB / ".npmrc").read_text().splitlines()


def test_the_lock_file_is_that_of_the_packages_with_exact_versions() -> None:
    entries = read_json("package-lock.json")["packages"]
    for path, manifest in {
        "": "package.json",
        **{f"packages/{name}": f"packages/{name}/package.json" for name in PACKAGES},
    }.items():
        wanted = read_json(manifest)
        for group in ("dependencies", "devDependencies"):
            versions: dict[str, str] = wanted.get(group, {})
            assert entries[path].get(group, {}) == versions, manifest
            assert [name for name, version in versions.items() if not EXACT.fullmatch(version)] == [], manifest
