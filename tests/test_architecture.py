"""The shape of the code, kept by tests: layers, purity, exported names, one place that reads the environment."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ambient_runner

SOURCE = Path(ambient_runner.__file__).parent

LAYERS = {
    "errors": 0,
    "config": 1,
    "protocol": 2,
    "ledger": 3,
    "projections": 4,
    "runs": 5,
    "bridges": 6,
    "telemetry": 6,
    "services": 6,
    "server": 7,
    "cli": 8,
    "adk": 8,
    "claude": 8,
    "langgraph": 8,
    "logging": 8,
    "strands": 8,
}
PURE = ("protocol", "projections")
IMPURE_MODULES = {"asyncio", "anyio", "socket", "sqlite3", "subprocess", "threading", "os", "time", "logging", "httpx"}
BROAD_EXCEPT = {"runs/execution.py", "runs/isolate.py", "server/error_responses.py", "cli/main.py"}


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module)):
                names.add(module)
            case _:
                pass
    return names


def _is_typing_only(path: Path, module: str) -> bool:
    """Whether the import stands only under TYPE_CHECKING: it is then no dependency at run time."""
    tree = ast.parse(path.read_text())
    guarded = {
        inner.module
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom)
    }
    plain = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    return module in guarded and module not in plain


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    room = _room(path)
    if room == "__init__":
        return
    rooms = {
        name.split(".")[1]
        for name in _imports(path)
        if name.startswith("ambient_runner.") and not (room == "errors" and _is_typing_only(path, name))
    }
    upward = {other for other in rooms if other != room and LAYERS[other] >= LAYERS[room]}
    assert upward == set()


@pytest.mark.parametrize("path", [path for path in _modules() if _room(path) in PURE], ids=str)
def test_protocol_and_projections_are_pure(path: Path) -> None:
    assert {name.split(".")[0] for name in _imports(path)} & IMPURE_MODULES == set()
    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(ast.parse(path.read_text())))


def test_no_bridge_imports_another_framework_room() -> None:
    assert {
        path.name for path in _modules() if _room(path) == "bridges" and "ambient_runner.server" in str(_imports(path))
    } == set()


def _reads_the_environment(path: Path) -> bool:
    """Under whatever name `os` was imported. `/proc/…/environ` is text, and another process's."""
    doors = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr=name) if name in doors:
                return True
            case ast.ImportFrom(module="os", names=aliases) if doors & {alias.name for alias in aliases}:
                return True
            case _:
                pass
    return False


def test_the_environment_is_read_only_in_config() -> None:
    readers = {str(path.relative_to(SOURCE)) for path in _modules() if _reads_the_environment(path)}
    assert readers == {"config/environment.py", "config/loader.py"}


def test_only_the_planned_places_catch_everything_and_go_on() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception"
        if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    }
    assert found <= BROAD_EXCEPT


def test_the_public_names_are_a_decision() -> None:
    assert ambient_runner.__all__ == [
        "Actor",
        "CredentialSubject",
        "FrameworkCapabilities",
        "RunInterrupted",
        "PlatformBridge",
        "PlatformContext",
        "Run",
        "RunnerError",
        "Settings",
        "Timeouts",
        "add_ambient_endpoints",
        "create_app",
        "current_run",
        "base_environment",
    ]
