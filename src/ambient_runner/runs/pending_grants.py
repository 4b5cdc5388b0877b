"""The wait for a run's credentials, before its first entry is written: what is granted is redacted from the run's own input too."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from ambient_runner.errors import LedgerError
from ambient_runner.runs.monitor import start_monitor
from ambient_runner.runs.run import as_current_run

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Writer
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.runs.run import GrantCredentials, Run

__all__ = ["PendingGrants"]


class PendingGrants:
    """The runs of one server that wait for their credentials. Each has its thread's lease and no entry yet."""

    def __init__(self, grant: GrantCredentials | None) -> None:
        self._grant = grant
        self._scopes: dict[ThreadKey, anyio.CancelScope] = {}

    @property
    def has_source(self) -> bool:
        """True if runs get credentials, and may have to wait for them."""
        return self._grant is not None

    async def wait_for_grant(self, run: Run, writer: Writer) -> None:
        """Wait until the run has its credentials. Returns without them once it is asked to stop, or all waits are cancelled."""
        if self._grant is None:
            return
        async with anyio.create_task_group() as tasks:
            self._scopes[run.thread] = tasks.cancel_scope

            async def cancel_on_stop() -> None:
                with suppress(LedgerError):  # Raised where the run is written.
                    await writer.wait_for_stop()
                tasks.cancel_scope.cancel()

            monitoring = start_monitor(tasks, cancel_on_stop)
            try:
                with as_current_run(run):
                    await self._grant(run)
            finally:
                del self._scopes[run.thread]
            monitoring.cancel()

    def cancel_all(self) -> None:
        """End every wait now."""
        for scope in self._scopes.values():
            scope.cancel()
