"""One thread of a Strands agent: an adapter. It tells what the agent does and keeps what the next run needs.

`drivers.py` knows how one agent is given its history and its prompt, `orchestra.py` how a graph or a swarm is; this knows what a run is.
"""

from __future__ import annotations

import dataclasses
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import remember
from ambient_runner.bridges.strands.config import normalize_predict_state
from ambient_runner.bridges.strands.driver import Ask, natives_of
from ambient_runner.bridges.strands.errors import ThreadIsBusy, failure
from ambient_runner.bridges.strands.instrumentation import callable_tools
from ambient_runner.bridges.strands.messages import text_of
from ambient_runner.bridges.strands.outcome import finished, stop_signals
from ambient_runner.bridges.strands.tool_behaviors import Behaviors
from ambient_runner.bridges.strands.translate import Answered, Called, Plan, Shared, Translator
from ambient_runner.bridges.toolkit.callbacks import try_hook
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.bridges.toolkit.turns import AssistantTurn, UserTurn, calls_of, incoming, turns
from ambient_runner.errors import NothingToAnswer
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.events import RunError, TextPart, ToolMessage
from ambient_runner.runs.framing import SNAPSHOT_HERE
from ambient_runner.runs.run import run_if_any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.strands.driver import Driver
    from ambient_runner.bridges.toolkit.turns import Turn
    from ambient_runner.protocol.events import Content, Event, RunAgentInput

__all__ = ["Conversation"]

_MARKS = frozenset({Called, Answered, Shared})


class Conversation:
    """The adapter of one thread. `make` gives the driver of its agent: for the first run, and anew after a run that was cut."""

    def __init__(self, make: Callable[[AguiInput], Awaitable[Driver]], config: StrandsAgentConfig) -> None:
        self._make = make
        self._config = config
        self._idle: Driver | None = None
        self._running: Driver | None = None
        self._telling: Telling | None = None
        self._memory: dict[str, Any] = {}

    @property
    def is_running(self) -> bool:
        return self._telling is not None

    async def run(self, input: AguiInput) -> AsyncGenerator[Event, None]:  # noqa: A002  the ADR's name
        """The events of one run, with a RUN_FINISHED at the end and no other frame. Raises: BridgeError."""
        telling = self._begun(input)
        try:
            self._running = driver = self._idle or await self._make(input)
            driver.is_cancelled = False
            self._idle = None  # Should this run be cut, nobody goes on with its agent.
            async for event in telling.beginning(driver, self._remembered()):
                yield event
            async with natives_of(driver, telling.ask) as natives:
                async for native in natives:
                    for said in telling.feed(native):
                        if type(said) not in _MARKS:
                            yield said
                            continue
                        async with aclosing(telling.expand(said)) as events:
                            async for event in events:
                                yield event
            if self._running is driver:
                self._running = None  # Nothing is left to stop, and the SDK would stop the next run instead.
            for event in telling.end():
                yield event
            self._idle = driver
        except Exception as error:
            known = failure(error, force_stopped=telling.force_stopped)
            for event in telling.composer.close(RunError(message=known.message)):
                yield event
            if known is error:
                raise
            raise known from error
        finally:
            self._memory = self._memory if telling.kept is None else telling.kept
            if self._telling is telling:
                self._telling = self._running = None

    async def interrupt(self) -> None:
        """Ask the agent to stop: between two pieces of its answer, or before its next step."""
        if self._running is not None:
            self._running.cancel()

    async def aclose(self) -> None:
        driver, self._idle = self._idle, None
        if driver is not None:
            await driver.aclose()

    def _begun(self, posted: AguiInput) -> Telling:
        """Raises: ThreadIsBusy."""
        if self.is_running and run_if_any() is None:
            raise ThreadIsBusy  # On a server only a run that would not end can still be here: it has been left behind.
        self._telling = Telling(posted, self._config)
        return self._telling

    def _remembered(self) -> dict[str, Any]:
        """What the run before left: on a server the thread has it, also after a restart."""
        run = run_if_any()
        return self._memory if run is None else run.memory or {}


