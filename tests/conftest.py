"""What every test shares: the asyncio backend, how workers share the suite, and the options that ask for the long form of slow tests."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ambient", "long forms")
    group.addoption("--long", action="store_true", help="run the slow tests in their long form (`make test-all`)")
    group.addoption(
        "--soak-minutes", type=float, default=0.0, metavar="N", help="keep killing servers for N minutes (`make soak`)"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, whoever runs a bridge's tests also shows their streams to the official clients."""
    from tests.families import Families

    return Families(config, log)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether the long form was asked for."""
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def soak_minutes(request: pytest.FixtureRequest) -> float:
    minutes = request.config.getoption("--soak-minutes")
    assert isinstance(minutes, float)
    return minutes
