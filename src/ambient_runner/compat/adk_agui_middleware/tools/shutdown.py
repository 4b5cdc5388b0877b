"""Functions to call when the app shuts down."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ShutdownHandler"]


class ShutdownHandler:
    """Calls functions at the end of the app's lifespan, each once. One instance per process. It installs no signal handler."""

    _instance: ClassVar[ShutdownHandler | None] = None
    _functions: list[Callable[[], Awaitable[None]]]

    def __new__(cls) -> Self:
        if not isinstance(cls._instance, cls):
            instance = super().__new__(cls)
            instance._functions = []
            cls._instance = instance
        return cls._instance

    def register_shutdown_function(self, shutdown_function: Callable[[], Awaitable[None]]) -> None:
        """Call this function at the end of the lifespan of an app with an SSEService."""
        self._functions.append(shutdown_function)

    async def close(self) -> None:
        """Call the functions that have not been called yet. One that fails is logged."""
        functions, self._functions = self._functions, []
        for function in functions:
            with isolate("running a shutdown function"):
                await call_hook(function)
