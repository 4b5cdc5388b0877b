"""ADKBridge: a Google ADK agent, app or workflow behind this server. It owns ADK's services and makes one runner per run.

Our ledger is the truth for clients; ADK's session feeds the model. What a run is about is decided in `job.py`, how it goes in `run.py`,
what ADK says is translated in `translate.py`, and the protocol's rules are not here.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, remember
from ambient_runner.errors import BridgeError, ConfigError, RunnerError, needing
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.events import Cancelled, RunError, RunFinished
from ambient_runner.runs.run import run_if_any

with needing("google", install="ambient-runner[adk]"):
    from google.adk.agents import BaseAgent, LlmAgent
    from google.adk.apps import App
    from google.adk.runners import Runner
    from google.adk.workflow import Workflow

from ambient_runner.bridges.adk.config import HIDDEN, RunnerConfig
from ambient_runner.bridges.adk.event_hooks import Stages
from ambient_runner.bridges.adk.hooks import HandlerContext, info_of, watched
from ambient_runner.bridges.adk.run import AdkRun
from ambient_runner.bridges.adk.run_input import Asked, prepare
from ambient_runner.bridges.adk.session_sync import read_memory
from ambient_runner.bridges.adk.sessions import Place
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.projections.state import is_hidden

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    from ag_ui.core import RunAgentInput as AguiInput
    from google.adk.workflow import BaseNode

    from ambient_runner.bridges.adk.config import InputTransformer
    from ambient_runner.bridges.adk.instrumentation import RunPlugin
    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.protocol.events import Event, RunAgentInput, Terminal
    from ambient_runner.runs.run import Middleware, Run

__all__ = ["ADKAdapter", "ADKBridge"]


class ADKBridge(PlatformBridge):
    """Serves an agent (or an App, or a workflow) with ADK's own services. Without one it is a plain agent with ADK's default model.

    `client_tools_for` names the agents that may call the client's tools; every agent when it is not given. `locate` says where ADK keeps
    a thread; by default the app's name, the owner and the thread's id. Without a session service of yours, sessions are held in memory
    and rebuilt from the thread when they are gone.
    """

    hidden_state = HIDDEN

    def __init__(
        self,
        agent: BaseAgent | App | BaseNode | None = None,
        *,
        app_name: str | None = None,
        runner_config: RunnerConfig | None = None,
        handler_context: HandlerContext | None = None,
        convert_run_agent_input: InputTransformer | None = None,
        client_tools_for: Collection[str] | None = None,
        locate: Callable[[ThreadKey], Place] | None = None,
    ) -> None:
        self.config = runner_config or RunnerConfig()
        self.handlers = handler_context or HandlerContext()
        self.convert = convert_run_agent_input
        self.client_tools_for = client_tools_for
        self.owns_sessions = self.config.session_service is None
        self.config.sessions()  # a configuration that cannot work is refused here, not in the first run
        self._app = _app(agent or LlmAgent(name="assistant"), app_name, self.config)
        self.root = _root(self._app)
        self.structured = frozenset(_structured(self.root))
        self._locate = locate

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(session_persistence=not self.owns_sessions, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> ADKAdapter:
        return ADKAdapter(self, ctx)

    def middleware(self) -> Sequence[Middleware]:
        return watched(self.handlers, lambda run: info_of(run, self.place(run.thread).app))

    def place(self, thread: ThreadKey) -> Place:
        """Where ADK keeps this thread. Tenants do not share an app's state."""
        if self._locate is not None:
            return self._locate(thread)
        app = self._app.name if thread.tenant == "default" else f"{self._app.name}:{thread.tenant}"
        return Place(app=app, user=thread.owner, session=thread.id)

    def alone(self, thread_id: str) -> Place:
        """Where ADK keeps a thread that no server knows."""
        return Place(app=self._app.name, user="local", session=thread_id)

    def runner(self, place: Place, plugin: RunPlugin | None = None) -> Runner:
        """A runner for one run. It holds nothing of its own, so nobody has to close it."""
        plugins = [*([plugin] if plugin else []), *self._app.plugins]
        return Runner(
            app=self._app.model_copy(update={"plugins": plugins}),
            app_name=place.app,
            session_service=self.config.sessions(),
            artifact_service=self.config.artifacts(),
            memory_service=self.config.memories(),
            credential_service=self.config.credential_service,
        )

    async def forget(self, thread: ThreadKey) -> None:
        """Delete ADK's session of an erased thread, wherever it is stored."""
        await self.drop(self.place(thread))

    async def drop(self, place: Place) -> None:
        """Delete ADK's session there."""
        await self.config.sessions().delete_session(app_name=place.app, user_id=place.user, session_id=place.session)

    async def aclose(self) -> None:
        """Close toolsets and plugins, once: they are shared by all runs."""
        await self.runner(self.alone("")).close()


