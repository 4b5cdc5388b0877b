"""The results of the two measurements, and their tables."""

from __future__ import annotations

from dataclasses import dataclass

from tests.tables import markdown_table

__all__ = ["JoinResult", "KillResult", "join_table", "kill_table"]


@dataclass(frozen=True, kw_only=True)
class JoinResult:
    """Clients that joined a live run. `problem` says why there is no measurement."""

    server: str
    pace: float = 0.0
    """Seconds that a client takes for each event."""
    clients: int = 0
    clients_with_loss: int = 0
    lost: int = 0
    most: int = 0
    """Lost by one client, at most."""
    twice: int = 0
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class KillResult:
    """A thread after the kill -9 of its server."""

    server: str
    seen: int = 0
    """Events that the client had received."""
    kept: int = 0
    """Of these, events that a client gets again after the restart."""
    ended: str = ""
    """The end of the run, after the restart."""
    usable_after: float = 0.0
    """Seconds from the restarted server's first answer to the start of the next run."""
    problem: str = ""


def join_table(results: list[JoinResult]) -> str:
    header = ("server", "a client takes", "clients with losses", "events lost", "most by one client", "twice")
    return markdown_table(header, [_join_row(result) for result in results])


def _join_row(result: JoinResult) -> tuple[str, ...]:
    if result.problem:
        return (result.server, result.problem, "", "", "", "")
    pace = f"{1000 * result.pace:g} ms per event" if result.pace else "no time"
    counts = (f"{result.clients_with_loss} of {result.clients}", result.lost, result.most, result.twice)
    return (result.server, pace, *(str(count) for count in counts))


def kill_table(results: list[KillResult]) -> str:
    header = ("server", "events seen", "of these kept", "the run ended", "next run accepted after")
    return markdown_table(header, [_kill_row(result) for result in results])


def _kill_row(result: KillResult) -> tuple[str, ...]:
    if result.problem:
        return (result.server, result.problem, "", "", "")
    return (result.server, str(result.seen), str(result.kept), f"`{result.ended}`", f"{result.usable_after:.2f} s")
