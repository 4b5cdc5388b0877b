"""The documentation matches the code, in both directions: what exists is documented, and what is documented exists.

Checked are links and anchors, Python, TOML and JSON blocks, examples, routes, settings, events, error codes, commands and the public
Python names. Pages whose Python blocks form a program are executed.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import typer.main
from benchmarks.report import INTRODUCTION
from fastapi.routing import APIRoute

import ambient_runner.cli.main
from ambient_runner import Settings, create_app, errors
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import OPTIONS, read_settings
from ambient_runner.ledger import MemoryLedger, open_ledger
from tests.server.worker import WorkerBridge

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "ambient_runner"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXAMPLE_FILES = [path for path in sorted((ROOT / "examples").rglob("*.py")) if "node_modules" not in path.parts]
EXAMPLE_PAGES = sorted(path.parent for path in (ROOT / "examples").glob("*/package.json"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FRAMEWORKS = ("adk", "claude", "langgraph", "remote", "strands")


def page_id(path: object) -> str:
    return str(path.relative_to(ROOT)) if isinstance(path, Path) else str(path)


def reference(name: str) -> str:
    return (DOCS / "reference" / name).read_text()


def all_text() -> str:
    return "\n".join(path.read_text() for path in PAGES)


def without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)


def code_blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def first_cells(text: str) -> Iterator[str]:
    """Yield the names in backticks in the first column of all tables."""
    for cell in re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", cell)


# Links


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs derive them."""
    headings = re.findall(r"^#+ (.+)$", without_code(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> list[str]:
    return [target for target in _link_targets(path) if not _leads_somewhere(path, target)]


def _link_targets(path: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", without_code(path.read_text()))


def _leads_somewhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    linked = (path.parent / name).resolve() if name else path
    return linked.exists() and (not anchor or (linked.suffix == ".md" and anchor in anchors(linked)))


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_link_and_anchor_exists(path: Path) -> None:
    assert broken_links(path) == []


def test_every_page_can_be_reached_from_the_index() -> None:
    start = DOCS / "index.md"
    reached, queue = {start}, [start]
    for path in queue:
        linked = {(path.parent / target.partition("#")[0]).resolve() for target in _link_targets(path)}
        new = {
            page for page in linked if page.suffix == ".md" and page.is_relative_to(DOCS) and page.exists()
        } - reached
        reached |= new
        queue += new
    assert set(DOCS.rglob("*.md")) - reached == set()


def test_every_page_that_the_code_mentions_exists() -> None:
    sources = [*SOURCE.rglob("*.py"), *EXAMPLES, *(ROOT / "tests").rglob("*.py")]
    mentioned = {page for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())}
    assert {page for page in mentioned if not (ROOT / page).exists()} == set()


# Errors


def error_types() -> list[type[errors.RunnerError]]:
    found = [errors.RunnerError]
    for kind in found:
        found += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", error_types(), ids=lambda kind: kind.__name__)
def test_every_error_is_documented_and_says_what_to_do(kind: type[errors.RunnerError]) -> None:
    assert f"`{kind.code}`" in reference("errors.md")
    assert kind.__doc__


def test_every_documented_error_code_exists() -> None:
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    codes = {name for name in first_cells(reference("errors.md")) if name.islower()}
    assert {code for code in codes if f'"{code}"' not in source} == set()


def documented_errors() -> set[str]:
    classes = re.findall(r"^\| [^|]* \|(?: \d+ \|)? `([A-Z]\w+)` \|", reference("errors.md"), re.MULTILINE)
    return {*classes, *re.findall(r"^(?:`\w+` \()?`([A-Z]\w+)`\)?:", reference("errors.md"), re.MULTILINE)}


def test_every_documented_error_class_exists() -> None:
    assert documented_errors()
    assert {name for name in documented_errors() if not hasattr(errors, name)} == set()


def test_every_documented_message_is_the_default_of_its_class() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| `(\w+)` \| (.*) \|$", reference("errors.md"), re.MULTILINE)
    assert rows
    documented = {name: (code, int(status), message) for code, status, name, message in rows}
    classes = {name: getattr(errors, name) for name in documented}
    assert documented == {name: (kind.code, kind.status, kind().message) for name, kind in classes.items()}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_error_code_of_a_framework_is_documented(framework: str) -> None:
    source = SOURCE / "bridges" / framework / "errors.py"
    codes = re.findall(r'^    code = "(\w+)"', source.read_text(), re.MULTILINE) if source.exists() else []
    page = (DOCS / "agents" / f"{framework}.md").read_text()
    assert {code for code in codes if f"`{code}`" not in page} - INTERNAL_CODES == set()


INTERNAL_CODES = {"claude_session_lost"}
"""Codes of errors that a bridge handles itself, so that no client sees them."""


# Routes


def routes() -> list[tuple[str, str]]:
    app = create_app(Settings(store="memory://"), {"demo": DemoBridge(), "worker": WorkerBridge()})
    return [
        (method, route.path.replace(":path", ""))
        for route in _api_routes(app.routes)
        for method in sorted(route.methods)
    ]


def _api_routes(found: list[object]) -> list[APIRoute]:
    flat: list[APIRoute] = []
    for route in found:
        if isinstance(route, APIRoute):
            flat.append(route)
        elif hasattr(route, "original_router"):
            flat += _api_routes(route.original_router.routes)
    return flat


def test_the_app_has_routes() -> None:
    assert len(routes()) >= 24


@pytest.mark.parametrize(("method", "path"), routes(), ids=str)
def test_every_route_is_documented(method: str, path: str) -> None:
    assert f"`{method} {path}`" in reference("http.md")


def test_every_documented_route_exists() -> None:
    documented = set(re.findall(r"`(GET|POST|PATCH|DELETE|PUT) (/[^`\s?]*)`", reference("http.md")))
    assert documented - set(routes()) == set()


# Settings


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_setting_is_documented(option: Any) -> None:
    assert f"| `{'.'.join(option.path)}` | `{option.env_name}` |" in reference("config.md")


def test_every_documented_variable_exists() -> None:
    known = {option.env_name for option in OPTIONS} | {"AMBIENT_CONFIG", "AMBIENT_NOTIFY"}
    assert set(re.findall(r"\bAMBIENT_[A-Z_]*[A-Z]\b", all_text())) - known == set()


@pytest.mark.parametrize("block", code_blocks(DOCS / "reference" / "config.md", "toml"))
def test_every_settings_file_in_the_reference_is_accepted(block: str, tmp_path: Path) -> None:
    file = tmp_path / "ambient.toml"
    file.write_text(block)
    read_settings(config=file, environ={})


# Commands


def commands() -> dict[str, Any]:
    group = typer.main.get_command(ambient_runner.cli.main.app)
    found: dict[str, Any] = {}
    for name, command in sorted(getattr(group, "commands", {}).items()):
        inner = getattr(command, "commands", None)
        found |= {f"ambient {name} {sub}": one for sub, one in inner.items()} if inner else {f"ambient {name}": command}
    return found


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented(command: str) -> None:
    assert command in reference("cli.md")


def test_every_documented_command_exists() -> None:
    mentioned = set(re.findall(r"(?:`|^|/bin/)ambient ([a-z]+)(?: ([a-z]+)\b)?", all_text(), re.MULTILINE))
    groups = {command.split()[1] for command in commands()}
    assert {name for name, _ in mentioned} - groups == set()
    assert {f"ambient threads {sub}" for name, sub in mentioned if name == "threads" and sub} - set(commands()) == set()


def test_every_option_of_a_command_is_documented_and_exists() -> None:
    options = {flag for command in commands().values() for option in command.params for flag in option.opts}
    options = {flag for flag in options if flag.startswith("--")}
    assert options - set(re.findall(r"--[a-z-]+", reference("cli.md"))) == set()
    assert (
        set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", reference("cli.md"))) - options - {"--help", "--version"} == set()
    )


# Events


def own_events() -> set[str]:
    return {name for path in SOURCE.rglob("*.py") for name in re.findall(r'"(ambient:[a-z_]+)"', path.read_text())}


@pytest.mark.parametrize("name", sorted(own_events()))
def test_every_event_of_our_own_is_documented(name: str) -> None:
    assert f"`{name}`" in reference("events.md")


def test_every_documented_event_exists() -> None:
    """Some names are composed: `ambient:` and the name of a fact."""
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    documented = set(re.findall(r"\bambient:([a-z_]+)", all_text()))
    assert {name for name in documented if not re.search(rf'["\':]{name}"', source)} == set()


# Python


MODULES = (
    "ambient_runner",
    "ambient_runner.adk",
    "ambient_runner.bridges.agui",
    "ambient_runner.bridges.demo",
    "ambient_runner.bridges.pydantic_ai",
    "ambient_runner.bridges.remote",
    "ambient_runner.bridges.toolkit",
    "ambient_runner.acp",
    "ambient_runner.claude",
    "ambient_runner.compat.ag_ui_adk",
    "ambient_runner.compat.ag_ui_langgraph",
    "ambient_runner.compat.ag_ui_strands",
    "ambient_runner.compat.adk_agui_middleware",
    "ambient_runner.compat.adk_agui_middleware.data_model.config",
    "ambient_runner.compat.adk_agui_middleware.data_model.context",
    "ambient_runner.langgraph",
    "ambient_runner.ledger",
    "ambient_runner.lines",
    "ambient_runner.logging",
    "ambient_runner.protocol.events",
    "ambient_runner.strands",
    "ambient_runner.telemetry.tracing",
    "ambient_runner.testing",
)
"""Modules whose `__all__` is the public Python API."""


def documented_names() -> dict[str, set[str]]:
    sections = re.split(r"^## ", reference("python.md"), flags=re.MULTILINE)[1:]
    titles = ((section.partition("\n")[0].strip("`"), section) for section in sections)
    return {title: set(first_cells(section)) for title, section in titles if title.startswith("ambient_runner")}


@pytest.mark.parametrize("module", MODULES)
def test_the_python_page_lists_exactly_the_public_names(module: str) -> None:
    assert documented_names()[module] == set(importlib.import_module(module).__all__)


def test_the_python_page_lists_no_other_module() -> None:
    assert set(documented_names()) == set(MODULES)


def python_blocks() -> list[Any]:
    return [
        pytest.param(block, id=f"{page_id(path)}-{number}")
        for path in PAGES
        for number, block in enumerate(code_blocks(path, "python"), 1)
    ]


def missing_imports(source: str) -> list[str]:
    """Return the names of `ambient_runner` that the source imports and that do not exist."""
    return [
        f"{module}.{name}"
        for node in ast.walk(ast.parse(source))
        for module, name in _imported(node)
        if module.partition(".")[0] == "ambient_runner" and not _exists(module, name)
    ]


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom) and node.module:
        yield from ((node.module, alias.name) for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)


def _exists(module: str, name: str) -> bool:
    if importlib.util.find_spec(module) is None:
        return False
    return not name or hasattr(importlib.import_module(module), name) or _exists(f"{module}.{name}", "")


@pytest.mark.parametrize("block", python_blocks())
def test_every_python_block_compiles_and_imports_names_that_exist(block: str) -> None:
    compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert missing_imports(block) == []


def internal_imports(source: str) -> list[str]:
    """Return the names of `ambient_runner` that the source imports and that the Python page does not list."""
    public = documented_names() | {"ambient_runner.errors": documented_errors()}
    return [
        f"{module}.{name}"
        for node in ast.walk(ast.parse(source))
        for module, name in _imported(node)
        if module.partition(".")[0] == "ambient_runner"
        and (module not in public or (name and name not in public[module]))
    ]


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLE_FILES], ids=page_id)
def test_pages_and_examples_import_only_public_names(path: Path) -> None:
    sources = [path.read_text()] if path.suffix == ".py" else code_blocks(path, "python")
    assert [name for source in sources for name in internal_imports(source)] == []


