"""Code that is not ours may fail in any way, and what becomes of that is one of two things."""

from __future__ import annotations

import asyncio

import pytest

from ambient_runner.errors import ConfigError, InvalidInput, RunnerError
from ambient_runner.runs.isolate import isolate, reraise_as


def as_config(error: Exception) -> RunnerError:
    return ConfigError(f"Not like this: {type(error).__name__}.")


def test_an_isolated_error_is_logged_and_suppressed(caplog: pytest.LogCaptureFixture) -> None:
    with isolate("closing something"):
        raise KeyError("x")
    assert [record.getMessage() for record in caplog.records] == ["Failed while closing something"]


def test_a_foreign_error_becomes_one_of_ours_with_its_cause() -> None:
    cause = KeyError("x")
    with pytest.raises(ConfigError) as raised, reraise_as(as_config):
        raise cause
    assert (raised.value.message, raised.value.__cause__) == ("Not like this: KeyError.", cause)


@pytest.mark.parametrize("error", [InvalidInput("ours"), asyncio.CancelledError()])
def test_an_error_of_ours_and_cancellation_are_not_foreign(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, reraise_as(as_config):
        raise error
    assert raised.value is error
