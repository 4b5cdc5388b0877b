"""Install the real agents, try each against the scripted model, and print a table of what passed and the seconds.

    python -m tests.agents                          # all four
    python -m tests.agents --agents codex,gemini    # some of them
    python -m tests.agents --short                  # one agent, for every change

The agents run in their sandbox where bubblewrap works. The exit code is 1 if a scenario failed, and 0 if npm cannot install any agent.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from tests.agents.model import scripted_model
from tests.agents.packages import AGENTS, DIRECTORY, NotInstalled, install_agent
from tests.agents.sandbox import NotEnforced, Outside, try_to_escape, watched_outside
from tests.agents.scenarios import SCENARIOS, Scenario, Try
from tests.agents.script import build_script
from tests.agents.world import AgentWorld, Conversation
from tests.tables import markdown_table

SHORT = ("codex",)
"""The agent that starts fastest."""


@dataclass
class Results:
    """What one agent did: a word or the seconds for each scenario."""

    agent: str
    cells: dict[str, str] = field(default_factory=dict[str, str])
    has_failed: bool = False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="", help=f"some of {','.join(AGENTS)}")
    parser.add_argument("--short", action="store_true", help=f"only {', '.join(SHORT)}")
    parser.add_argument("--scenario", default="", help="only scenarios with these words in their names")
    parser.add_argument("--no-sandbox", action="store_true", help="without bubblewrap, as on a machine that has none")
    parser.add_argument("--keep", action="store_true", help="keep the directories of the servers")
    options = parser.parse_args()
    agents = options.agents.split(",") if options.agents else SHORT if options.short else AGENTS
    results = [result for agent in agents if (result := _try_agent(agent, options)) is not None]
    if not results:
        print("No agent could be installed, so none was tried.")
        return 0
    rows = [[name, *(result.cells.get(name, "") for result in results)] for name in results[0].cells]
    print(markdown_table(["scenario, seconds", *(result.agent for result in results)], rows))
    return 1 if any(result.has_failed for result in results) else 0


def _try_agent(agent: str, options: argparse.Namespace) -> Results | None:
    """Return the results of one agent; None where it cannot be installed."""
    try:
        package = install_agent(agent)
    except NotInstalled as error:
        print(f"{agent} cannot be installed here: {error}")
        return None
    results = Results(agent)
    results.cells["install"] = f"{package.seconds:.1f}" if package.seconds else "there"
    directory = Path(tempfile.mkdtemp(prefix=f"{agent}-", dir=DIRECTORY))
    try:
        with watched_outside(directory / "outside") as outside:
            script = build_script({"otter escapes": outside.escape_command()})
            with scripted_model(script) as model:
                world = AgentWorld(agent, package, model, directory / "server")
                world.options = {"sandbox": "off"} if options.no_sandbox else {}
                anyio.run(_try_scenarios, world, _chosen(options.scenario, outside), results)
    finally:
        if options.keep:
            print(f"{agent}: see {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return results


def _chosen(words: str, outside: Outside) -> dict[str, Scenario]:
    async def escape(this: Try) -> None:
        await try_to_escape(this, outside)

    every = {**SCENARIOS, "nothing outside is reached": escape}
    return {name: scenario for name, scenario in every.items() if words in name}


async def _try_scenarios(world: AgentWorld, scenarios: dict[str, Scenario], results: Results) -> None:
    for number, (name, scenario) in enumerate(scenarios.items()):
        began = time.monotonic()
        try:
            await _try_scenario(world, scenario, f"thread-{number}")
            results.cells[name] = f"{time.monotonic() - began:.1f}"
        except NotEnforced as error:
            results.cells[name] = f"not enforced: {error}"
        except (AssertionError, OSError, RuntimeError) as error:
            results.cells[name] = "FAILED"
            results.has_failed = True
            print("".join(traceback.format_exception(error, limit=-3)), file=sys.stderr)
        print(f"{world.agent}: {name}: {results.cells[name]}", flush=True)


async def _try_scenario(world: AgentWorld, scenario: Scenario, thread: str) -> None:
    """Run a scenario with a server of its own, whose last lines are part of an error."""
    with world.serve() as server:
        try:
            await scenario(Try(world, server, Conversation(server.url, thread)))
        except (AssertionError, OSError) as error:
            error.add_note(_last_lines(server.output))
            raise


def _last_lines(output: str) -> str:
    return "\n".join(output.splitlines()[-25:])


if __name__ == "__main__":
    raise SystemExit(main())
