from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.errors import ConfigError
from ambient_runner.ledger import MemoryLedger, SqliteLedger, open_ledger


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


def test_the_refusal_lists_what_is_known() -> None:
    with pytest.raises(ConfigError) as refusal:
        open_ledger("mysql://host/db")
    assert {word.strip(".,") for word in refusal.value.message.split()} >= {"memory://", "sqlite://"}


def test_a_lease_takes_time() -> None:
    with pytest.raises(ConfigError):
        open_ledger("memory://", lease=0)