def execute(path: Path) -> dict[str, Any]:
    """Execute the Python blocks of a page, in order, as one module. Return its names."""
    module = types.ModuleType("page")
    for block in code_blocks(path, "python"):
        exec(compile(block, path.name, "exec"), module.__dict__)
    return module.__dict__


@pytest.mark.parametrize("page", ["how-to/audience.md", "how-to/middleware.md", "how-to/store.md", "how-to/testing.md"])
def test_every_program_of_a_page_runs(page: str) -> None:
    names = execute(DOCS / page)
    for name, value in names.items():
        if name.startswith("test_") and inspect.iscoroutinefunction(value):
            anyio.run(value)


async def test_the_middleware_of_the_page_wrap_a_run() -> None:
    testing, page = execute(DOCS / "how-to" / "testing.md"), execute(DOCS / "how-to" / "middleware.md")
    app = page["app"]
    async with app.router.lifespan_context(app), testing["connect"](app) as client:
        events = await testing["run"](client, "t1", "weather Lisbon")
    assert "my_project:events" in [event.get("name") for event in events]
    assert events[-1]["type"] == "RUN_FINISHED"


@pytest.fixture
def my_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package `my_project` with the Python blocks and entry points of the pages on middleware and stores."""
    package, metadata = tmp_path / "my_project", tmp_path / "my_project-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-project\nVersion: 1.0\n")
    lines: list[str] = []
    for name, page in {"limits": "middleware", "scratch": "store"}.items():
        path = DOCS / "how-to" / f"{page}.md"
        (package / f"{name}.py").write_text("\n".join(code_blocks(path, "python")))
        for block in code_blocks(path, "toml"):
            for group, points in tomllib.loads(block).get("project", {}).get("entry-points", {}).items():
                lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_project"]:
        del sys.modules[name]


@pytest.mark.usefixtures("my_project")
def test_the_store_of_the_page_is_opened_by_its_scheme() -> None:
    assert isinstance(open_ledger("scratch://"), MemoryLedger)


@pytest.mark.parametrize("entry", ["my-budget", "my_project.limits:count_events"])
@pytest.mark.usefixtures("my_project")
async def test_the_middleware_of_the_page_can_be_named_in_the_settings(entry: str) -> None:
    testing = execute(DOCS / "how-to" / "testing.md")
    app = create_app(Settings(store="memory://", middleware=(entry,)), {"demo": DemoBridge()})
    async with app.router.lifespan_context(app), testing["connect"](app) as client:
        events = await testing["run"](client, "t1", "weather Lisbon")
    counted = "my_project:events" in [event.get("name") for event in events]
    assert counted == entry.endswith("count_events")
    assert events[-1]["type"] == "RUN_FINISHED"


def test_the_agent_in_the_readme_can_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert execute(ROOT / "README.md")["app"].state is not None


def test_pages_and_examples_import_frameworks_by_their_short_names() -> None:
    long_form = re.compile(r"from ambient_runner\.bridges\.(?:adk|claude|langgraph|strands)\b")
    assert [path.name for path in [*PAGES, *EXAMPLES] if long_form.search(path.read_text())] == []


# Other formats


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_toml_block_is_toml(path: Path) -> None:
    for block in code_blocks(path, "toml"):
        tomllib.loads(block)


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_json_block_is_json(path: Path) -> None:
    for block in code_blocks(path, "json"):
        json.loads(block)


# Examples


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_mentioned_on_a_page_and_imports_names_that_exist(path: Path) -> None:
    assert f"examples/{path.name}" in all_text()
    assert missing_imports(path.read_text()) == []


@pytest.mark.parametrize("path", EXAMPLE_PAGES, ids=page_id)
def test_every_page_in_the_examples_is_mentioned(path: Path) -> None:
    assert f"examples/{path.name}" in all_text()


def test_every_example_that_is_mentioned_exists() -> None:
    mentioned = set(re.findall(r"\bexamples/(\w[\w./@-]*\w)", all_text()))
    assert {name for name in mentioned if not (ROOT / "examples" / name).exists()} == set()


def test_every_make_target_that_is_mentioned_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", all_text(), re.MULTILINE)) - targets == set()


def test_the_benchmarks_page_begins_as_its_generator_writes_it() -> None:
    assert INTRODUCTION in (DOCS / "benchmarks.md").read_text()


# Commands to copy

TO_COPY = ("README.md", "docs/quickstart.md")
"""Pages with commands that a reader copies, one page after the other, into the same directory."""


def thread_ids(name: str) -> set[str]:
    return set(re.findall(r'(?:"threadId": "|^send )(\w+)', (ROOT / name).read_text(), re.MULTILINE))


def test_commands_to_copy_share_no_thread_between_pages() -> None:
    readme, quickstart = map(thread_ids, TO_COPY)
    assert readme
    assert quickstart
    assert readme & quickstart == set()


@pytest.mark.parametrize("name", TO_COPY)
def test_commands_to_copy_fix_no_message_id(name: str) -> None:
    """Copied twice, such a command rewound its thread."""
    assert re.findall(r'"id\\?": \\?"', (ROOT / name).read_text()) == []
