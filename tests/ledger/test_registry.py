"""Stores by URL scheme: the built-in ones, and those that other packages register as entry points."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.errors import ConfigError
from ambient_runner.ledger import Ledger, MemoryLedger, SqliteLedger, open_ledger, registry

ROOT = Path(__file__).parents[2]


def test_memory_has_no_file() -> None:
    assert isinstance(open_ledger("memory://"), MemoryLedger)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///ledger.db", "ledger.db"),
        ("sqlite:///./.ambient/ambient.db", ".ambient/ambient.db"),
        ("sqlite:////var/lib/ambient.db", "/var/lib/ambient.db"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(url: str, path: str) -> None:
    ledger = open_ledger(url)
    assert isinstance(ledger, SqliteLedger)
    assert (ledger.url, ledger.path) == (url, Path(path))


@pytest.mark.parametrize(
    "url",
    ["", "ledger.db", "mysql://host/db", "memory://x", "sqlite://", "sqlite:///", "sqlite://x", "sqlite:///:memory:", "sqlite:///x/"],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        open_ledger(url)


def test_a_lease_takes_time() -> None:
    with pytest.raises(ConfigError):
        open_ledger("memory://", lease=0)


def test_an_unknown_scheme_is_refused_with_the_known_ones_and_the_nearest() -> None:
    assert words_of("mysql://host/db") >= {"memory://", "sqlite://"}
    assert "sqlite://?" in words_of("sqllite:///a.db")
    assert not {word for word in words_of("redis://host") if word.endswith("?")}


def test_the_built_in_stores_are_the_entry_points_of_this_package() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    built_in = {point.name: point.value for point in registry._BUILT_IN}  # pyright: ignore[reportPrivateUsage]
    assert project["entry-points"][registry.STORE_GROUP] == built_in


async def test_a_store_of_another_package_is_opened_by_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is installed: a module and its `dist-info` on `sys.path`."""
    source = """
from ambient_runner.ledger import Ledger, MemoryLedger, StoreSettings

class CloudLedger(MemoryLedger):
    def __init__(self, url: str, lease: float) -> None:
        super().__init__()
        self.url, self.lease = url, lease

def open_cloud(url: str, settings: StoreSettings) -> Ledger:
    return CloudLedger(url, settings.lease)
"""
    install_store(tmp_path, monkeypatch, "cloud_store", source, cloud="cloud_store:open_cloud")
    async with open_ledger("cloud://bucket/threads", lease=7) as ledger:
        assert described(ledger) == ("CloudLedger", "cloud://bucket/threads", 7)
        assert await ledger.list_threads("default", "local") == []
    assert "cloud://?" in words_of("clod://bucket")


@pytest.mark.parametrize(
    ("scheme", "target"),
    [
        ("cloud", "broken_store:missing"),
        ("cloud", "no_such_module:open"),
        ("cloud", "broken_store:CONSTANT"),
        ("sqlite", "broken_store:CONSTANT"),
    ],
    ids=["no attribute", "no module", "no function", "a built-in scheme"],
)
def test_a_store_that_cannot_be_used_is_a_config_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, target: str
) -> None:
    install_store(tmp_path, monkeypatch, "broken_store", "CONSTANT = 1\n", **{scheme: target})
    with pytest.raises(ConfigError) as refusal:
        open_ledger(f"{scheme}:///a.db")
    assert target in refusal.value.message


WRONG_STORES = """
from ambient_runner.ledger import MemoryLedger

def takes_one(url): return MemoryLedger()
def needs_three(url, settings, pool): return MemoryLedger()
def returns_none(url, settings): pass
def returns_text(url, settings): return url
def returns_class(url, settings): return MemoryLedger
async def coroutine(url, settings): return MemoryLedger()

class Partial:
    def __init__(self, url, settings): pass
    async def __aenter__(self): return self
    async def __aexit__(self, *error): pass
    async def acquire_lease(self, key, run): raise NotImplementedError
"""


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("takes_one", "must be a function of two arguments: the URL and the StoreSettings."),
        ("needs_three", "must be a function of two arguments: the URL and the StoreSettings."),
        ("returns_none", "returned NoneType, which is not a Ledger: it has no __aenter__, __aexit__, acquire_lease …."),
        ("returns_text", "returned str, which is not a Ledger: it has no __aenter__, __aexit__, acquire_lease …."),
        ("returns_class", "returned the class MemoryLedger. Return an object of it."),
        ("coroutine", "is a coroutine function. Make it a plain function that returns a Ledger."),
        ("Partial", "returned Partial, which is not a Ledger: it has no append_facts, begin_thread, erase_thread …."),
    ],
)  # fmt: skip
def test_a_store_of_the_wrong_shape_is_a_config_error_that_names_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, reason: str
) -> None:
    """These were tracebacks of TypeError and AttributeError."""
    install_store(tmp_path, monkeypatch, "wrong_store", WRONG_STORES, wrong=f"wrong_store:{function}")
    with pytest.raises(ConfigError) as refusal:
        open_ledger("wrong://x")
    assert refusal.value.message == f"The store for wrong:// URLs, wrong_store:{function}, {reason}"


def test_a_type_error_inside_the_function_of_a_store_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def open_store(url, settings): return 1 + url\n"
    install_store(tmp_path, monkeypatch, "failing_store", source, failing="failing_store:open_store")
    with pytest.raises(TypeError):
        open_ledger("failing://x")


def install_store(
    directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, **entry_points: str
) -> None:
    """Install a package with entry points of the group into a directory, and put that on the path."""
    (directory / f"{name}.py").write_text(source)
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    lines = [f"{scheme} = {target}" for scheme, target in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{registry.STORE_GROUP}]", *lines, ""]))
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, name, raising=False)


def described(ledger: Ledger) -> tuple[str, str, float]:
    return type(ledger).__name__, ledger.url, getattr(ledger, "lease", 0)


def words_of(url: str) -> set[str]:
    """Return the words of the refusal of a URL."""
    with pytest.raises(ConfigError) as refusal:
        open_ledger(url)
    return {word.strip(".,") for word in refusal.value.message.split()}
