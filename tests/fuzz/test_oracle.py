"""The short form of `python -m tests.fuzz.oracle`: a client whose agent repeats its words cannot tell a right guess from a wrong one."""

from __future__ import annotations

import pytest

from ambient_runner.projections.redaction import held_deltas
from tests.fuzz.oracle import fuzz_oracle, server_secrets


async def test_the_frames_of_right_and_wrong_guesses_are_alike() -> None:
    guesses, difference = await fuzz_oracle(4, seed=1, lengths=6)
    assert difference is None
    assert guesses > 2000


async def test_a_redactor_that_holds_the_beginnings_of_secrets_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (secret,) = server_secrets(1, seed=1)

    def hold_beginnings(text: str) -> int:
        return len(text) - max(length for length in range(len(secret)) if text.endswith(secret[:length]))

    monkeypatch.setattr(held_deltas, "held_start", hold_beginnings)
    assert (await fuzz_oracle(1, seed=1, lengths=3))[1] is not None
