"""Whatever a user can meet is documented: error codes, routes, headers, settings, commands, events of our own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from fastapi.routing import APIRoute

import ambient_runner.cli.main
from ambient_runner import Settings, create_app, errors
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import OPTIONS
from tests.server.worker import WorkerBridge

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


def error_types() -> list[type[errors.RunnerError]]:
    found = [errors.RunnerError]
    for kind in found:
        found += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", error_types(), ids=lambda kind: kind.__name__)
def test_every_error_is_documented_and_says_what_to_do(kind: type[errors.RunnerError]) -> None:
    assert f"`{kind.code}`" in page("errors.md")
    assert kind.__doc__


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


def test_there_are_routes_to_look_at() -> None:
    assert len(routes()) >= 24


@pytest.mark.parametrize(("method", "path"), routes(), ids=str)
def test_every_route_is_documented(method: str, path: str) -> None:
    assert f"`{method} {path}`" in page("http.md")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_setting_is_documented(option: object) -> None:
    assert f"`{option.env_name}`" in page("config.md")  # type: ignore[attr-defined]


def commands() -> list[str]:
    group = typer.main.get_command(ambient_runner.cli.main.app)
    names: list[str] = []
    for name, command in sorted(getattr(group, "commands", {}).items()):
        inner = getattr(command, "commands", None)
        names += [f"ambient {name} {sub}" for sub in inner] if inner else [f"ambient {name}"]
    return names


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented(command: str) -> None:
    assert command in page("cli.md")


def own_events() -> set[str]:
    source = ROOT / "src"
    return {name for path in source.rglob("*.py") for name in re.findall(r'"(ambient:[a-z_]+)"', path.read_text())}


@pytest.mark.parametrize("name", sorted(own_events()))
def test_every_event_of_our_own_is_documented(name: str) -> None:
    assert f"`{name}`" in page("events.md")


@pytest.mark.parametrize("path", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


TO_COPY = ("README.md", "docs/quickstart.md")
"""Pages with commands that a newcomer copies, one page after the other, into the same folder."""


def threads_of(name: str) -> set[str]:
    return set(re.findall(r'(?:"threadId": "|^say )(\w+)', (ROOT / name).read_text(), re.MULTILINE))


def test_commands_to_copy_share_no_thread_between_pages() -> None:
    readme, quickstart = map(threads_of, TO_COPY)
    assert readme
    assert quickstart
    assert readme & quickstart == set()


@pytest.mark.parametrize("name", TO_COPY)
def test_commands_to_copy_fix_no_message_id(name: str) -> None:
    """Copied twice, such a command took its thread back."""
    assert re.findall(r'"id\\?": \\?"', (ROOT / name).read_text()) == []


def test_pages_and_examples_import_frameworks_by_their_short_names() -> None:
    long_way = re.compile(r"from ambient_runner\.bridges\.(?:adk|claude|langgraph|strands)\b")
    places = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    assert [path.name for path in places if long_way.search(path.read_text())] == []
