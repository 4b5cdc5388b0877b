"""Whose a tool is, and the declarations of an agent's own."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.bridges.toolkit.tools import declare_mcp_tool, declare_tool
from ambient_runner.protocol.dropped_events import dropped_tool_names
from ambient_runner.protocol.events import Custom, Tool

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


def test_the_names_that_the_agent_has_are_reported_once() -> None:
    tools = Toolbox([PAINT, LOOK, LOOK], native={"look"})
    (event,) = tools.dropped_events()
    assert (event.name, event.value) == (
        "ambient:dropped",
        {"type": "TOOLS", "reason": "name_taken", "names": ["look"]},
    )
    assert dropped_tool_names(event) == ["look"]
    assert Toolbox([PAINT]).dropped_events() == []


def test_names_that_the_framework_regards_as_the_same_are_the_agents() -> None:
    variants = [Tool(name=name, description="") for name in ("look-up", "look_up", "lookup")]
    tools = Toolbox(variants, native={"look-up"}, normalize=lambda name: name.replace("-", "_"))
    assert (tools.taken_names, list(tools.client_tools)) == (("look-up", "look_up"), ["lookup"])


@pytest.mark.parametrize("value", [None, {"type": "TOOLS"}, {"type": "TOOLS", "names": "x"}, {"names": ["x"]}, [1]])
def test_any_other_event_names_no_tools(value: Any) -> None:
    assert dropped_tool_names(Custom(name="ambient:dropped", value=value)) == []
    assert dropped_tool_names(Custom(name="mine", value={"type": "TOOLS", "names": ["x"]})) == []


def test_a_declaration_has_a_schema_of_an_object_whatever_the_framework_has() -> None:
    empty = {"type": "object", "properties": {}}
    assert [declare_tool("look", None, schema).parameters for schema in (None, "text", {"type": "string"})] == [
        empty
    ] * 3
    typed = {"type": "object", "properties": {"a": {"type": "string", "default": object()}}}
    assert declare_tool("look", "Look.", typed).parameters["properties"]["a"]["default"] == "<object>"


def test_a_tool_of_an_mcp_server_names_the_server_if_it_is_known() -> None:
    assert declare_mcp_tool("look").metadata == {"source": "mcp"}
    assert declare_mcp_tool("look", server="far").metadata == {"source": "mcp", "mcpServer": "far"}
