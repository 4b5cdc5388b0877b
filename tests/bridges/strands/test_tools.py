"""The tools of a Strands agent, as clients can list them. No agent runs."""

from __future__ import annotations

from typing import Any

from ag_ui.core import RunAgentInput
from strands import tool
from strands.multiagent import GraphBuilder, Swarm

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.protocol.events import Tool
from tests.bridges.strands.scripted import ScriptedModel
from tests.bridges.strands.world import agent_of


@tool
def look(city: str) -> str:
    """Look at a city."""
    raise NotImplementedError


@tool
def walk() -> str:
    """Walk on."""
    raise NotImplementedError


def looker(**options: Any) -> Any:
    return agent_of(ScriptedModel(), look, **options)


async def listed(agent: Any) -> list[Tool]:
    return await StrandsBridge(agent).list_tools(PlatformContext())


async def names_of(agent: Any) -> list[str]:
    return [tool.name for tool in await listed(agent)]


async def test_the_tools_of_the_registry_are_listed_with_their_schemas() -> None:
    (found,) = await listed(looker())
    assert (found.name, found.description) == ("look", "Look at a city.")
    assert (found.parameters["properties"].keys(), found.parameters["required"]) == ({"city"}, ["city"])


async def test_the_tools_of_all_agents_of_a_graph_or_swarm_are_listed() -> None:
    graph = GraphBuilder()
    graph.add_node(looker(), "a")
    graph.add_node(agent_of(ScriptedModel(), walk), "b")
    graph.set_max_node_executions(2)
    assert await names_of(graph.build()) == ["look", "walk"]
    swarm = Swarm([looker(name="a"), agent_of(ScriptedModel(), walk, name="b")])
    assert {"look", "walk"} <= set(await names_of(swarm))


async def test_a_factory_is_called_only_if_it_needs_no_run() -> None:
    def create_for_input(run_input: RunAgentInput) -> Any:
        raise NotImplementedError

    assert await names_of(looker) == ["look"]
    assert await names_of(create_for_input) == []
