"""Token usage, summed per provider and model."""

from __future__ import annotations

from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.protocol.events import TokenUsage


def test_counts_of_one_model_add_up_and_models_stay_apart() -> None:
    usage = Usage()
    usage.add_counts({"input_tokens": 1, "output_tokens": 2}, model="a", provider="p")
    usage.add_counts({"input_tokens": 3, "reasoning_tokens": 4, "output_tokens": None}, model="a", provider="p")
    usage.add_counts({"input_tokens": 5}, model="a")
    assert usage.tokens == [
        TokenUsage(provider="p", model="a", input_tokens=4, output_tokens=2, reasoning_tokens=4),
        TokenUsage(model="a", input_tokens=5),
    ]


def test_without_counts_there_is_no_usage() -> None:
    usage = Usage()
    usage.add_counts({"input_tokens": None}, model="a")
    assert usage.tokens is None
