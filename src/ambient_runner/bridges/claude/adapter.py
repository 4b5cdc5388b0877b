"""One thread of Claude: an adapter. It keeps a process warm between runs, goes on where the conversation stands, and tells what happens.

`session.py` knows how a process is talked to, `record.py` where the conversation is in the CLI's files; this knows what a run is.
"""

from __future__ import annotations

import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.bridges.base import remember
from ambient_runner.bridges.claude import memory as records
from ambient_runner.bridges.claude.client_tools import Waiting
from ambient_runner.bridges.claude.errors import ClaudeGone, SessionLost, failure
from ambient_runner.bridges.claude.interrupts import answer_to
from ambient_runner.bridges.claude.launch import launch_of
from ambient_runner.bridges.claude.messages import prompt
from ambient_runner.bridges.claude.outcome import finished, parked
from ambient_runner.bridges.claude.session import ENDED, Session
from ambient_runner.bridges.claude.translate import Translator
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.interrupts import answered, lapsed
from ambient_runner.bridges.toolkit.turns import incoming
from ambient_runner.errors import BridgeError, BridgeTimeout, NothingToAnswer
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.events import AssistantMessage, Cancelled, RunError, RunFinished
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import run_if_any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.claude.launch import Launch
    from ambient_runner.bridges.claude.memory import Record
    from ambient_runner.bridges.claude.shared import Keeper
    from ambient_runner.bridges.toolkit.turns import Incoming, Turn
    from ambient_runner.protocol.events import Event, RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["Conversation"]

logger = logging.getLogger(__name__)

_RETRIES = (
    "A request of Claude to its model has failed and is made again. If this goes on, check ANTHROPIC_BASE_URL, the network "
    "(proxies, firewalls) and the key; the claude:retry events of the run have the provider's HTTP status, if it answered"
)
_QUIET = 0.05
"""Seconds of silence after which a process that waits for someone has said all it had to say."""
_STOPPING = 2.0
"""Seconds a turn may go on after the process has been asked to end it."""


@dataclass(kw_only=True, slots=True)
class _Turn:
    """One run as it goes on."""

    given: RunAgentInput
    about: Incoming
    run: Run | None
    composer: Composer = field(default_factory=Composer)
    over: anyio.Event = field(default_factory=anyio.Event)
    stopped: bool = False
    kept: bool = False
    """Whether the process can be used again."""


