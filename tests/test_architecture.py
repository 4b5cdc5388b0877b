"""The shape of the code, kept by tests: layers, purity, sibling bridges, exported names, module names."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import ambient_runner
import ambient_runner.testing
from ambient_runner.bridges import toolkit

SOURCE = Path(ambient_runner.__file__).parent

TOP_LAYER = 10
LAYERS = {
    "errors": 0,
    "config": 1,
    "protocol": 2,
    "ledger": 3,
    "projections": 4,
    "files": 5,
    "processes": 6,
    "runs": 7,
    "bridges": 8,
    "telemetry": 8,
    "services": 8,
    "server": 9,
    "cli": TOP_LAYER,
    "acp": TOP_LAYER,
    "adk": TOP_LAYER,
    "claude": TOP_LAYER,
    "langgraph": TOP_LAYER,
    "lines": TOP_LAYER,
    "logging": TOP_LAYER,
    "strands": TOP_LAYER,
    "testing": TOP_LAYER,
    "compat": TOP_LAYER + 1,
}
"""A package imports only from packages below it, or from itself. The root package `ambient_runner` is above all of them."""
PURE = ("protocol", "projections")
IMPURE_MODULES = {"asyncio", "anyio", "socket", "sqlite3", "subprocess", "threading", "os", "time", "logging", "httpx"}
BROAD_EXCEPT = {"runs/execution.py", "runs/isolate.py", "server/error_responses.py", "cli/main.py"}

FRAMEWORKS = {
    "adk": ("google",),
    "claude": ("claude_agent_sdk",),
    "langgraph": ("langgraph", "langchain_core", "langchain", "langgraph_sdk"),
    "pydantic_ai": ("pydantic_ai",),
    "remote": ("httpx",),
    "strands": ("strands",),
}
"""The packages that only one bridge, and the facade of the same name, may import."""

SIBLING_FILES = {
    "adapter": "runs one thread",
    "bridge": "creates the adapters, owns the SDK's client",
    "client_tools": "the client's tools",
    "config": "the settings",
    "errors": "the framework's errors as ours",
    "instrumentation": "what is inserted into the SDK",
    "interrupts": "interrupts, both ways",
    "memory": "what the next run needs",
    "messages": "content, both ways",
    "outcome": "the terminal event",
    "run": "one run",
    "run_input": "the framework's input",
    "sdk": "private names of the SDK, and what differs between its versions",
    "subagents": "subagents, and who speaks",
    "tools": "the agent's own tools, and their declarations",
    "translate": "native events to AG-UI",
}
"""The same job has the same file in every bridge."""
OPTIONAL_FILES = {"instrumentation", "subagents"}
"""Jobs that not every framework has."""
MISSING_FILES = {"acp": {"sdk", "tools"}, "lines": {"client_tools", "interrupts", "sdk", "tools"}}
"""Jobs that a bridge does not have: there is no SDK, and an agent's tools are known only to its process. A command that prints lines takes
no answers."""
EXTRA_FILES = {
    "acp": {
        *(
            "connection",
            "home",
            "isolation",
            "launch",
            "modes",
            "permission_calls",
            "permission_options",
            "permissions",
            "profiles",
            "recording",
        ),
        *(
            "buffered_messages",
            "elicitations",
            "form_values",
            "interrupt_answers",
            "known_calls",
            "pending_interrupts",
            "run_stream",
            "session",
            "session_guard",
        ),
        *(
            "session_messages",
            "text_chunks",
            "session_options",
            "session_start",
            "session_state",
            "shared",
            "tool_activities",
            "tool_calls",
        ),
        *("process_pool", "session_erasure"),
        *("tool_records", "tool_relay", "tool_results", "tool_server", "working_directory"),
    },
    "strands": {
        "agent",
        "driver",
        "single_agent",
        "multi_agent",
        "tool_behaviors",
        "text_bypass",
        "agent_clone",
        "config_check",
        "citations",
        "content",
        "history",
        "multi_agent_clone",
        "tool_call_ids",
        "tool_names",
        "url_fetch",
    },
    "adk": {
        "client_toolset",
        "sessions",
        "session_sync",
        "hooks",
        "event_hooks",
        "external_events",
        "input_edits",
        "streamed_arguments",
    },
    "langgraph": {
        *("graph", "local_graph", "remote_graph", "state_edits", "streamed_message", "tool_call_ids", "predict_state"),
        *("request", "answers", "approvals", "tools_middleware", "copilotkit", "emitted_items"),
        *("history", "streamed_messages", "tool_calls", "decisions"),
    },
    "lines": {"end_conditions", "framing", "json_lines", "launch", "provider", "shared", "streamed_text"},
    "claude": {
        "session",
        "process",
        "launch",
        "launch_files",
        "shared",
        "state_tool",
        "permissions",
        "predict_state",
    },
}
"""Files for what only one framework has."""

MODULE_WORDS = frozenset(
    """
    acceptance acp active activities adapter addresses adk admission agent agui ai annotations answers app approvals arguments
    attributes audiences background backup base batches behaviors bounded branches bridge bridges bubblewrap buffered busy bypass cache
    call callbacks calls capabilities changes check checkpoint checkpoints child chunks citations claude cli client clone collection
    columns command commands commit committer composer conditions config connect connection containment content context copilotkit cors
    credential credentials damage decisions decode deferred delta deltas demo descriptor detection dir direct directory doctor driver
    dropped edits elicitations elsewhere emitted encode encoded encodings end entries environment erasure error errors event events
    execution export exporter exposure external facts fanout feedback fetch field file files flush folds fork form format frame frames
    framing garbage gateway git grants graph guard guessability header headers held history home hooks host http identity ids import
    index input inside instrumentation interrupt interrupts isolate isolation items jobs json keyed known langgraph large launch layout
    ledger lenient limits lines loader local locks log logging login logins loop lowering main maintenance manifest mcp memory message
    messages metadata metrics middleware migration models modes monitor multi names needles notifier open option options origins orphan
    outage outcome outcomes page parsers parsing parts patch patterns pending permission permissions pipeline pipes platform playback
    pointer pool predict private process processes product profiles program projections projectors prompt protocol provider pydantic
    queries read reader reaper reattach recent recording records redaction redactor registry relay release remote render repair replay
    repos request reserved responses results routes row rpc rules run runner runs runtime safe safety sandbox scheduler schema schemas
    sdk search secret secrets send serve server services session sessions settings setup shared single snapshots socket sources span
    spans spawn sqlite start starter state status stdio storable store strands stream streamed strict string subagents suggestions
    summaries sync system telemetry terminal testing text thread threaded threads title tool toolkit tools toolset tracing transcript
    translate trees turns types uploads url usage user values variables verify view wal withdrawn work worker workers workflows working
    workspaces wrapped writer
    """.split()  # noqa: SIM905
)
"""Words of module names: terms of the glossary (docs/architecture.md), of Python, or of a protocol. Add one only if it is such a term."""


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _package(path: Path) -> str:
    """Return the top-level package or module of a file, such as `bridges` or `errors`; `__init__` for the root package."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """Return the full names of the imported modules, also of `from package import module` and of relative imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = _absolute_module(path, module, level)
                names.update(_imported_name(base, alias.name) for alias in aliases)
            case _:
                pass
    return names


