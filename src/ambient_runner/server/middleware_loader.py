"""Load the middleware that the setting `middleware` names: installed middleware by name, or `package.module:function`.

Installed middleware is an entry point of the group `ambient_runner.middleware`. It is applied only if the setting names it.
"""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from ambient_runner.bridges.import_string import import_object, suggest_target
from ambient_runner.bridges.registry import find_target
from ambient_runner.bridges.toolkit.callbacks import required_parameters
from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError
from ambient_runner.runs.middleware import describe_value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Middleware, Run, RunHandler

__all__ = ["MIDDLEWARE_GROUP", "load_middleware"]

MIDDLEWARE_GROUP = "ambient_runner.middleware"


def load_middleware(entries: Iterable[str]) -> list[Middleware]:
    """Return the middleware of these entries, in their order. Raises: ConfigError, naming the entry and what to do."""
    return [_load_entry(entry) for entry in entries]


def _load_entry(entry: str) -> Middleware:
    corrected = suggest_target(entry)
    if corrected != entry:
        raise ConfigError(f"The setting middleware names {entry}. Write {corrected}")
    try:
        found = import_object(entry if ":" in entry else _installed_target(entry))
    except ConfigError as error:
        raise ConfigError(f"The middleware {entry} cannot be loaded. {error.message}") from error
    problem = _find_problem(found)
    if problem:
        raise ConfigError(
            f"The middleware {entry} {problem}. Write a function that takes the next run handler and returns a run handler: "
            "def middleware(next_handler): ..."
        )
    return cast("Middleware", found)


def _installed_target(name: str) -> str:
    points = entry_points(group=MIDDLEWARE_GROUP)
    known = {point.name for point in points}
    if name not in known:
        raise ConfigError(
            f"No installed package has middleware of this name.{did_you_mean(name, list(known), 0.6)} "
            f"Installed: {', '.join(sorted(known)) or 'none'}. For your own, write package.module:function."
        )
    return find_target(points, name, "middleware named")


def _find_problem(found: object) -> str:
    """Return what keeps the object from being middleware; empty if it looks like middleware."""
    if not callable(found):
        return f"is not a function but {type(found).__name__}"
    if inspect.isasyncgenfunction(found) or inspect.iscoroutinefunction(found):
        return "is async: it is a run handler itself"
    required = [parameter.name for parameter in required_parameters(found)]
    if len(required) != 1:
        return f"takes {', '.join(required) or 'no argument'} instead of one argument"
    return _try_out(cast("Callable[[RunHandler], object]", found))


def _try_out(wrap: Callable[[RunHandler], object]) -> str:
    """Return what keeps the function from wrapping a run handler; empty if it returned something that can be one.

    A signature does not tell: `json.dumps` has the one of a middleware. An error that depends on where the function is called, such as
    one of asyncio outside an event loop, is left to the run.
    """
    try:
        wrapped = wrap(_no_events)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        return f"fails when it is called with a run handler ({type(error).__name__}: {error})"
    except RuntimeError:
        return ""
    if inspect.iscoroutine(wrapped):
        wrapped.close()
    return "" if callable(wrapped) else f"returns {describe_value(wrapped)} instead of a run handler"


async def _no_events(run: Run) -> AsyncGenerator[Event, None]:
    """Handle a run without an agent: it is never called with one."""
    del run
    for event in ():
        yield event
