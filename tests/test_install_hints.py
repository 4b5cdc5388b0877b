"""Every `pip install` line in an error message installs the package that is missing."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ambient_runner.bridges.import_string import _INSTALL_NAMES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ambient_runner"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _hints_in(path: Path) -> list[tuple[str, str]]:
    """The packages and the requirement of every `optional_dependency(…)`."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "optional_dependency":
            install = next(keyword.value for keyword in node.keywords if keyword.arg == "install")
            found += [(ast.literal_eval(package), ast.literal_eval(install)) for package in node.args]
    return found


HINTS = sorted({*_INSTALL_NAMES.items(), *(hint for path in SOURCE.rglob("*.py") for hint in _hints_in(path))})


def _requirements_of(requirement: Requirement) -> list[Requirement]:
    """Return the requirements of a requirement, with its extras."""
    if requirement.name == PROJECT["name"]:
        extras = PROJECT["optional-dependencies"]
        return [Requirement(line) for extra in requirement.extras for line in extras[extra]]
    needs = [Requirement(line) for line in distribution(requirement.name).requires or ()]
    extras = requirement.extras or {""}
    return [need for need in needs if not need.marker or any(need.marker.evaluate({"extra": name}) for name in extras)]


def _installed_by(requirement: Requirement, seen: set[str]) -> set[str]:
    """The distributions that installing it brings."""
    key = f"{requirement.name}{sorted(requirement.extras)}"
    if key in seen:
        return set()
    seen.add(key)
    below = [_installed_by(need, seen) for need in _requirements_of(requirement)]
    return {requirement.name.lower().replace("_", "-")}.union(*below)


@pytest.mark.parametrize(("package", "requirement"), HINTS)
def test_the_hint_for_a_missing_package_installs_it(package: str, requirement: str) -> None:
    installed = _installed_by(Requirement(requirement), set())
    providers = {name.lower().replace("_", "-") for name in packages_distributions()[package.partition(".")[0]]}
    assert providers & installed
    if "." in package:  # In a namespace, which others provide too.
        assert package.replace(".", "-") in installed


def test_every_extra_is_in_all() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert Requirement(everything).extras == extras.keys() - {"all"}
