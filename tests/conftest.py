"""What every test shares: the asyncio backend, the command line, how workers share the suite, and the options that ask for the long form
of slow tests."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.fast_selection import check_selection, is_slow, refuse_processes, starts_a_process
from tests.hypothesis_profiles import load_profile, register_profiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

register_profiles()

# With PYTHONDONTWRITEBYTECODE, each of the hundreds of processes that tests start would compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ambient", "forms of the suite")
    group.addoption("--long", action="store_true", help="run the slow tests in their long form (`make test-all`)")
    group.addoption("--fast", action="store_true", help="leave out tests that start processes (`make test-fast`)")
    group.addoption("--write-features", action="store_true", help="write docs/agents/features.md (`make features`)")
    group.addoption(
        "--fuzz-until",
        type=float,
        default=0.0,
        metavar="T",
        help="skip tests that would start after this time (`make fuzz`)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        check_selection()
        load_profile("fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--fast") and is_slow(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        config.hook.pytest_deselected(items=[item for item in items if starts_a_process(item)])
        items[:] = [item for item in items if not starts_a_process(item)]


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("--fast") and os.environ.get("PYTEST_XDIST_WORKER"):
        refuse_processes()


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--fuzz-until")
    if until and time.time() > until:
        pytest.skip("no time left")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, whoever runs a bridge's tests also shows their streams to the official clients."""
    if config.getoption("--fast"):
        return None  # No official clients there, so tests go to whichever worker is free.
    from tests.families import Families

    return Families(config, log)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and child processes that a test interrupts would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether the long form was asked for."""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def ambient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Any]]:
    """The command line in this process: arguments in, (exit code, stdout, stderr) out. Threads are kept in a file of the test."""
    from ambient_runner.cli.main import main

    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AMBIENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AMBIENT_STORE", f"sqlite:///{tmp_path / 'threads.db'}")
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ambient", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    yield call
    signal.signal(signal.SIGTERM, before)
