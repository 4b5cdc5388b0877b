"""Whose a tool is."""

from __future__ import annotations

from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.protocol.events import Tool

PAINT, LOOK = Tool(name="paint", description=""), Tool(name="look", description="theirs")


def test_a_tool_the_agent_has_itself_is_not_the_clients() -> None:
    tools = Toolbox([PAINT, LOOK], native={"look"})
    assert tools.client_tools == {"paint": PAINT}
    assert (tools.is_client_tool("paint"), tools.is_client_tool("look"), tools.is_client_tool("other")) == (
        True,
        False,
        False,
    )


def test_of_a_tool_declared_twice_the_last_one_counts() -> None:
    again = Tool(name="paint", description="better")
    assert Toolbox([PAINT, again]).client_tools == {"paint": again}
