"""The secrets of one server, for each of its threads; and the check of what clients send for them.

Clients may be guessing: what they send is stored without secrets, and no answer depends on it (`client_secrets.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.lenient import malformed_id
from ambient_runner.runs.client_secrets import report_client_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.client_secrets import SecretSource

__all__ = ["ServerSecrets"]

_T = TypeVar("_T")


class ServerSecrets:
    """The secrets of a server, and what the owner of a thread was granted lately."""

    def __init__(self, secrets: Secrets, granted_values: Callable[[ThreadKey], Iterable[str]] = lambda key: ()) -> None:
        """`granted_values` returns the values that the thread's owner was granted lately."""
        self._secrets = secrets
        self._granted_values = granted_values

    def without_patterns(self) -> Secrets:
        """Return the server's own values: what a client sends may contain what only looks like a secret."""
        return self._secrets.without_patterns()

    def for_thread(self, key: ThreadKey) -> Secrets:
        """Return a copy of the server's secrets, with what the thread's owner was granted lately."""
        secrets = self._secrets.copy_for_run()
        secrets.add(self._granted_values(key))
        return secrets

    def new_redactor(self, key: ThreadKey) -> Redactor:
        """Return a new redactor of the secrets of this thread."""
        return Redactor(self.for_thread(key))

    def new_value_redactor(self, key: ThreadKey) -> Redactor:
        """Return a new redactor of the secrets of this thread, without patterns: a file may contain what only looks like a secret."""
        return Redactor(self.for_thread(key).without_patterns())

    def redact_client_value(self, key: ThreadKey, value: _T, source: SecretSource) -> _T:
        """Return what a client sent without secrets. A secret of the server in it is counted and logged."""
        redactor = self.new_redactor(key)
        clean = redactor.redact_value(value)
        if redactor.counts:
            self.report_server_secret(key, value, source)
        return clean

    def report_server_secret(self, key: ThreadKey, value: Any, source: SecretSource) -> None:
        """Count and log it if the value contains a secret of this server, not only one of its owner's own."""
        redactor = Redactor(self.without_patterns())
        redactor.redact_value(value)
        if redactor.counts:
            report_client_secret(source, key)

    def check_thread_id(self, key: ThreadKey) -> None:
        """Refuse a thread id that contains a secret, as any malformed one. Raises: InvalidInput."""
        self._check_id(key, "threadId", key.id, self.for_thread(key))

    def check_ids(self, key: ThreadKey, run_input: RunAgentInput, secrets: Secrets) -> None:
        """Check the ids of a run input, which are stored and sent as they are. Raises: InvalidInput."""
        ids = {"threadId": key.id, "runId": run_input.run_id, "parentRunId": run_input.parent_run_id or ""}
        if not secrets.contains_secret(*ids.values()):
            return  # Nearly always: one search instead of three.
        for path, id_ in ids.items():
            self._check_id(key, path, id_, secrets)

    def _check_id(self, key: ThreadKey, path: str, id_: str, secrets: Secrets) -> None:
        if secrets.contains_secret(id_):
            self.report_server_secret(key, id_, "id")
            raise malformed_id(path)
