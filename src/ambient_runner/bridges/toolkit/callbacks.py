"""Call the hooks that users pass to a bridge. Any callable works, and a hook that fails does not fail the run.

A hook may be a plain function, a coroutine function, a generator, an async generator, or a coroutine function that returns any of these.
`call_hook` and `stream_hook` call it. `try_hook` and `try_stream` also log its failure and return an event that names the hook to clients.
`required_parameters` and `accepts_argument` inspect its signature, and `instantiate_with` creates a class of hooks.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ambient_runner.protocol.reserved_events import PlatformEvent, to_plain_event
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from ambient_runner.protocol.events import Event

__all__ = [
    "accepts_argument",
    "call_hook",
    "hook_error",
    "instantiate_with",
    "required_parameters",
    "stream_hook",
    "try_hook",
    "try_stream",
]

T = TypeVar("T")

_COLLECTION_TYPES = (list, tuple, set, frozenset, deque, Iterator)
"""Return types of a hook that count as several values. Not every iterable: a mapping, a string and a pydantic model are one value each."""
_POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


async def call_hook(hook: Callable[..., Any], *args: Any) -> Any:
    """Return the hook's result, awaited if it is awaitable. Raises: whatever the hook raises."""
    result = hook(*args)
    return await result if inspect.isawaitable(result) else result


async def stream_hook(hook: Callable[..., Any], *args: Any) -> AsyncGenerator[Any, None]:
    """Yield the hook's values one by one; nothing for None. Raises: whatever the hook raises."""
    result = hook(*args)
    if inspect.isawaitable(result) and not isinstance(result, AsyncIterable):
        result = await result
    if isinstance(result, AsyncIterable):
        async with aclosing(_iterate_closing(cast("AsyncIterable[Any]", result))) as values:
            async for value in values:
                yield value
    elif isinstance(result, _COLLECTION_TYPES):
        for value in cast("Iterable[Any]", result):
            yield value
    elif result is not None:
        yield result


async def try_hook(name: str, hook: Callable[..., Any], *args: Any, tool: str | None = None) -> tuple[Any, list[Event]]:
    """Return the hook's result and no events, or None and the `ambient:hook_error` event if it failed. Never raises for the hook."""
    with isolate(f"running the hook {name}"):
        return await call_hook(hook, *args), []
    return None, [hook_error(name, tool)]


async def try_stream(
    name: str, hook: Callable[..., Any], *args: Any, tool: str | None = None
) -> AsyncGenerator[Any, None]:
    """Yield the hook's values, then the `ambient:hook_error` event if it failed. Never raises for the hook."""
    with isolate(f"running the hook {name}"):
        async with aclosing(stream_hook(hook, *args)) as values:
            async for value in values:
                yield to_plain_event(value)  # A hook is not our code, also if it calls our functions.
        return
    yield hook_error(name, tool)


def hook_error(hook: str, tool: str | None = None) -> PlatformEvent:
    """Return the `ambient:hook_error` event that names a failed hook and its tool. The cause is only in the log."""
    return PlatformEvent(name="ambient:hook_error", value={"hook": hook, "tool": tool})


def required_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the positional parameters without a default. A parameter with a default keeps its author's value."""
    parameters = _signature_parameters(function)
    return [each for each in parameters if each.default is each.empty and each.kind in _POSITIONAL_KINDS]


def accepts_argument(function: Callable[..., Any]) -> bool:
    """Return True if the function can be called with a positional argument."""
    return any(parameter.kind in _POSITIONAL_KINDS for parameter in _signature_parameters(function))


def instantiate_with(kind: Callable[..., T], name: str, value: Any) -> T:
    """Return an instance of a user's class. `value` is passed if the constructor takes an argument of this name or requires one.

    An optional parameter of another name keeps its author's value.
    """
    parameters = {each.name: each for each in _signature_parameters(kind)}
    if name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY:
        return kind(**{name: value})
    return kind(value) if required_parameters(kind) else kind()


def _signature_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some callables of C have no signature
        return []


async def _iterate_closing(values: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    """Yield the values and close their source when the caller stops early."""
    iterator = aiter(values)
    try:
        async for value in iterator:
            yield value
    finally:
        if hasattr(iterator, "aclose"):
            await cast("AsyncGenerator[Any, None]", iterator).aclose()
