"""docs/how-to/bridge.md: its program passes the bridge contract, and every name it mentions is exported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ambient_runner
import ambient_runner.testing
from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, Run, Settings
from ambient_runner.bridges import toolkit
from ambient_runner.testing import BridgeContract
from tests.machine_speed import scaled

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "bridge.md").read_text()
PUBLIC = {"ambient_runner", "ambient_runner.bridges.toolkit", "ambient_runner.testing"}
EXPORTED = {*ambient_runner.__all__, *toolkit.__all__, *ambient_runner.testing.__all__}


def _program() -> dict[str, Any]:
    module = ModuleType("page")
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "bridge.md", "exec"), module.__dict__)
    return module.__dict__


class TestTheBridgeOfThePage(BridgeContract):
    """The contract class of the page has the same prompts."""

    text_prompt = _program()["TestBotBridge"].text_prompt
    crash_prompt = _program()["TestBotBridge"].crash_prompt
    endless_prompt = _program()["TestBotBridge"].endless_prompt
    history_prompt = _program()["TestBotBridge"].history_prompt
    block_timeout = scaled(5)

    def create_bridge(self) -> PlatformBridge:
        return _program()["TestBotBridge"]().create_bridge()


def _imports() -> Iterator[tuple[str, str]]:
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                yield from ((node.module or "", alias.name) for alias in node.names)


def test_the_page_imports_only_public_names() -> None:
    ours = [(module, name) for module, name in _imports() if module.startswith("ambient_runner")]
    assert ours
    assert {module for module, _ in ours} <= PUBLIC
    assert [name for module, name in ours if name not in import_module(module).__all__] == []


def _words() -> set[str]:
    """Return the names in backticks outside of code blocks, without their arguments."""
    text = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    return {span.removeprefix("async ").partition("(")[0] for span in re.findall(r"`([^`]+)`", text)}


MEMBERS = {
    name
    for kind in (
        toolkit.Composer,
        toolkit.NewInput,
        toolkit.Toolbox,
        PlatformBridge,
        PlatformContext,
        Run,
        FrameworkCapabilities,
        BridgeContract,
        Settings,
    )
    for name in (*dir(kind), *getattr(kind, "__annotations__", ()))
}
OPTIONAL_METHODS = {
    *("run", "interrupt", "aclose", "waits_for", "is_waiting", "erase_thread", "check_run", "list_tools"),
    *("forward_platform_request", "suggest"),
}


def test_every_name_on_the_page_is_exported() -> None:
    identifiers = {word for word in _words() if word.isidentifier()}
    others = {"Bot", "BotBridge", "ctx", "input", "code", "yield", "aclosing", "finally", "RUN_STARTED", "RUN_ERROR"}
    others |= {"MESSAGES_SNAPSHOT", "ambient_runner", "botframework", "message", "title"}
    assert identifiers - EXPORTED - MEMBERS - OPTIONAL_METHODS - others == set()


@pytest.mark.parametrize("name", toolkit.__all__)
def test_the_page_mentions_every_name_of_the_toolkit(name: str) -> None:
    assert re.search(rf"`(?:async )?{name}\b", PAGE)