class Telling:
    """One run, told: `beginning`, then `feed` and `expand` for whatever the SDK says, then `end`."""

    feed: Callable[[Any], list[Any]]
    ask: Ask

    def __init__(self, posted: AguiInput, config: StrandsAgentConfig) -> None:
        self.composer = Composer()
        self.kept: dict[str, Any] | None = None
        self._posted, self._input = posted, input_from_agui(posted)
        self._config = config
        self._store = StateStore(self._input.state)
        self._behaviors = Behaviors(config, posted, self.composer, self._store, SNAPSHOT_HERE)
        self._translator: Translator | None = None

    @property
    def force_stopped(self) -> bool:
        return self._translator is not None and self._translator.force_stopped

    async def beginning(self, driver: Driver, memory: dict[str, Any]) -> AsyncGenerator[Event, None]:
        """The state, and what went wrong before the agent was asked. From here on there is something to ask."""
        self._driver = driver
        if self._store.value:
            yield self._store.snapshot()
        tools = Toolbox(callable_tools(self._input.tools), driver.tool_names)
        plan = _plan(self._input, tools, self._config)
        self.ask, troubles = await self._ask(tools, memory)
        for event in troubles:
            yield event
        for tool_use_id in plan.earlier.keys() - set(plan.answered):
            self.composer.recall(tool_use_id)
        self._translator = Translator(self.composer, plan, lambda: driver.is_cancelled)
        self.feed = self._translator.feed

    async def expand(self, mark: Called | Answered | Shared) -> AsyncGenerator[Event, None]:
        async with aclosing(self._behaviors.expand(mark)) as events:
            async for event in events:
                yield event
        if self._behaviors.stops:
            self._driver.stop_after_tools()

    def end(self) -> list[Event]:
        assert self._translator is not None
        end = finished(self._input, self._translator, self._config, cancelled=self._driver.is_cancelled)
        self.kept = self._driver.keep(waits=bool(self._translator.questions))
        remembered = [remember(self.kept)] if self.kept != self.ask.memory and run_if_any() else []
        return [
            *stop_signals(self._translator.result),
            *self.composer.close(end),
            *self._store.closing(),
            *remembered,
            end,
        ]

    async def _ask(self, tools: Toolbox, memory: dict[str, Any]) -> tuple[Ask, list[Event]]:
        run = run_if_any()
        new = None if run is None else run.new_ids
        said = turns(self._input.messages)
        about = incoming(self._input, new=new)
        if not about.resume and (not said or isinstance(said[-1], AssistantTurn)):
            said.append(self._default())
            about = dataclasses.replace(about, user=said[-1])
        said, troubles = await self._with_context(said)
        if about.user is not None:
            about = dataclasses.replace(about, user=next(one for one in reversed(said) if isinstance(one, UserTurn)))
        ask = Ask(input=self._input, turns=said, incoming=about, tools=tools, config=self._config, memory=memory)
        return ask, troubles

    def _default(self) -> UserTurn:
        """What is asked when there is nothing to answer. Raises: NothingToAnswer."""
        if not self._config.default_prompt:
            raise NothingToAnswer
        return UserTurn(id=random_id("message"), content=self._config.default_prompt)

    async def _with_context(self, said: list[Turn]) -> tuple[list[Turn], list[Event]]:
        """The turns with what the user said last rewritten by the hook, if there is one."""
        builder = self._config.state_context_builder
        at = next((at for at in reversed(range(len(said))) if isinstance(said[at], UserTurn)), None)
        if builder is None or at is None:
            return said, []
        user = said[at]
        assert isinstance(user, UserTurn)
        text, troubles = await try_hook("state_context_builder", builder, self._posted, text_of(user.content))
        if troubles:
            return said, troubles
        rewritten = dataclasses.replace(user, content=_reworded(user.content, str(text)))
        return [*said[:at], rewritten, *said[at + 1 :]], []


def _reworded(content: Content, text: str) -> Content:
    """The content with other words; attachments stay."""
    if isinstance(content, str):
        return text
    return [TextPart(text=text), *(part for part in content if not isinstance(part, TextPart))]


def _plan(given: RunAgentInput, tools: Toolbox, config: StrandsAgentConfig) -> Plan:
    behaviors = config.tool_behaviors
    predictions = {
        name: [mapping.to_payload() for mapping in normalize_predict_state(one.predict_state)]
        for name, one in behaviors.items()
    }
    return Plan(
        frontend=tools.frontend,
        continuing={name for name, one in behaviors.items() if one.continue_after_frontend_call},
        streamed={name for name, one in behaviors.items() if one.args_streamer is not None},
        predictions=predictions,
        earlier={call.id: (call.function.name, call.function.arguments) for call in calls_of(given.messages)},
        answered={message.tool_call_id for message in given.messages if isinstance(message, ToolMessage)},
    )