class Conversation:
    """The adapter of one thread. What the threads of a bridge share is the keeper's."""

    def __init__(self, ctx: PlatformContext, keeper: Keeper) -> None:
        self._config = keeper.config
        self._ctx = ctx
        self._keeper = keeper
        self._record: Record = ()
        self._session: Session | None = None
        self._turn: _Turn | None = None

    @property
    def pid(self) -> int | None:
        """The process that is there, if any."""
        return self._session.pid if self._session is not None and self._session.is_alive else None

    async def run(self, input: AguiInput) -> AsyncGenerator[Event, None]:  # noqa: A002  the ADR's name
        """The events of one run, with a RUN_FINISHED at the end and no other frame. Raises: BridgeError."""
        self._turn = turn = self._asked(input)
        try:
            async with aclosing(self._told(turn)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            known = failure(error)
            end = _cancelled(turn.given) if turn.stopped else RunError(message=known.message)
            for event in turn.composer.close(end):
                yield event
            if not turn.stopped:
                if known is error:
                    raise
                raise known from error
            yield end
        finally:
            turn.over.set()
            if not turn.kept:
                await self._drop(now=True)

    async def interrupt(self) -> None:
        """End the turn. The process stays, unless it does not react."""
        turn, session = self._turn, self._session
        if turn is None or turn.over.is_set():
            return
        turn.stopped = True
        if session is not None:
            await session.stop()
            with anyio.move_on_after(_STOPPING):
                await turn.over.wait()
            if not turn.over.is_set():
                session.kill()

    async def aclose(self) -> None:
        """End the process. A question that it asked can no longer be answered: Claude asks again."""
        if self._session is not None and self._session.is_waiting:
            logger.warning("A Claude process was ended while it waited for someone; what it asked has lapsed")
        await self._drop()

    async def mcp_status(self) -> list[dict[str, Any]]:
        """How the MCP servers of this thread's process are doing; nothing while there is no process."""
        return await self._session.mcp_status() if self._session is not None and self._session.is_alive else []

    def waits_for(self, input: AguiInput) -> bool:  # noqa: A002  the ADR's name
        """Whether the process is in the middle of a turn that goes on with what this brings."""
        return self._waiting(_about(input_from_agui(input))) is not None

    def _asked(self, posted: AguiInput) -> _Turn:
        given, run = input_from_agui(posted), run_if_any()
        about = _about(given)
        if about.user is None and not about.results and not about.resume:
            raise NothingToAnswer
        if run is not None:
            run.secrets.learn(self._keeper.secrets)
        return _Turn(given=given, about=about, run=run)

    async def _told(self, turn: _Turn) -> AsyncGenerator[Event, None]:
        session = self._waiting(turn.about)
        goes_on = session is not None
        if session is None:
            for event in lapsed(answered(turn.about.resume)):
                yield event
            session = await self._ready(turn)
        session.run = turn.run
        if turn.run is not None:
            turn.run.secrets.learn(session.secrets)
        results = {result.call_id for result in turn.about.results}
        translator = Translator(turn.composer, session.made, results, _ids(turn.given))
        if goes_on:
            self._answer(turn, session)
        else:
            for event in await self._note(turn, session):
                yield event
        asks_more = goes_on and turn.about.user is not None
        while True:
            async with aclosing(self._listen(session, translator)) as events:
                async for event in events:
                    yield event
            if translator.result is None or not asks_more or turn.stopped:
                break
            asks_more, translator.result = False, None
            turn.about = replace(turn.about, results=(), resume=())
            await self._ask(turn, session)
        turn.kept = True
        close = self._park if translator.result is None else self._end
        for event in await close(turn, session, translator):
            yield event

    def _waiting(self, about: Incoming) -> Session | None:
        """The process, if it waits for just what this run brings."""
        session = self._session
        if session is None or not session.is_waiting:
            return None
        open_questions = {one.id for one in session.open_questions}
        answers = [entry for entry in about.resume if entry.interrupt_id in open_questions]
        calls = {one.call for one in session.calls.open}
        brings = any(result.call_id in calls for result in about.results)
        brings = brings or any(entry.status == "resolved" or about.user is None for entry in answers)
        return session if brings else None

    def _answer(self, turn: _Turn, session: Session) -> None:
        given = {entry.interrupt_id: entry for entry in turn.about.resume}
        if turn.about.resume:
            for question in session.open_questions:
                question.settle(answer_to(question, given.get(question.id)))
        if turn.about.results:
            session.calls.deliver(turn.about.results)

    async def _ready(self, turn: _Turn) -> Session:
        """A process that holds the conversation, and has begun the turn."""
        granted = {} if turn.run is None else turn.run.environment
        launch = launch_of(self._config, self._ctx, turn.given, self._keeper.base, granted)
        history = turn.about.history
        await self._load(turn)
        warm = await self._ask_warm(turn, launch)
        if warm is not None:
            return warm
        await self._drop()
        place = records.place(self._record, history)
        try:
            session = await self._start(turn, Session(launch, place, self._config, self._keeper.lot))
        except SessionLost:
            place = records.Place(untold=history)
            session = await self._start(turn, Session(launch, place, self._config, self._keeper.lot))
        await self._ask(turn, session, place.untold)
        return session

    async def _ask_warm(self, turn: _Turn, launch: Launch) -> Session | None:
        """The process that is there, with the turn begun, if it can stand in for a new one."""
        warm = self._session
        if warm is None or warm.launch != launch or warm.holds != records.last_user(turn.about.history):
            return None
        if not await warm.settle():
            return None
        with suppress(ClaudeGone):
            await self._ask(turn, warm)
            return warm
        return None

    async def _start(self, turn: _Turn, session: Session) -> Session:
        if turn.stopped:
            raise BridgeError
        self._session = session
        if turn.run is not None:
            session.secrets = session.launch.known_to(turn.run.secrets)
        await session.start()
        return session

    async def _ask(self, turn: _Turn, session: Session, untold: Sequence[Turn] = ()) -> None:
        about = turn.about
        session.holds = about.user.id if about.user is not None else records.last_user(about.history)
        await session.ask(prompt(turn.given, about, untold))

    async def _listen(self, session: Session, translator: Translator) -> AsyncGenerator[Event, None]:
        """What the process says until its turn is over, or it waits for someone outside."""
        while translator.result is None:
            waits = session.is_waiting and not translator.is_writing
            message = await session.next(_QUIET if waits else self._config.turn_timeout)
            if message is None and waits:
                if session.is_waiting:
                    return
                continue
            if message is None:
                raise BridgeTimeout(f"Claude said nothing for {self._config.turn_timeout:g} seconds and was stopped.")
            if message is ENDED:
                raise session.failure()
            session.hear(message)
            if isinstance(message, Waiting):
                session.recognise()
            before = translator.retries
            for event in translator.feed(message):
                yield event
            if translator.retries > before == 0:
                logger.warning(_RETRIES)

    async def _park(self, turn: _Turn, session: Session, translator: Translator) -> list[Event]:
        noted = await self._note(turn, session, translator.session)
        asked = [event for one in session.open_questions for event in translator.called(one.call, one.tool, one.input)]
        session.recognise()
        end = parked(turn.given, translator, session, self._config.answer_timeout)
        return [*noted, *asked, *turn.composer.close(end), end]

    async def _end(self, turn: _Turn, session: Session, translator: Translator) -> list[Event]:
        assert translator.result is not None
        session.made.clear()
        spent, session.spent = session.spent, translator.result.total_cost_usd or session.spent
        noted = await self._note(turn, session, translator.session, translator.last)
        end = finished(turn.given, translator, spent, cancelled=turn.stopped)
        return [*noted, *turn.composer.close(end), end]

    async def _note(
        self, turn: _Turn, session: Session, name: str | None = None, entry: str | None = None
    ) -> list[Event]:
        """Keep where the conversation stands, in the workspace and with the thread: `entry` of the session `name` ends the answer."""
        if session.holds is None:
            return []
        self._record = records.answered(self._record, session.holds, name or "", entry)
        path = self._file(turn)
        if path is not None:
            with isolate("keeping the place of a Claude session"):
                await anyio.to_thread.run_sync(records.save, path, self._record)
        if turn.run is None:
            return []
        self._keeper.saw(turn.run.thread, path, self._record)
        return [remember(records.to_json(self._record))]

    async def _load(self, turn: _Turn) -> None:
        """What is known of the conversation's place: the thread's own word first, then the workspace's, then ours."""
        path = self._file(turn)
        told = records.from_json(turn.run.memory) if turn.run is not None else ()
        if not told and path is not None:
            told = await anyio.to_thread.run_sync(records.load, path)
        self._record = told or self._record

    def _file(self, turn: _Turn) -> Path | None:
        folder = self._ctx.workspace_path or self._ctx.cwd_path
        if not folder:
            return None
        thread = turn.run.thread if turn.run is not None else None
        key = (turn.given.thread_id,) if thread is None else (thread.tenant, thread.owner, thread.id)
        return records.file_for(Path(folder), key)

    async def _drop(self, *, now: bool = False) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.aclose(now=now)


def _about(given: RunAgentInput) -> Incoming:
    run = run_if_any()
    return incoming(given, new=None if run is None else run.new_ids)


def _ids(given: RunAgentInput) -> set[str]:
    """The ids that the conversation has already, of messages and of calls."""
    calls = {
        call.id
        for message in given.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls or ()
    }
    return {*calls, *(message.id for message in given.messages)}


def _cancelled(given: RunAgentInput) -> RunFinished:
    return RunFinished(thread_id=given.thread_id, run_id=given.run_id, outcome=Cancelled())