def _absolute_module(path: Path, module: str | None, level: int) -> str:
    if not level:
        return module or ""
    parts = ["ambient_runner", *path.relative_to(SOURCE).parent.parts]
    return ".".join([*parts[: len(parts) - level + 1], *([module] if module else [])])


def _imported_name(base: str, name: str) -> str:
    """Return `base.name` if that is a module or package of ours, else `base`."""
    if base.partition(".")[0] != "ambient_runner":
        return base
    place = SOURCE.joinpath(*base.split(".")[1:], name)
    return f"{base}.{name}" if place.is_dir() or place.with_suffix(".py").is_file() else base


def _imported_packages(path: Path) -> set[str]:
    """Return the top-level packages of ours that a file imports; `__init__` for the root package itself."""
    ours = [name.split(".") for name in _imports(path) if name.split(".")[0] == "ambient_runner"]
    return {parts[1] if len(parts) > 1 else "__init__" for parts in ours}


def _is_typing_only(path: Path, package: str) -> bool:
    """Return True if a package is imported only under TYPE_CHECKING: it is then no dependency at run time."""
    tree = ast.parse(path.read_text())
    guards = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    guarded = {id(inner) for guard in guards for inner in ast.walk(guard)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in guarded]
    return not any((node.module or "").startswith(f"ambient_runner.{package}") for node in imports)


def _upward_imports(path: Path) -> set[str]:
    package = _package(path)
    imported = {
        other
        for other in _imported_packages(path) - {package}
        if not (package == "errors" and _is_typing_only(path, other))
    }
    return {other for other in imported if LAYERS.get(other, TOP_LAYER + 2) >= LAYERS[package]}


@pytest.mark.parametrize("path", [path for path in _modules() if _package(path) != "__init__"], ids=_name)
def test_imports_go_in_one_direction(path: Path) -> None:
    assert _upward_imports(path) == set()


