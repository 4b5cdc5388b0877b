"""Under which id clients know a call."""

from __future__ import annotations

import pytest

from ambient_runner.bridges.toolkit.tool_call_ids import free_id
from ambient_runner.protocol.ids import fit

LONG = "x" * 300
FULL = "x" * 256


@pytest.mark.parametrize(
    ("own", "taken", "free"),
    [
        ("c1", (), "c1"),
        ("c1", ("c1", "c1~2"), "c1~3"),
        (LONG, (), fit(LONG)),
        (LONG, (fit(LONG),), f"{fit(LONG)}~2"),
        (FULL, (FULL,), fit(f"{FULL}~2")),
        ("a\nb", (), fit("a\nb")),
        ("", (), fit("")),
    ],
    ids=["free", "taken twice", "too long", "too long and taken", "no room for more", "control character", "none"],
)
def test_an_id_is_free_and_one_that_a_client_can_send_back(own: str, taken: tuple[str, ...], free: str) -> None:
    assert free_id(own, taken) == free
    assert fit(free) == free
