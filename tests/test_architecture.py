"""The structure of the code, kept by tests: layers, purity, public names, sibling bridges, module names, readers of the environment."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ambient_runner
from ambient_runner.bridges import toolkit

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
    "testing": 8,
    "__init__": 9,
}
"""Levels of packages. A package imports only from lower ones. The package root re-exports public names, so nothing imports it."""
PURE = ("protocol", "projections")
IMPURE_MODULES = {"asyncio", "anyio", "socket", "sqlite3", "subprocess", "threading", "os", "time", "logging", "httpx"}
BROAD_EXCEPT = {"runs/execution.py", "runs/isolate.py", "server/error_responses.py", "cli/main.py"}

SIBLING_FILES = {
    "__init__",
    "bridge",
    "adapter",
    "run",
    "run_input",
    "translate",
    "messages",
    "interrupts",
    "outcome",
    "memory",
    "client_tools",
    "instrumentation",
    "subagents",
    "config",
    "errors",
}
"""Files of a framework bridge. The same file has the same job in each; a job that a framework does not have has no file."""
EXTRA_FILES = {
    "adk": "event_hooks hooks session_sync sessions streamed_arguments",
    "claude": "launch launch_files orphan_reaper process session shared",
    "langgraph": "graph local_graph predict_state remote_graph state_edits streamed_message tool_call_ids",
    "strands": "agent agent_clone config_check driver multi_agent single_agent text_bypass tool_behaviors",
}
MISSING_FILES = {"claude": {"instrumentation"}}
"""Jobs a framework does not have: the Claude CLI is a process, nothing is inserted into it."""

MODULE_WORDS = frozenset(Path(__file__).with_name("module_words.txt").read_text().split())
"""Words that module names are made of: nouns of AG-UI, SQL, HTTP, Python and of docs/architecture.md, and the verbs of one-verb modules."""


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(source: str) -> set[str]:
    """Return what a module imports: for `from a import b` both `a` and `a.b`, since `b` may be a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases):
                names.update((module, *(f"{module}.{alias.name}" for alias in aliases)))
            case _:
                pass
    return names


def _imported_packages(source: str) -> set[str]:
    """Return the packages of ours that a module imports. `import ambient_runner` and public names of it are its root, `__init__`."""
    packages: set[str] = set()
    for name in _imports(source):
        match name.split("."):
            case ["ambient_runner"]:
                packages.add("__init__")
            case ["ambient_runner", package, *_]:
                packages.add(package if package in LAYERS else "__init__")
            case _:
                pass
    # `from ambient_runner.runs import x` also yields nothing of the root, but `from ambient_runner import runs` yields both.
    is_root_only_by_module = "__init__" in packages and not _imports_root(source)
    return packages - {"__init__"} if is_root_only_by_module else packages


