"""Which turns an agent's own session does not have."""

from __future__ import annotations

import pytest

from ambient_runner.bridges.toolkit.session_turns import find_missing_turns, received_ids
from ambient_runner.bridges.toolkit.turns import AssistantTurn, Turn, UserTurn


def _history(*ids: str) -> list[Turn]:
    return [
        turn for name in ids for turn in (UserTurn(id=name, content="?"), AssistantTurn(ids=(f"a-{name}",), text="!"))
    ]


@pytest.mark.parametrize(
    ("received", "ids", "missing"),
    [
        ((), (), None),
        ((), ("u1",), None),
        (("u1",), ("u1",), ()),
        (("u1", "u2"), ("u1", "u2"), ()),
        (("u2",), ("u1", "u2"), ()),
        (("u1",), ("u1", "u2", "u3"), ("u2", "u3")),
        (("u1", "u2"), ("u1",), None),
        (("u1", "u2"), ("u1", "u9"), None),
        (("u0", "u2"), ("u1", "u2"), None),
        (("u1",), (), None),
    ],
)
def test_the_turns_after_those_that_a_session_has(
    received: tuple[str, ...], ids: tuple[str, ...], missing: tuple[str, ...] | None
) -> None:
    found = find_missing_turns(received, _history(*ids))
    assert (None if found is None else list(found)) == (None if missing is None else _history(*missing))


def test_only_the_newest_messages_are_compared() -> None:
    ids = [f"u{number}" for number in range(100)]
    received = received_ids(_history(*ids))
    assert received == tuple(ids[-64:])
    assert find_missing_turns(received, _history(*ids)) == ()
