"""A server of Strands agents on the real SDK with scripted models, for tests that talk to it over sockets. Run by uvicorn.

The agents of `tests/bridges/strands/cases.py` by name, `hanging` and `hanging_graph`. `held.py` holds their runs.
"""

from __future__ import annotations

from typing import Any

import anyio
from fastapi import FastAPI
from strands.multiagent import GraphBuilder

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.strands.bridge import StrandsBridge
from tests.bridges.strands.cases import EVERYWHERE, SOMEWHERE
from tests.bridges.strands.scripted import ScriptedModel, Turn, says
from tests.bridges.strands.world import agent_of
from tests.e2e.held import add_doors, holding


def hangs(messages: list[Any]) -> Turn:
    """Say "A " and no more, or all of it to "again"."""
    again = "again" in messages[-1]["content"][-1].get("text", "")
    return says("ok") if again else [*says("A ")[:3], anyio.Event()]


def hanging_graph() -> Any:
    """Two agents side by side that do so."""
    builder = GraphBuilder()
    for name in ("a", "b"):
        builder.add_node(agent_of(hanging, name=name), name)
        builder.set_entry_point(name)
    builder.set_execution_timeout(60)
    return builder.build()


models: list[ScriptedModel] = []
agents: dict[str, StrandsBridge] = {}
for name, case in (EVERYWHERE | SOMEWHERE).items():
    played = case.models()
    models += played.values()
    agents[name] = StrandsBridge(case.build(played), case.config)
hanging = ScriptedModel(script=hangs)
models.append(hanging)
agents["hanging"] = StrandsBridge(agent_of(hanging))
agents["hanging_graph"] = StrandsBridge(hanging_graph)

app = FastAPI()
service = add_ambient_endpoints(app, agents=agents, middleware=[holding])
add_doors(app, service, sdk="strands", playing=lambda: sum(len(model.saw) - model.closed for model in models))
