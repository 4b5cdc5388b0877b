"""What is missing is said with the line that mends it, and only when that line would."""

from __future__ import annotations

import pytest

from ambient_runner.errors import BridgeUnavailable, ConfigError, needing


@pytest.mark.parametrize("missing", ["framework", "framework.part"])
def test_a_missing_package_names_the_line_that_installs_it(missing: str) -> None:
    with pytest.raises(BridgeUnavailable) as refused, needing("framework", install="ambient-runner[framework]"):
        raise ModuleNotFoundError(name=missing)
    assert refused.value.message == f"The package {missing} is not installed: pip install 'ambient-runner[framework]'"


def test_where_it_is_configured_it_is_a_matter_of_configuration() -> None:
    with pytest.raises(ConfigError), needing("framework", install="framework", refusal=ConfigError):
        raise ModuleNotFoundError(name="framework")


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError(name="other"), ImportError("cannot import name", name="framework")]
)
def test_a_broken_installation_is_not_called_a_missing_one(error: ImportError) -> None:
    with pytest.raises(ImportError) as raised, needing("framework", install="framework"):
        raise error
    assert raised.value is error