@pytest.mark.parametrize(
    "line",
    [
        "import ambient_runner",
        "import ambient_runner.server.app",
        "from ambient_runner import Settings",
        "from ambient_runner import server",
        "from ambient_runner.server import app",
        "from ambient_runner.server.app import create_app",
        "from .. import server",
        "from ..server.app import create_app",
        "def late():\n    from ambient_runner import create_app",
    ],
)
def test_the_import_check_covers_every_form_of_import(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = SOURCE / "runs" / "imaginary.py"
    monkeypatch.setattr(Path, "read_text", lambda self: line)
    assert _upward_imports(path) != set()


@pytest.mark.parametrize("path", [path for path in _modules() if _package(path) in PURE], ids=_name)
def test_protocol_and_projections_are_pure(path: Path) -> None:
    assert {name.split(".")[0] for name in _imports(path)} & IMPURE_MODULES == set()
    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(ast.parse(path.read_text())))


COMPAT_FRAMEWORKS = {
    "adk_agui_middleware": "adk",
    "ag_ui_adk": "adk",
    "ag_ui_langgraph": "langgraph",
    "ag_ui_strands": "strands",
}
"""The published packages in `compat`, and the framework of each."""


def _framework(path: Path) -> str:
    """Return the framework that a file belongs to, as a bridge, as a facade or in `compat`; empty for shared code."""
    parts = [part.removesuffix(".py") for part in path.relative_to(SOURCE).parts]
    if parts[0] == "compat":
        return COMPAT_FRAMEWORKS.get(parts[1], "")
    owner = parts[1] if parts[0] == "bridges" and len(parts) > 1 else parts[0]
    return owner if owner in FRAMEWORKS else ""


def _bridge_imports(path: Path) -> set[str]:
    """Return the frameworks whose bridge or facade a file imports."""
    parts = [name.split(".") for name in _imports(path) if name.startswith("ambient_runner.")]
    named = {part[2] if part[1] == "bridges" and len(part) > 2 else part[1] for part in parts}
    return named & FRAMEWORKS.keys()


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_no_bridge_imports_another_bridge(path: Path) -> None:
    allowed = {_framework(path)} | ({"remote"} if _name(path) == "bridges/registry.py" else set())
    assert _bridge_imports(path) - allowed == set()


HTTP_CLIENTS = {"bridges/langgraph/errors.py"}
"""Files outside of `bridges/remote` that may import httpx: the client of a LangGraph server raises its errors."""


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_only_its_own_bridge_imports_a_framework(path: Path) -> None:
    roots = {name.split(".")[0] for name in _imports(path)}
    foreign = {
        package
        for framework, packages in FRAMEWORKS.items()
        for package in packages
        if package in roots
        and framework != _framework(path)
        and not (package == "httpx" and _name(path) in HTTP_CLIENTS)
    }
    assert foreign == set()


def test_the_server_knows_no_framework() -> None:
    server = [path for path in _modules() if _package(path) == "server"]
    assert {name for path in server for name in _bridge_imports(path)} == set()


@pytest.mark.parametrize("bridge", EXTRA_FILES)
def test_the_bridges_have_the_same_file_for_the_same_job(bridge: str) -> None:
    found = {path.stem for path in (SOURCE / "bridges" / bridge).glob("*.py")} - {"__init__"}
    assert found - SIBLING_FILES.keys() - EXTRA_FILES[bridge] == set()
    assert SIBLING_FILES.keys() - OPTIONAL_FILES - MISSING_FILES.get(bridge, set()) - found == set()


