"""Errors that leave a task group are reported as if there were none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.cli.errors import find_error
from ambient_runner.errors import LedgerError, ThreadBusy
from ambient_runner.runs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY, CTRL_C = ThreadBusy(), KeyboardInterrupt()


@pytest.mark.parametrize(
    ("raised", "found"),
    [
        (BUSY, BUSY),
        (ExceptionGroup("tasks", [ExceptionGroup("tasks", [BUSY])]), BUSY),
        (BaseExceptionGroup("tasks", [CTRL_C]), CTRL_C),
        (ExceptionGroup("tasks", [BUSY, LedgerError()]), BUSY),
        (ExceptionGroup("tasks", [BUSY, ValueError()]), None),
        (ValueError(), None),
    ],
)
def test_our_errors_and_ctrl_c_are_found_in_groups_that_have_no_other(
    raised: BaseException, found: BaseException | None
) -> None:
    assert find_error(raised) is found


@pytest.mark.parametrize("arguments", [("serve", "--port", "0"), ("run", "demo", "hi")])
def test_a_store_that_fails_while_the_server_starts_is_reported_in_one_line(
    ambient: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    async def fail(_runner: Runner) -> None:
        raise LedgerError

    monkeypatch.setattr(Runner, "__aenter__", fail)
    code, out, err = ambient(*arguments)
    assert (code, out, err) == (1, "", f"{LedgerError().message}\n")
