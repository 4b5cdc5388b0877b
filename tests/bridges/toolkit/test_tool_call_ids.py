"""Under which id clients know a call."""

from __future__ import annotations

import pytest

from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.protocol.ids import client_safe_id

LONG = "x" * 300
FULL = "x" * 256


@pytest.mark.parametrize(
    ("own", "taken", "free"),
    [
        ("c1", (), "c1"),
        ("c1", ("c1", "c1~2"), "c1~3"),
        (LONG, (), client_safe_id(LONG)),
        (LONG, (client_safe_id(LONG),), f"{client_safe_id(LONG)}~2"),
        (FULL, (FULL,), client_safe_id(f"{FULL}~2")),
        ("a\nb", (), client_safe_id("a\nb")),
        ("", (), client_safe_id("")),
    ],
    ids=["free", "taken twice", "too long", "too long and taken", "no room for more", "control character", "none"],
)
def test_an_id_is_free_and_one_that_a_client_can_send_back(own: str, taken: tuple[str, ...], free: str) -> None:
    assert allocate_tool_call_id(own, taken) == free
    assert client_safe_id(free) == free
