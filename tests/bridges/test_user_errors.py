"""Where an error came from, as its author wants to read it: the line of their own code, not ours nor a library's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.bridges.user_errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Exception]:
    """The error that code in `agent.py` of the current directory ends with."""
    monkeypatch.chdir(tmp_path)

    def run(text: str) -> Exception:
        path = tmp_path / "agent.py"
        path.write_text(text)
        with pytest.raises(Exception) as caught:
            exec(compile(text, str(path), "exec"), {"json": json})
        return caught.value

    return run


def test_the_line_is_the_innermost_of_their_own_code(own: Callable[[str], Exception]) -> None:
    error = own("def inner():\n    raise ValueError('x')\n\ninner()\n")
    assert describe_error(error) == "ValueError: x (agent.py, line 2)"


def test_an_error_in_a_library_is_described_with_the_user_line_that_called_it(own: Callable[[str], Exception]) -> None:
    assert describe_error(own("\njson.loads('')\n")).endswith(" (agent.py, line 2)")


def test_a_syntax_error_is_described_with_its_own_line(own: Callable[[str], Exception]) -> None:
    assert describe_error(own("\n\nx = = 1\n")) == "SyntaxError: invalid syntax (agent.py, line 3)"


def test_an_error_in_a_group_of_one_is_described_as_itself(own: Callable[[str], Exception]) -> None:
    error = own("try:\n    raise KeyError('x')\nexcept KeyError as e:\n    raise ExceptionGroup('many', [e])\n")
    assert describe_error(error) == "KeyError: 'x' (agent.py, line 2)"


def test_an_error_without_a_line_of_user_code_is_described_without_one() -> None:
    nowhere: Any = ValueError("x")
    assert (describe_error(nowhere), describe_error(KeyError())) == ("ValueError: x", "KeyError")
