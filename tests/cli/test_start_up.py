"""What a command loads before it does anything: a second of imports is felt at every call."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ambient_runner

HEAVY = {"ag_ui", "anyio", "fastapi", "msgspec", "pydantic", "rich", "starlette", "uvicorn"}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_load_no_server(option: str) -> None:
    """`ambient --version` took more than a second."""
    program = (
        "import sys; sys.argv = ['ambient', sys.argv[1]]\n"
        "from ambient_runner.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program, option], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(ended.stderr.split())
    assert ended.stdout


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    assert [name for name in ambient_runner.__all__ if not hasattr(ambient_runner, name)] == []
    assert set(ambient_runner.__all__) <= set(dir(ambient_runner))
    with pytest.raises(AttributeError):
        ambient_runner.no_such_name  # noqa: B018
