"""The first entries of a run: the stored input has no secrets, whichever way they were searched for."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.projections.redaction import Redactor, Secrets

VALUES = [
    "s3cr3t-value-0001",
    'quo"te\\slash-secret',
    "ключ-секрет-очень",
    "new\nline-secret-42",
    "sk-live-0123456789abcdef",
]
SECRETS = Secrets(VALUES)

_texts = st.one_of(
    st.text(max_size=30),
    st.tuples(st.text(max_size=5), st.sampled_from(VALUES), st.text(max_size=5)).map("".join),
    st.sampled_from(["4111111111111111", "AKIAIOSFODNN7EXAMPLE", "hunter2"]),
)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=12,
)


@given(_values)
def test_an_input_that_is_not_searched_string_by_string_has_no_secret(value: Any) -> None:
    if not SECRETS.may_contain_secret(msgspec.json.encode(value)):
        assert Redactor(SECRETS.copy_for_run()).redact_value(value) == value
