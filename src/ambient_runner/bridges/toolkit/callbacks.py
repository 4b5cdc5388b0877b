"""Hooks a user hands to a bridge: any callable will do, and one that fails harms nothing but itself.

A hook may be a plain function, a coroutine function, a generator, an async generator, or a coroutine function that gives any of these:
people write all of them, and there is one right thing to do with each. `call_hook` and `stream_hook` run one; `try_hook` and
`try_stream` also keep its failure from the run, log it, and tell clients which hook it was. `needed_arguments` and `takes_argument` say
what one can be called with.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.events import Custom
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from ambient_runner.protocol.events import Event

__all__ = [
    "call_hook",
    "hook_error",
    "needed_arguments",
    "stream_hook",
    "takes_argument",
    "try_hook",
    "try_stream",
]

_MANY = (list, tuple, set, frozenset, deque, Iterator)
"""What a hook gives several values in. Not every iterable: a mapping, a string and a pydantic model are one value each."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


async def call_hook(hook: Callable[..., Any], *args: Any) -> Any:
    """What the hook gives, awaited if it has to be. Raises: whatever the hook raises."""
    given = hook(*args)
    return await given if inspect.isawaitable(given) else given


async def stream_hook(hook: Callable[..., Any], *args: Any) -> AsyncGenerator[Any, None]:
    """Everything the hook gives, one by one; nothing for None. Raises: whatever the hook raises."""
    given = hook(*args)
    if inspect.isawaitable(given) and not isinstance(given, AsyncIterable):
        given = await given
    if isinstance(given, AsyncIterable):
        async with aclosing(_iterated(cast("AsyncIterable[Any]", given))) as values:
            async for value in values:
                yield value
    elif isinstance(given, _MANY):
        for value in cast("Iterable[Any]", given):
            yield value
    elif given is not None:
        yield given


async def try_hook(name: str, hook: Callable[..., Any], *args: Any, tool: str | None = None) -> tuple[Any, list[Event]]:
    """What the hook gives and nothing to say, or None and the event that says it failed."""
    with isolate(f"running the hook {name}"):
        return await call_hook(hook, *args), []
    return None, [hook_error(name, tool)]


async def try_stream(
    name: str, hook: Callable[..., Any], *args: Any, tool: str | None = None
) -> AsyncGenerator[Any, None]:
    """Everything the hook gives, and the event that says so if it failed."""
    with isolate(f"running the hook {name}"):
        async with aclosing(stream_hook(hook, *args)) as values:
            async for value in values:
                yield value
        return
    yield hook_error(name, tool)


def hook_error(hook: str, tool: str | None = None) -> Custom:
    """What clients are told of a hook that failed: which one, for which tool. Why is in the log."""
    return Custom(name="ambient:hook_error", value={"hook": hook, "tool": tool})


def needed_arguments(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The arguments a call has to give. One with a default has its author's value: it is not for what we would give."""
    return [one for one in _parameters(function) if one.default is one.empty and one.kind in _POSITIONAL]


def takes_argument(function: Callable[..., Any]) -> bool:
    """Whether a call may give an argument."""
    return any(one.kind in _POSITIONAL for one in _parameters(function))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some callables of C have no signature
        return []


async def _iterated(values: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    """The values. Their source is closed when no more are wanted."""
    iterator = aiter(values)
    try:
        async for value in iterator:
            yield value
    finally:
        if hasattr(iterator, "aclose"):
            await cast("AsyncGenerator[Any, None]", iterator).aclose()
