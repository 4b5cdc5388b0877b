"""`StrandsAgent`: a Strands agent that speaks AG-UI, with or without a server."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from strands import Agent
from strands.multiagent.base import MultiAgentBase

from ambient_runner.bridges.strands.adapter import Conversation
from ambient_runner.bridges.strands.agent_clone import check_template, clone
from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.bridges.strands.config_check import warn_of_misspelt
from ambient_runner.bridges.strands.multi_agent import OrchestraDriver
from ambient_runner.bridges.strands.single_agent import AgentDriver
from ambient_runner.bridges.toolkit.callbacks import call_hook, needed_arguments
from ambient_runner.errors import BridgeError, ConfigError
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.events import PROTOCOL_VERSION, MessagesSnapshot, RunError, RunStarted
from ambient_runner.runs.framing import SNAPSHOT_HERE
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.strands.driver import Driver
    from ambient_runner.protocol.events import Event

__all__ = ["StrandsAgent"]

logger = logging.getLogger(__name__)

Factory = Callable[..., Any]
"""Makes the agent of a thread: gets the first run's input if it needs an argument, gives an Agent, Graph or Swarm, at once or awaited."""


class StrandsAgent:
    """A Strands agent as an AG-UI agent.

    `agent` is a `strands.Agent`, from which every thread gets one of its own, or a function that makes the agent, graph or swarm of a
    thread. `run` works alone; behind a server use `create_strands_app`, or `StrandsBridge(this)`. Alone, at most `threads` agents are kept.
    Raises: ConfigError.
    """

    def __init__(
        self,
        agent: Agent | Factory,
        name: str = "strands",
        description: str = "",
        config: StrandsAgentConfig | None = None,
        *,
        threads: int = 256,
    ) -> None:
        self.name = name
        self.description = description
        self.config = config or StrandsAgentConfig()
        self._agent = _checked(agent)
        self._names_are_checked = False
        self._limit = threads
        self._threads: OrderedDict[str, Conversation] = OrderedDict()

    def conversation(self, *, instructions: str = "") -> Conversation:
        """A new thread of this agent; `instructions` are added to its system prompt."""

        async def make(first: RunAgentInput) -> Driver:
            driver = await self._driver(first, instructions)
            self._check_names(driver, first)
            return driver

        return Conversation(make, self.config)

    async def run(self, input_data: RunAgentInput) -> AsyncGenerator[Event, None]:
        """The events of one run, framed. A failure is a RUN_ERROR, and the log has the reason."""
        given = input_from_agui(input_data)
        told = Transcript(given.messages)
        yield RunStarted(thread_id=given.thread_id, run_id=given.run_id, protocol_version=PROTOCOL_VERSION)
        try:
            conversation = await self._conversation(given.thread_id)
            async with aclosing(conversation.run(input_data)) as events:
                async for event in events:
                    if event is SNAPSHOT_HERE:
                        yield MessagesSnapshot(messages=told.messages())
                        continue
                    told.apply(event)
                    yield event
        except BridgeError as error:
            logger.exception("A Strands run failed")
            yield RunError(message=error.message, code=error.code)

    async def interrupt(self, thread_id: str) -> None:
        """Stop the thread's run, if there is one."""
        if thread_id in self._threads:
            await self._threads[thread_id].interrupt()

    async def aclose(self) -> None:
        """Give up every thread."""
        for thread_id in list(self._threads):
            await self._drop(thread_id)

    async def _conversation(self, thread_id: str) -> Conversation:
        found = self._threads.get(thread_id) or self.conversation()
        self._threads[thread_id] = found
        self._threads.move_to_end(thread_id)
        idle = [one for one, conversation in self._threads.items() if not conversation.is_running and one != thread_id]
        for old in idle[: max(len(self._threads) - self._limit, 0)]:
            await self._drop(old)
        return found

    async def _drop(self, thread_id: str) -> None:
        with isolate("closing a Strands agent"):
            await self._threads.pop(thread_id).aclose()

    def _check_names(self, driver: Driver, first: RunAgentInput) -> None:
        """Say once what in the configuration is for no tool: before the first run nobody knows which tools there are."""
        if not self._names_are_checked:
            self._names_are_checked = True
            warn_of_misspelt(self.config, driver.all_tool_names, {tool.name for tool in first.tools or ()})

    async def _driver(self, first: RunAgentInput, instructions: str) -> Driver:
        made = await self._made(first, instructions)
        if isinstance(made, Agent):
            return AgentDriver(made)
        if isinstance(made, MultiAgentBase):
            return OrchestraDriver(made, lambda: self._made(first, instructions))
        raise ConfigError(f"The function made a {type(made).__name__}, which is no Strands agent, graph or swarm.")

    async def _made(self, first: RunAgentInput, instructions: str) -> Any:
        if isinstance(self._agent, Agent):
            provider = self.config.session_manager_provider
            session = await call_hook(provider, first) if provider else None
            return clone(self._agent, session_manager=session, instructions=instructions)
        return await call_hook(self._agent, *([first] if needed_arguments(self._agent) else []))


def _checked(agent: Any) -> Agent | Factory:
    if isinstance(agent, Agent):
        check_template(agent)
        return agent
    if isinstance(agent, MultiAgentBase):
        raise ConfigError("Give a function that builds the graph or swarm: every thread needs one of its own.")
    if not callable(agent):
        raise ConfigError(f"A Strands agent is needed, or a function that makes one, not {type(agent).__name__}.")
    return cast("Factory", agent)
