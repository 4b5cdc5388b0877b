"""`ambient threads`: whose threads are read, and that reading creates no store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner import Settings
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.ledger import open_ledger
from ambient_runner.protocol.events import RunAgentInput, UserMessage
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Actor, StartRequest
from ambient_runner.runs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STORE = "threads.db"


async def run_once(store: Path, actor: Actor, thread: str) -> None:
    """Run the demo agent once for an actor, as an app with `authorize=` would."""
    run_input = RunAgentInput(thread_id=thread, run_id="r", messages=[UserMessage(id="m", content="say hello")])
    settings = Settings(store=f"sqlite:///{store}")
    async with (
        open_ledger(settings.store) as ledger,
        Runner(ledger, {"demo": AgentHost("demo", DemoBridge())}, settings) as runner,
    ):
        started = await runner.start(StartRequest(agent="demo", actor=actor, input=run_input))
        async for _ in follow_run(ledger, started):
            pass


def test_reading_threads_and_the_doctor_create_no_store(ambient: Callable[..., Any], tmp_path: Path) -> None:
    for command in (["threads", "list"], ["threads", "show", "t1"], ["threads", "export", "t1"], ["doctor"]):
        ambient(*command)
    assert list(tmp_path.iterdir()) == []


def test_threads_of_other_owners_are_listed_and_shown_on_request(ambient: Callable[..., Any], tmp_path: Path) -> None:
    anyio.run(run_once, tmp_path / STORE, Actor(owner="alice"), "t1")
    anyio.run(run_once, tmp_path / STORE, Actor(tenant="acme", owner="bob"), "t2")
    ambient("run", "demo", "say hi", "--thread", "t3")

    def listed(*options: str) -> list[str]:
        return [line.split()[0] for line in ambient("threads", "list", *options)[1].splitlines()[1:]]

    assert listed() == ["t3"]
    assert listed("--owner", "alice") == ["t1"]
    assert listed("--all") == ["t3", "t2", "t1"]
    assert ambient("threads", "show", "t1", "--owner", "alice")[:2] == (0, "user: say hello\nassistant: hello\n")


def test_a_thread_that_is_not_found_names_the_owner_that_was_searched(
    ambient: Callable[..., Any], tmp_path: Path
) -> None:
    anyio.run(run_once, tmp_path / STORE, Actor(owner="alice"), "t1")
    code, _, err = ambient("threads", "show", "t1")
    assert (code, "local" in err, "--owner" in err) == (1, True, True)
