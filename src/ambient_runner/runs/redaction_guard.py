"""Redaction fails closed: an error inside it writes nothing of the event, and ends the run.

The guard remembers the failure, and reports it at once: the error itself may be raised where middleware catches it, or where no agent's
event is handled at all.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.errors import RedactionFailed, RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

__all__ = ["RedactionGuard"]


class RedactionGuard:
    """Use it in `with`, around every call of the redactor. Raises RedactionFailed for any error inside.

    A RecursionError passes through: the value is too deep, and its caller redacts less of it.
    """

    __slots__ = ("_on_failure", "error")

    def __init__(self) -> None:
        self.error: RedactionFailed | None = None
        """The first failure."""
        self._on_failure: Callable[[], None] | None = None

    @contextmanager
    def report_to(self, on_failure: Callable[[], None]) -> Generator[None]:
        """Call `on_failure` for every failure within this block. It is forgotten afterwards: it refers to the run, and the run to it."""
        self._on_failure = on_failure
        try:
            yield
        finally:
            self._on_failure = None

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, RecursionError | RunnerError):
            return
        failure = RedactionFailed()
        failure.__cause__ = error
        self.error = self.error or failure
        if self._on_failure is not None:
            self._on_failure()
        raise failure from error

    def check(self) -> None:
        """Raise the failure if there was one. After it, nothing of the agent is written."""
        if self.error is not None:
            raise self.error
