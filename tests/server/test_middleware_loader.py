"""Middleware of the setting `middleware`: loaded, ordered, and refused with what to write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ambient_runner import Run, RunHandler, add_ambient_endpoints, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.events import Custom, Event, RunFinished
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

HERE = "tests.server.test_middleware_loader"
NOT_A_FUNCTION = 7


def _announcing(name: str, handler: RunHandler) -> RunHandler:
    async def announce(run: Run) -> AsyncGenerator[Event, None]:
        async with aclosing(handler(run)) as events:
            async for event in events:
                if isinstance(event, RunFinished):
                    yield Custom(name="test:middleware", value=name)
                yield event

    return announce


def outer(handler: RunHandler) -> RunHandler:
    return _announcing("outer", handler)


def inner(handler: RunHandler) -> RunHandler:
    return _announcing("inner", handler)


def of_the_app(handler: RunHandler) -> RunHandler:
    return _announcing("app", handler)


async def a_handler(run: Run) -> AsyncGenerator[Event, None]:
    yield RunFinished(thread_id="t", run_id="r")


def takes_two(handler: RunHandler, other: str) -> RunHandler:
    return handler


def returns_nothing(handler: RunHandler) -> None:
    del handler


def yields_events(handler: RunHandler) -> Generator[Event, None, None]:
    raise NotImplementedError
    yield


def needs_a_loop(handler: RunHandler) -> RunHandler:
    asyncio.get_running_loop()
    return _announcing("loop", handler)


class Announcing:
    """A run handler of its own for each run."""

    def __init__(self, handler: RunHandler) -> None:
        self._handler = _announcing("class", handler)

    def __call__(self, run: Run) -> AsyncGenerator[Event, None]:
        return self._handler(run)


class Announcer:
    def wrap(self, handler: RunHandler) -> RunHandler:
        return _announcing("method", handler)

    def __call__(self, handler: RunHandler) -> RunHandler:
        return _announcing("object", handler)


an_object = Announcer()
a_method = an_object.wrap
a_partial = partial(_announcing, "partial")


def unchanged(handler: RunHandler) -> RunHandler:
    return handler


async def announced(names: tuple[str, ...]) -> list[str]:
    app = create_app(replace(SETTINGS, middleware=names), {"demo": DemoBridge()})
    async with client_of(app) as client:
        events = [event for _, event in frames(await client.post("/", json=run_body("say hi")))]
    return [event["value"] for event in events if event.get("name") == "test:middleware"]


async def test_the_first_middleware_is_outermost() -> None:
    # The innermost sees the terminal event first.
    assert await announced((f"{HERE}:outer", f"{HERE}:inner")) == ["inner", "outer"]


async def test_the_settings_of_an_app_apply_inside_its_own_middleware() -> None:
    from fastapi import FastAPI

    app = FastAPI()
    settings = replace(SETTINGS, middleware=(f"{HERE}:outer",))
    add_ambient_endpoints(app, DemoBridge(), settings=settings, middleware=[of_the_app])
    async with client_of(app) as client:
        events = [event for _, event in frames(await client.post("/", json=run_body("say hi")))]
    assert [event["value"] for event in events if event.get("name") == "test:middleware"] == ["outer", "app"]


async def test_installed_middleware_is_applied_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("audit", f"{HERE}:inner", "ambient_runner.middleware")]
    monkeypatch.setattr("ambient_runner.server.middleware_loader.entry_points", lambda group: points)
    assert await announced(()) == []
    assert await announced(("audit",)) == ["inner"]
    with pytest.raises(ConfigError, match="Did you mean audit"):
        await announced(("adit",))


def test_the_setting_is_read_from_the_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "ambient.toml"
    file.write_text('middleware = ["audit", "my_project.audit:log_runs"]\n')
    assert read_settings(file, {}).middleware == ("audit", "my_project.audit:log_runs")
    assert read_settings(None, {"AMBIENT_MIDDLEWARE": "a, b"}).middleware == ("a", "b")


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ("missing", "package.module:function"),
        (f"{HERE}:outr", "Did you mean outer?"),
        ("no_such_module_here:f", "There is no module no_such_module_here"),
        ("tests/server/test_middleware_loader.py:outer", f"{HERE}:outer"),
        (f"{HERE}:NOT_A_FUNCTION", "is not a function but int"),
        (f"{HERE}:a_handler", "is async: it is a run handler itself"),
        (f"{HERE}:takes_two", "takes handler, other instead of one argument"),
        (f"{HERE}:returns_nothing", "returns None instead of a run handler"),
        (f"{HERE}:yields_events", "returns a generator instead of a run handler"),
        ("json:dumps", "fails when it is called with a run handler (TypeError"),
        ("os.path:exists", "fails when it is called with a run handler (TypeError"),
        ("builtins:id", "returns a int instead of a run handler"),
    ],
)
def test_an_entry_that_cannot_be_middleware_is_refused_by_name(entry: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_app(replace(SETTINGS, middleware=(entry,)), {"demo": DemoBridge()})
    assert entry in caught.value.message
    assert hint in caught.value.message


async def test_every_kind_of_callable_can_be_middleware() -> None:
    names = ("Announcing", "an_object", "a_method", "a_partial", "unchanged", "needs_a_loop")
    values = await announced(tuple(f"{HERE}:{name}" for name in names))
    assert values == ["loop", "partial", "method", "object", "class"]


async def test_two_packages_with_middleware_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them was applied, depending on the order of installation."""
    points = [EntryPoint("audit", f"{HERE}:{name}", "ambient_runner.middleware") for name in ("inner", "outer")]
    monkeypatch.setattr("ambient_runner.server.middleware_loader.entry_points", lambda group: points)
    with pytest.raises(ConfigError) as caught:
        await announced(("audit",))
    assert [f"{HERE}:{name}" in caught.value.message for name in ("inner", "outer")] == [True, True]
    points[:] = [points[0], points[0]]
    assert await announced(("audit",)) == ["inner"]
