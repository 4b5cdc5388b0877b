"""Whose a tool is, and when a turn waits for the client."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ambient_runner.protocol.events import Tool
from ambient_runner.protocol.tools import Toolbox, TurnGate

quick = settings(max_examples=200, deadline=None)
PAINT, LOOK = Tool(name="paint", description=""), Tool(name="look", description="theirs")


def gate(*frontend: str) -> TurnGate:
    return TurnGate(Toolbox([Tool(name=name, description="") for name in frontend]))


def test_a_tool_the_agent_has_itself_is_not_the_clients() -> None:
    tools = Toolbox([PAINT, LOOK], native={"look"})
    assert tools.frontend == {"paint": PAINT}
    assert (tools.is_frontend("paint"), tools.is_frontend("look"), tools.is_frontend("other")) == (True, False, False)


def test_of_a_tool_declared_twice_the_last_one_counts() -> None:
    again = Tool(name="paint", description="better")
    assert Toolbox([PAINT, again]).frontend == {"paint": again}


def test_a_turn_of_the_agents_own_tools_never_waits() -> None:
    turn = gate("paint")
    turn.call("c1", "look")
    turn.result("c1")
    assert not turn.halted
    assert turn.waiting == []


def test_a_turn_with_a_frontend_call_waits_once_the_agents_own_tools_have_answered() -> None:
    turn = gate("paint")
    turn.call("c1", "look")
    turn.call("c2", "paint")
    turn.call("c3", "look")
    turn.result("c3")
    assert not turn.halted
    turn.result("c1")
    assert turn.halted
    assert turn.waiting == ["c2"]


def test_a_result_may_be_there_before_its_call_is_reported() -> None:
    turn = gate("paint")
    turn.call("c1", "paint")
    turn.result("c2")
    turn.call("c2", "look")
    assert turn.halted


def test_a_frontend_call_that_has_a_result_does_not_wait() -> None:
    turn = gate("paint")
    turn.call("c1", "paint")
    turn.result("c1")
    turn.call("c1", "paint")
    assert not turn.halted


def test_a_frontend_call_the_agent_goes_on_after_does_not_halt() -> None:
    turn = gate("paint")
    turn.call("c1", "paint", halts=False)
    assert not turn.halted
    turn.call("c2", "paint")
    assert turn.waiting == ["c2"]


def test_a_new_turn_waits_for_nothing() -> None:
    turn = gate("paint")
    turn.call("c1", "paint")
    turn.call("c2", "look")
    turn.new_turn()
    assert not turn.halted
    assert turn.waiting == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(0, 5)),
        st.tuples(st.just("result"), st.integers(0, 5)),
        st.tuples(st.just("new_turn"), st.just(0)),
    ),
    max_size=30,
)


@quick
@given(STEPS)
def test_a_turn_halts_exactly_when_only_the_client_can_go_on(steps: list[tuple[str, int]]) -> None:
    """Even numbers are the client's tools. The model is the two sets a person would keep on paper."""
    turn, called, answered = gate("paint"), list[int](), set[int]()
    for what, n in steps:
        match what:
            case "call":
                turn.call(f"c{n}", "look" if n % 2 else "paint")
                called.append(n)
            case "result":
                turn.result(f"c{n}")
                answered.add(n)
            case _:
                turn.new_turn()
                called, answered = [], set()
        waiting = [n for n in dict.fromkeys(called) if n % 2 == 0 and n not in answered]
        working = {n for n in called if n % 2} - answered
        assert turn.waiting == [f"c{n}" for n in waiting]
        assert turn.halted == (bool(waiting) and not working)
