"""ADKBridge: serves a Google ADK agent, app or workflow. It owns ADK's services and creates one runner per run.

The ledger is the source of truth for clients; ADK's session feeds the model. `adapter.py` serves one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge
from ambient_runner.errors import ConfigError, optional_dependency

with optional_dependency("google.adk", "google.genai", install="ambient-runner[adk]"):
    from google.adk.agents import BaseAgent, LlmAgent
    from google.adk.apps import App
    from google.adk.runners import Runner
    from google.adk.workflow import Workflow

from ambient_runner.bridges.adk.adapter import ADKAdapter
from ambient_runner.bridges.adk.client_toolset import client_toolsets
from ambient_runner.bridges.adk.config import HIDDEN, RunnerConfig
from ambient_runner.bridges.adk.hooks import HandlerContext, hook_middleware, input_info
from ambient_runner.bridges.adk.interrupts import INTERRUPT_CALLS
from ambient_runner.bridges.adk.sessions import SessionLocation
from ambient_runner.bridges.adk.tools import list_tools, own_tool_names
from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping, predictions_by_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from google.adk.agents import RunConfig
    from google.adk.workflow import BaseNode

    from ambient_runner.bridges.adk.config import InputTransformer
    from ambient_runner.bridges.adk.instrumentation import RunPlugin
    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import RunAgentInput, Tool
    from ambient_runner.runs.run import Middleware, Run

__all__ = ["ADKBridge"]


class ADKBridge(PlatformBridge):
    """Serves an agent, an App or a workflow with ADK's own services. The default is an agent with ADK's default model.

    `client_tools_for` names the agents that may call the client's tools; by default those with a `ClientToolset`, or every agent
    if none has one. `predict_state` lists the tool arguments that clients show as state while the model streams them. With
    `waits_for_long_running_tools`, the client answers every call of a long-running tool, whatever the tool's function returns; by default
    only if that returns nothing. `locate` maps a thread to its ADK session; by default the app's name, the owner and the thread id. Without
    a `session_service`, sessions are held in memory and rebuilt from the thread when they are missing.
    """

    hidden_state = HIDDEN

    restates_messages = False
    corrects_history = True
    settings_types = {"runner_config": RunnerConfig}

    interrupt_calls = INTERRUPT_CALLS
    """Names of ADK's own calls that clients get as interrupts; they get the others as calls of client tools."""

    def __init__(
        self,
        agent: BaseAgent | App | BaseNode | None = None,
        *,
        app_name: str | None = None,
        runner_config: RunnerConfig | None = None,
        handler_context: HandlerContext | None = None,
        convert_run_agent_input: InputTransformer | None = None,
        client_tools_for: Collection[str] | None = None,
        predict_state: Sequence[PredictStateMapping] = (),
        waits_for_long_running_tools: bool = False,
        locate: Callable[[ThreadKey], SessionLocation] | None = None,
    ) -> None:
        self.config = runner_config or RunnerConfig()
        self.handlers = handler_context or HandlerContext()
        self.convert = convert_run_agent_input
        self.owns_sessions = self.config.session_service is None
        self.config.get_session_service()  # raises ConfigError now instead of in the first run
        self._app = _build_app(agent or LlmAgent(name="assistant"), app_name, self.config)
        self.root = _root_node(self._app)
        self._nodes = nodes = _all_nodes(self.root)
        self.structured_agents = frozenset(_structured_agent_names(nodes))
        self.own_tool_names = own_tool_names(nodes)
        self.client_toolsets = client_toolsets(nodes)
        self.client_tools_for = (() if self.client_toolsets else None) if client_tools_for is None else client_tools_for
        self.predictions = predictions_by_tool(predict_state)
        self.waits_for_long_running_tools = waits_for_long_running_tools
        self._locate = locate

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(session_persistence=not self.owns_sessions, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> ADKAdapter:
        return ADKAdapter(self, ctx)

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        """Return the declarations of the tools of all agents of the tree, with those of their toolsets."""
        return await list_tools(self._nodes)

    def middleware(self) -> Sequence[Middleware]:
        return hook_middleware(self.handlers, lambda run: input_info(run, self.session_location(run.thread).app))

    def session_location(self, thread: ThreadKey) -> SessionLocation:
        """Return the location of the thread's ADK session. Tenants do not share an app's state."""
        if self._locate is not None:
            return self._locate(thread)
        app = self._app.name if thread.tenant == "default" else f"{self._app.name}:{thread.tenant}"
        return SessionLocation(app=app, user=thread.owner, session=thread.id)

    def standalone_location(self, thread_id: str) -> SessionLocation:
        """Return the session location of a thread that runs without a server."""
        return SessionLocation(app=self._app.name, user="local", session=thread_id)

    def run_location(self, run: Run | None, run_input: RunAgentInput) -> SessionLocation:
        """Return the location of the session of a run; `run` is None without a server."""
        return self.standalone_location(run_input.thread_id) if run is None else self.session_location(run.thread)

    def run_config_for(self, run_input: RunAgentInput) -> RunConfig:
        """Return ADK's configuration of a run."""
        return self.config.get_run_config()

    def server_state(self, run_input: RunAgentInput) -> Mapping[str, Any]:
        """Return state keys that the server sets for a run. Unlike the client, it may set hidden ones."""
        return {}

    def create_runner(self, location: SessionLocation, plugin: RunPlugin | None = None) -> Runner:
        """Return a runner for one run. It owns no resources, so it needs no close."""
        plugins = [*([plugin] if plugin else []), *self._app.plugins]
        return Runner(
            app=self._app.model_copy(update={"plugins": plugins}),
            app_name=location.app,
            session_service=self.config.get_session_service(),
            artifact_service=self.config.get_artifact_service(),
            memory_service=self.config.get_memory_service(),
            credential_service=self.config.credential_service,
        )

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Delete the ADK session of an erased thread from the session service."""
        await self.delete_session(self.session_location(thread))

    async def delete_session(self, location: SessionLocation) -> None:
        """Delete the ADK session at this location."""
        await self.config.get_session_service().delete_session(
            app_name=location.app, user_id=location.user, session_id=location.session
        )

    async def aclose(self) -> None:
        """Close the toolsets and plugins that all runs share."""
        await self.create_runner(self.standalone_location("")).close()


def _build_app(agent: BaseAgent | App | BaseNode, name: str | None, config: RunnerConfig) -> App:
    if isinstance(agent, App):
        renamed = agent.model_copy(update={"name": name}) if name else agent
        return renamed.model_copy(update={"plugins": [*agent.plugins, *(config.plugins or ())]})
    return App.model_construct(name=name or agent.name, root_agent=agent, plugins=list(config.plugins or ()))


def _root_node(app: App) -> BaseNode:
    if app.root_agent is None:
        raise ConfigError("The ADK app has no root agent.")
    return app.root_agent


def _all_nodes(root: BaseNode) -> list[BaseNode]:
    """Return the nodes of the tree or graph, each once."""
    visited: dict[int, BaseNode] = {}
    queue = [root]
    while queue:
        node = queue.pop()
        if id(node) not in visited:
            visited[id(node)] = node
            queue += _child_nodes(node)
    return list(visited.values())


def _structured_agent_names(nodes: Iterable[BaseNode]) -> set[str]:
    """Return the names of the agents that have an output schema."""
    return {node.name for node in nodes if isinstance(node, LlmAgent) and node.output_schema is not None}


def _child_nodes(node: BaseNode) -> list[BaseNode]:
    match node:
        case BaseAgent():
            return list(node.sub_agents)
        case Workflow(graph=graph) if graph is not None:
            return list(graph.nodes)
        case _:
            return []
