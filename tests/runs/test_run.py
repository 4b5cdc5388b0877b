"""Run: what travels on it."""

from __future__ import annotations

from ambient_runner.protocol.events import RunAgentInput
from ambient_runner.runs.run import Actor, Run, RunAttribute
from tests.world import KEY


def a_run(key: str) -> Run:
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=[])
    return Run(key=key, thread=KEY, agent="agent", actor=Actor(), trace_id="abc", input=run_input)


def test_a_run_attribute_belongs_to_one_run_and_is_not_shown() -> None:
    attribute, other = RunAttribute[str]("prepared"), RunAttribute[str]("prepared")
    one, two = a_run("one"), a_run("two")
    attribute.set(one, "ready")
    assert (attribute.get(one), attribute.get(two), other.get(one)) == ("ready", None, None)
    assert "ready" not in repr(one)
    attribute.clear(one)
    attribute.clear(one)
    assert attribute.get(one) is None
