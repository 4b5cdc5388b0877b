"""The limit on processes that wait for an answer."""

from __future__ import annotations

from ambient_runner.bridges.toolkit.process_limits import WaitingProcessLimit


def test_no_more_processes_than_the_limit_wait_but_each_may_ask_several_times() -> None:
    limit = WaitingProcessLimit(2)
    assert [limit.try_enter(process) for process in ("a", "b", "c", "a")] == [True, True, False, True]
    assert len(limit) == 2


def test_a_process_waits_until_its_last_request_is_answered() -> None:
    limit = WaitingProcessLimit(1)
    limit.try_enter("a")
    limit.try_enter("a")
    limit.leave("a")
    assert not limit.try_enter("b")
    limit.leave("a")
    assert (len(limit), limit.try_enter("b")) == (0, True)
