"""The `to_bridge_error` of every framework: an error of ours is passed on, any other exception becomes the framework's error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ambient_runner.bridges.adk import errors as adk
from ambient_runner.bridges.claude import errors as claude
from ambient_runner.bridges.langgraph import errors as langgraph
from ambient_runner.bridges.strands import errors as strands
from ambient_runner.errors import BridgeTimeout, PatchConflict, RunnerError

MappedError = Callable[[Exception], RunnerError]
MAPPINGS: dict[str, MappedError] = {
    "adk": adk.to_bridge_error,
    "claude": claude.to_bridge_error,
    "langgraph": langgraph.to_bridge_error,
    "strands": partial(strands.to_bridge_error, force_stopped=False),
}
CODES = {
    "adk": "adk_error",
    "claude": "claude_error",
    "langgraph": "langgraph_error",
    "strands": "STRANDS_ERROR",
}


@pytest.mark.parametrize("framework", MAPPINGS)
@pytest.mark.parametrize("error", [BridgeTimeout(), PatchConflict()])
def test_an_error_of_ours_is_returned_unchanged(framework: str, error: RunnerError) -> None:
    assert MAPPINGS[framework](error) is error


@pytest.mark.parametrize("framework", MAPPINGS)
def test_any_other_exception_has_the_code_of_its_framework_and_no_text(framework: str) -> None:
    mapped = MAPPINGS[framework](RuntimeError("secret reason"))
    assert (mapped.code, "secret" in mapped.message) == (CODES[framework], False)
