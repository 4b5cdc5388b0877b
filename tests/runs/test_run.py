"""Run: what travels on it."""

from __future__ import annotations

from ambient_runner.protocol.events import RunAgentInput
from ambient_runner.runs.run import Actor, Run, RunVar
from tests.world import KEY


def a_run(key: str) -> Run:
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=[])
    return Run(key=key, thread=KEY, agent="agent", actor=Actor(), trace_id="abc", input=run_input)


def test_a_run_variable_belongs_to_one_run_and_is_not_shown() -> None:
    variable, other = RunVar[str]("prepared"), RunVar[str]("prepared")
    one, two = a_run("one"), a_run("two")
    variable.set(one, "ready")
    assert (variable.get(one), variable.get(two), other.get(one)) == ("ready", None, None)
    assert "ready" not in repr(one)
    variable.clear(one)
    variable.clear(one)
    assert variable.get(one) is None
