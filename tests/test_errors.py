"""Errors: a missing package is reported with the line that installs it, and codes have one style."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from ambient_runner.errors import (
    BridgeError,
    BridgeTimeout,
    BridgeUnavailable,
    ConfigError,
    RunInterrupted,
    RunnerError,
    message_for_code,
    optional_dependency,
)
from ambient_runner.protocol.events import Interrupt


@pytest.mark.parametrize("missing", ["framework", "framework.part"])
def test_a_missing_package_names_the_line_that_installs_it(missing: str) -> None:
    with (
        pytest.raises(BridgeUnavailable) as refused,
        optional_dependency("framework", install="ambient-runner[framework]"),
    ):
        raise ModuleNotFoundError(name=missing)
    assert refused.value.message == f"The package {missing} is not installed: pip install 'ambient-runner[framework]'"


@pytest.mark.parametrize(("missing", "is_known"), [("space", True), ("space.one.part", True), ("space.two", False)])
def test_a_package_in_a_namespace_is_not_taken_for_its_neighbours(missing: str, is_known: bool) -> None:
    expected = BridgeUnavailable if is_known else ModuleNotFoundError
    with pytest.raises(expected), optional_dependency("space.one", install="one"):
        raise ModuleNotFoundError(name=missing)


def test_where_it_is_configured_it_is_a_matter_of_configuration() -> None:
    with pytest.raises(ConfigError), optional_dependency("framework", install="framework", refusal=ConfigError):
        raise ModuleNotFoundError(name="framework")


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError(name="other"), ImportError("cannot import name", name="framework")]
)
def test_a_broken_installation_is_not_called_a_missing_one(error: ImportError) -> None:
    with pytest.raises(ImportError) as raised, optional_dependency("framework", install="framework"):
        raise error
    assert raised.value is error


def _subclasses(base: type[RunnerError]) -> list[type[RunnerError]]:
    return [base, *(error for child in base.__subclasses__() for error in _subclasses(child))]


def test_error_codes_are_lower_snake_case_but_for_those_a_published_package_fixes() -> None:
    for bridge in ("adk", "claude", "langgraph", "remote", "strands"):
        package = import_module(f"ambient_runner.bridges.{bridge}")
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    ours = (error for error in _subclasses(RunnerError) if error.__module__.startswith("ambient_runner."))
    codes = {error.code for error in ours}
    assert {code for code in codes if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)} == {
        "ENCODING_ERROR",
        "STRANDS_ERROR",
    }


@pytest.mark.parametrize("wrong", ["May I?", Interrupt(id="i", reason="confirmation"), ["May I?"], [None], None])
def test_interrupts_that_are_none_are_refused_where_they_are_raised(wrong: Any) -> None:
    with pytest.raises(TypeError, match="list of"):
        RunInterrupted(wrong)
    interrupt = Interrupt(id="i", reason="confirmation")
    assert RunInterrupted([interrupt]).interrupts == RunInterrupted((interrupt,)).interrupts == (interrupt,)


def test_a_code_of_a_bridge_has_its_own_message_and_one_of_an_agent_a_general_one() -> None:
    errors = import_module("ambient_runner.bridges.langgraph.errors")

    class ShopClosed(BridgeError):
        """Account 4711 is closed."""

        code = "shop_closed"

    assert message_for_code("recursion_limit") == errors.RecursionLimit().message
    assert message_for_code("agent_timeout") == BridgeTimeout().message
    assert message_for_code("agent_error") == BridgeError().message
    assert message_for_code(ShopClosed.code) == message_for_code(None) == BridgeError().message