class ADKAdapter:
    """One thread's runs. It keeps ADK's session, if that is in memory, and a stop signal while a run goes on."""

    def __init__(self, bridge: ADKBridge, ctx: PlatformContext) -> None:
        self._bridge = bridge
        self._instructions = [ctx.system_prompt_append] if ctx.system_prompt_append else []
        self._memory: Any = None
        self._abort = asyncio.Event()
        self._place: Place | None = None

    async def run(self, input: AguiInput) -> AsyncGenerator[Event, None]:  # noqa: A002  the ADR's name
        """The run's events. Raises: BridgeError when ADK fails."""
        self._abort = asyncio.Event()
        run, posted = run_if_any(), input_from_agui(input)
        state = StateStore(posted.state, lambda key: is_hidden(key, HIDDEN))
        making = AdkRun(self._bridge, posted, state, self._where(run, posted), self._instructions)
        stages = Stages(self._bridge.handlers, state)
        ending: Terminal = RunError(message="")
        try:
            job = await prepare(self._asked(run, posted), making.sessions, state)
            for said in job.opening:
                yield said
            async with aclosing(making.events(job, stages, self._abort)) as events:
                async for said in events:
                    yield said
            ending = making.ending(job)
            for said in (*stages.troubles(), *making.translator.close(ending)):
                yield said
            for said in await making.last_state(stages):
                yield said
        except Exception as error:
            for said in making.translator.close():
                yield said
            if isinstance(error, RunnerError):
                raise
            raise BridgeError from error
        if isinstance(ending, RunFinished) and not isinstance(ending.outcome, Cancelled) and not stages.is_late:
            self._memory = await making.memory(job)
            if run is not None:
                yield remember(self._memory)
        yield ending

    async def interrupt(self) -> None:
        """Stop the running turn: ADK seals what there is."""
        self._abort.set()

    async def aclose(self) -> None:
        if self._place is not None and self._bridge.owns_sessions:
            await self._bridge.drop(self._place)

    def _where(self, run: Run | None, posted: RunAgentInput) -> Place:
        self._place = self._bridge.place(run.thread) if run else self._bridge.alone(posted.thread_id)
        return self._place

    def _asked(self, run: Run | None, posted: RunAgentInput) -> Asked:
        remembered = run.memory if run else self._memory
        return Asked(
            posted=posted,
            memory=read_memory(remembered),
            is_continuation=run.is_continuation if run else remembered is not None,
            accepted=run.new_ids if run else None,
            convert=self._bridge.convert,
        )


def _app(agent: BaseAgent | App | BaseNode, name: str | None, config: RunnerConfig) -> App:
    if isinstance(agent, App):
        renamed = agent.model_copy(update={"name": name}) if name else agent
        return renamed.model_copy(update={"plugins": [*agent.plugins, *config.plugins]})
    return App.model_construct(name=name or agent.name, root_agent=agent, plugins=list(config.plugins))


def _root(app: App) -> BaseNode:
    if app.root_agent is None:
        raise ConfigError("The ADK app has no root agent.")
    return app.root_agent


def _structured(root: BaseNode) -> set[str]:
    """The agents of the tree that answer with data."""
    found: dict[int, BaseNode] = {}
    ahead = [root]
    while ahead:
        node = ahead.pop()
        if id(node) not in found:
            found[id(node)] = node
            ahead += _below(node)
    return {node.name for node in found.values() if isinstance(node, LlmAgent) and node.output_schema is not None}


def _below(node: BaseNode) -> list[BaseNode]:
    match node:
        case BaseAgent():
            return list(node.sub_agents)
        case Workflow(graph=graph) if graph is not None:
            return list(graph.nodes)
        case _:
            return []