def _imports_root(source: str) -> bool:
    """Return True if a module imports the package root, or a public name of it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases) if any(alias.name == "ambient_runner" for alias in aliases):
                return True
            case ast.ImportFrom(module="ambient_runner", names=aliases):
                return any(alias.name not in LAYERS for alias in aliases)
            case _:
                pass
    return False


def _is_typing_only(path: Path, package: str) -> bool:
    """Return True if a package is imported only under TYPE_CHECKING: then it is no dependency at run time."""
    tree = ast.parse(path.read_text())
    guarded = {
        inner.module
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and inner.module
    }
    plain = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    prefix = f"ambient_runner.{package}"
    return any(name.startswith(prefix) for name in guarded) and not any(name.startswith(prefix) for name in plain)


def _upward_imports(package: str, source: str) -> set[str]:
    return {other for other in _imported_packages(source) if other != package and LAYERS[other] >= LAYERS[package]}


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    package = _package(path)
    upward = _upward_imports(package, path.read_text())
    assert {other for other in upward if not (package == "errors" and _is_typing_only(path, other))} == set()


@pytest.mark.parametrize(
    ("source", "upward"),
    [
        ("from ambient_runner.server.app import create_app", {"server"}),
        ("from ambient_runner import server", {"server"}),
        ("import ambient_runner", {"__init__"}),
        ("import ambient_runner.server.app", {"server"}),
        ("from ambient_runner import create_app", {"__init__"}),
        ("from ambient_runner.ledger import open_ledger", set[str]()),
        ("from ambient_runner import errors", set[str]()),
    ],
)
def test_every_form_of_an_import_is_seen(source: str, upward: set[str]) -> None:
    """`import ambient_runner` and `from ambient_runner import x` were not."""
    assert _upward_imports("runs", source) == upward


@pytest.mark.parametrize("path", [path for path in _modules() if _package(path) in PURE], ids=str)
def test_protocol_and_projections_are_pure(path: Path) -> None:
    source = path.read_text()
    assert {name.split(".")[0] for name in _imports(source)} & IMPURE_MODULES == set()
    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(ast.parse(source)))


BRIDGES = sorted(path.name for path in (SOURCE / "bridges").iterdir() if (path / "bridge.py").exists())


@pytest.mark.parametrize("bridge", BRIDGES)
def test_no_bridge_imports_another_bridge(bridge: str) -> None:
    others = tuple(f"ambient_runner.bridges.{other}" for other in BRIDGES if other != bridge)
    imported = {
        name
        for path in (SOURCE / "bridges" / bridge).rglob("*.py")
        for name in _imports(path.read_text())
        if name.startswith(others)
    }
    assert imported == set()


def test_the_generic_server_and_the_toolkit_import_no_framework() -> None:
    frameworks = (*tuple(f"ambient_runner.bridges.{bridge}" for bridge in BRIDGES), "ambient_runner.adk")
    paths = [*(SOURCE / "server").rglob("*.py"), *(SOURCE / "bridges" / "toolkit").rglob("*.py")]
    imported = {name for path in paths for name in _imports(path.read_text()) if name.startswith(frameworks)}
    assert imported == set()


@pytest.mark.parametrize("bridge", sorted(EXTRA_FILES))
def test_framework_bridges_have_the_same_file_for_the_same_job(bridge: str) -> None:
    files = {path.stem for path in (SOURCE / "bridges" / bridge).glob("*.py")}
    assert files == SIBLING_FILES - MISSING_FILES.get(bridge, set()) | set(EXTRA_FILES[bridge].split())


def test_module_names_are_words_of_the_glossary() -> None:
    names = {part for path in _modules() for part in path.relative_to(SOURCE).with_suffix("").parts} - {"__init__"}
    unknown = {name: words for name in names if (words := set(name.split("_")) - MODULE_WORDS)}
    assert unknown == {}


def _reads_the_environment(path: Path) -> bool:
    """Return True if a module reads the environment, under whatever name `os` was imported. `/proc/…/environ` is text."""
    names = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr=name) if name in names:
                return True
            case ast.ImportFrom(module="os", names=aliases) if names & {alias.name for alias in aliases}:
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
        "SNAPSHOT_MARKER",
        "Actor",
        "CredentialSubject",
        "FrameworkCapabilities",
        "Middleware",
        "PlatformBridge",
        "PlatformContext",
        "Run",
        "RunHandler",
        "RunInterrupted",
        "RunnerError",
        "Settings",
        "Timeouts",
        "add_ambient_endpoints",
        "base_environment",
        "create_app",
        "current_run",
        "current_run_or_none",
        "remember",
    ]


def test_the_names_of_the_toolkit_are_a_decision() -> None:
    assert toolkit.__all__ == sorted(
        TOOLKIT.split(), key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    assert [name for name in toolkit.__all__ if not hasattr(toolkit, name)] == []


TOOLKIT = """
EMPTY_RESULT MISSING_RESULT TOOL_NAME AdapterRun AssistantTurn BridgeError BridgeTimeout BridgeUnavailable Call Composer
ConfigError Event Interrupt NewInput PredictStateMapping Result ResultsTurn ResumeEntry RunAgentInput StateStore
SystemTurn Tool Toolbox Turn Usage UserTurn accepts_argument allocate_tool_call_id attachment_placeholder call_hook
callable_tools clean_schema collect_tool_calls expires_at hook_error input_from_agui interrupt_lapsed_events
iterate_in_thread json_text missing_result new_input optional_dependency parse_json_or_text random_id
required_parameters resolved_interrupt_ids result_from_message stream_hook stream_run to_json to_json_or_type_name to_turns
try_hook try_stream unanswered_tool_calls
"""