def _private_reads(path: Path) -> set[str]:
    """Return the private names of other objects that a file reads, and the private modules it imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    attributes = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    }
    private = {name for name in attributes if name.startswith("_") and not name.startswith("__")}
    modules = {name for name in _imports(path) if "._" in name and not name.startswith("ambient_runner")}
    return (private - {"_replace"}) | modules  # `_replace` is the documented method of a named tuple


@pytest.mark.parametrize("bridge", EXTRA_FILES)
def test_only_sdk_py_reads_private_names_of_a_bridges_sdk(bridge: str) -> None:
    files = [path for path in (SOURCE / "bridges" / bridge).glob("*.py") if path.stem != "sdk"]
    assert {path.name: names for path in files if (names := _private_reads(path))} == {}


@pytest.mark.parametrize("bridge", EXTRA_FILES)
@pytest.mark.parametrize(
    ("file", "ending"), [("bridge", "Bridge"), ("adapter", "Adapter"), ("run", "Run"), ("translate", "Translator")]
)
def test_the_bridges_have_the_same_class_for_the_same_job(bridge: str, file: str, ending: str) -> None:
    tree = ast.parse((SOURCE / "bridges" / bridge / f"{file}.py").read_text())
    assert any(isinstance(node, ast.ClassDef) and node.name.endswith(ending) for node in tree.body)


def _own_modules() -> list[Path]:
    """Return all modules but those of `compat`, which have the names of the published packages."""
    return [path for path in _modules() if _package(path) != "compat"]


@pytest.mark.parametrize("path", _own_modules(), ids=_name)
def test_a_module_name_is_made_of_known_words(path: Path) -> None:
    names = [part.removesuffix(".py") for part in path.relative_to(SOURCE).parts]
    words = {word for name in names if name != "__init__" for word in name.split("_")}
    assert words - MODULE_WORDS == set()


def test_every_known_word_is_used() -> None:
    used = {
        word
        for path in _own_modules()
        for part in path.relative_to(SOURCE).parts
        for word in part.removesuffix(".py").split("_")
    }
    assert MODULE_WORDS - used == set()


def _reads_the_environment(path: Path) -> bool:
    """Return True if a file reads environment variables, under whatever name `os` was imported. `/proc/…/environ` is text."""
    readers = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr=name) if name in readers:
                return True
            case ast.ImportFrom(module="os", names=aliases) if readers & {alias.name for alias in aliases}:
                return True
            case _:
                pass
    return False


def test_the_environment_is_read_only_in_config() -> None:
    assert {_name(path) for path in _modules() if _reads_the_environment(path)} == {
        "config/environment.py",
        "config/loader.py",
    }


def test_only_the_listed_modules_catch_every_exception_and_continue() -> None:
    found = {
        _name(path)
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
        "StoredFact",
        "Timeouts",
        "add_ambient_endpoints",
        "base_environment",
        "create_app",
        "current_run",
        "current_run_or_none",
        "register_projector",
        "remember",
    ]
    assert ambient_runner.testing.__all__ == [
        "BridgeContract",
        "UnsafeFrame",
        "fold_activities",
        "fold_frames",
        "verify_frame_safety",
    ]


def test_the_names_of_the_toolkit_are_a_decision() -> None:
    assert toolkit.__all__ == [
        "DECLINED",
        "EMPTY_RESULT",
        "MISSING_RESULT",
        "TOOL_NAME",
        "AdapterRun",
        "AssistantTurn",
        "BridgeError",
        "BridgeTimeout",
        "BridgeUnavailable",
        "Composer",
        "ConfigError",
        "Event",
        "Interrupt",
        "NewInput",
        "PredictStateMapping",
        "ResultsTurn",
        "ResumeEntry",
        "RunAgentInput",
        "StateStore",
        "SystemTurn",
        "Tool",
        "Toolbox",
        "Turn",
        "TurnToolCall",
        "TurnToolResult",
        "Usage",
        "UserTurn",
        "accepts_argument",
        "allocate_tool_call_id",
        "approval_schema",
        "as_object",
        "attachment_placeholder",
        "call_hook",
        "callable_tools",
        "cancelled_answer",
        "clean_schema",
        "collect_tool_calls",
        "context_text",
        "declare_mcp_tool",
        "declare_tool",
        "expires_at",
        "find_new_input",
        "has_same_arguments",
        "hook_error",
        "input_from_agui",
        "interrupt_lapsed_events",
        "is_approved",
        "iterate_in_thread",
        "memory_events",
        "missing_result",
        "optional_dependency",
        "parse_json_or_text",
        "random_id",
        "record_arguments",
        "required_parameters",
        "resolved_interrupt_ids",
        "result_from_message",
        "stream_hook",
        "stream_run",
        "to_json_text",
        "to_jsonable",
        "to_jsonable_or_type_name",
        "to_turns",
        "try_hook",
        "try_stream",
        "unanswered_tool_calls",
    ]


@pytest.mark.parametrize("name", toolkit.__all__)
def test_every_name_of_the_toolkit_has_a_docstring(name: str) -> None:
    exported = getattr(toolkit, name)
    is_ours = getattr(exported, "__module__", "").startswith("ambient_runner.bridges.toolkit")
    if is_ours and (inspect.isclass(exported) or inspect.isfunction(exported)):
        assert exported.__doc__
        assert not exported.__doc__.startswith(("What ", "Whether ", "How "))


@pytest.mark.parametrize("module", ["ambient_runner", "ambient_runner.bridges.toolkit", "ambient_runner.testing"])
def test_importing_the_public_modules_imports_no_framework(module: str) -> None:
    packages = [package for names in FRAMEWORKS.values() for package in names if package != "google"]
    code = f"import sys, {module}; print([p for p in {packages} if p in sys.modules], 'google.adk' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "[] False"
