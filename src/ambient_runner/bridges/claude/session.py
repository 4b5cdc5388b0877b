"""One CLI process and the SDK's client of it, owned by one task from the first word to the last.

What the process says, what it asks a person and which tools of the client it calls all come out of one queue, in order. A process outlives
the run that started it: it waits for the next one, or for an answer.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
from claude_agent_sdk import (
    ClaudeSDKClient,
    ClaudeSDKError,
    CLINotFoundError,
    PermissionResultDeny,
    ResultError,
    ResultMessage,
)

from ambient_runner.bridges.claude.client_tools import SERVER, Calls, server_of
from ambient_runner.bridges.claude.errors import ClaudeGone, SessionLost
from ambient_runner.bridges.claude.interrupts import FULL, LATE, Question
from ambient_runner.bridges.claude.launch import options_for
from ambient_runner.bridges.claude.process import OwnedCli
from ambient_runner.errors import BridgeError, BridgeTimeout, BridgeUnavailable
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from claude_agent_sdk import ClaudeAgentOptions, PermissionResult, ToolPermissionContext

    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.bridges.claude.launch import Launch
    from ambient_runner.bridges.claude.memory import Place
    from ambient_runner.bridges.claude.shared import ParkingLot
    from ambient_runner.bridges.claude.translate import Made
    from ambient_runner.runs.run import Run

__all__ = ["ENDED", "Session"]

logger = logging.getLogger(__name__)

ENDED = object()
"""What the queue gives when the process is gone."""

_MOST_UNREAD = 512
_STEPS = 5
"""Steps of the loop until tasks the SDK has cancelled are gone."""
_STOPPING = 2.0
"""Seconds the CLI has to end its turn when it is asked to."""


class Session:
    """A process that was started with `launch`, at `place`. Use `start`, then `ask` and `next`; `aclose` ends it."""

    def __init__(self, launch: Launch, place: Place, config: ClaudeConfig, lot: ParkingLot) -> None:
        self.launch = launch
        self.busy = False
        """Whether it is in the middle of a turn."""
        self.holds: str | None = None
        """The user message it was last given."""
        self.made: dict[str, Made] = {}
        self.spent = 0.0
        """What it has cost so far, in dollars."""
        self.run: Run | None = None
        """The run that goes on, for tools that ask for it."""
        self.secrets: Sequence[str] = ()
        """What it was given that nobody may see: a run that answers it has been granted something else."""
        self._questions: dict[str, Question] = {}
        self._config = config
        self._lot = lot
        self._resumes = place.session is not None
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self.calls = Calls(self._queue.put_nowait)
        self._first: Any = None
        self._room = anyio.Event()
        self._ready = anyio.Event()
        self._cli = OwnedCli(options_for(launch, place), launch.environment)
        self._client = ClaudeSDKClient(self._client_options(), transport=self._cli)
        self._task: asyncio.Task[None] | None = None
        self._stay = anyio.CancelScope()

    @property
    def pid(self) -> int | None:
        return self._cli.pid

    @property
    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done() and self._cli.is_alive

    @property
    def is_waiting(self) -> bool:
        """Whether it needs something from outside to go on."""
        return self.is_alive and bool(self.open_questions or self.calls.open)

    @property
    def open_questions(self) -> list[Question]:
        return [one for one in self._questions.values() if one.is_open]

    async def start(self) -> None:
        """Start the process. Raises: BridgeUnavailable, BridgeTimeout, SessionLost, ClaudeGone."""
        # The process outlives the run, so no task group of the run can own this task; `aclose` ends it.
        self._task = asyncio.create_task(self._own())
        self._task.add_done_callback(self._over)
        with anyio.move_on_after(self._config.start_timeout):
            await self._ready.wait()
        if not self._ready.is_set():
            await self.aclose(now=True)
            raise BridgeTimeout(f"Claude did not start within {self._config.start_timeout:g} seconds and was stopped.")
        if self._task.done():
            raise self.failure()

    async def ask(self, content: list[dict[str, Any]]) -> None:
        """Begin a turn, and wait until the process has taken it up. What it said before that is forgotten.

        Raises: ClaudeGone when it is dead, also if that was not known yet: then nothing has been done.
        """
        while not self._queue.empty():
            if self._queue.get_nowait() is ENDED:
                raise self._noted(ClaudeGone())
        self.busy = True

        async def said() -> AsyncGenerator[dict[str, Any], None]:
            yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}

        try:
            await self._client.query(said())
        except ClaudeSDKError as error:
            raise self._noted(ClaudeGone()) from error
        self._first = await self.next(self._config.turn_timeout)
        if self._first is ENDED:
            raise self.failure()

    async def next(self, seconds: float) -> Any:
        """What comes next: a message, a Question, a waiting call, or ENDED; None after that many seconds of silence."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._queue.qsize() < _MOST_UNREAD:
            self._room.set()
        if not self._queue.empty():
            return self._queue.get_nowait()
        with anyio.move_on_after(seconds):
            return await self._queue.get()
        return None

    async def stop(self) -> None:
        """End the turn: ask for it, and end the process if that does not help."""
        if self._ready.is_set():
            with isolate("asking Claude to stop"), anyio.move_on_after(_STOPPING):
                await self._client.interrupt()
                return
        self.kill()

    async def settle(self) -> bool:
        """End a turn nobody waits for any more, and forget what it said; False when the process is of no more use."""
        if not self.busy or not self.is_alive:
            return self.is_alive
        await self.stop()
        with anyio.move_on_after(_STOPPING):
            while self.busy:
                self.hear(await self.next(_STOPPING))
            self._questions.clear()
            return self.is_alive
        return False

    def hear(self, message: Any) -> None:
        """Take note of what changes the state of the process."""
        if message is ENDED or isinstance(message, ResultMessage):
            self.busy = False

    def recognise(self) -> None:
        """Find out which of the model's calls wait for the client."""
        self.calls.recognise(self.made)

    def failure(self) -> BridgeError:
        """Why the process is gone."""
        assert self._task is not None
        error = None if self._task.cancelled() or not self._task.done() else self._task.exception()
        known: BridgeError
        if isinstance(error, CLINotFoundError):
            known = BridgeUnavailable(
                "The Claude CLI was not found. Install it with pip install 'ambient-runner[claude]', or set cli_path."
            )
        elif isinstance(error, ResultError) and self._resumes and not self._cli.was_started:
            known = SessionLost()
        elif not self._cli.was_started:
            known = BridgeUnavailable("The Claude CLI did not start. The server's log has the reason.")
        else:
            known = ClaudeGone()
        known.__cause__ = error
        return self._noted(known)

    async def mcp_status(self) -> list[dict[str, Any]]:
        """How the MCP servers are doing, as the CLI says it. Raises: ClaudeGone."""
        try:
            return [dict(one) for one in (await self._client.get_mcp_status())["mcpServers"]]
        except ClaudeSDKError as error:
            raise self._noted(ClaudeGone()) from error

    def kill(self) -> None:
        """End the process now, and all it has started."""
        self._cli.kill()

    async def aclose(self, *, now: bool = False) -> None:
        """End the process. With `now`, or in the middle of a turn, there is nothing it could still have to write."""
        if now or self.busy:
            self.kill()
        if self._task is None:
            return
        self._room.set()
        self._stay.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({self._task})
            for _ in range(_STEPS):
                await asyncio.sleep(0)

    async def _own(self) -> None:
        """Everything the SDK does with this process happens between these lines, in this task.

        It is ended by a scope: cancelling the task would also cut short the SDK's own ending, which is shielded from scopes alone.
        """
        try:
            with self._stay:
                await self._listen()
        finally:
            self._queue.put_nowait(ENDED)

    def _over(self, task: asyncio.Task[None]) -> None:
        """Nobody may be there to ask for the exception: `failure` gives it to a run that is."""
        if not task.cancelled():
            task.exception()
        self._ready.set()

    async def _listen(self) -> None:
        async with self._client:
            self._cli.has_started()
            self._ready.set()
            async for message in self._client.receive_messages():
                self._queue.put_nowait(message)
                if self._queue.qsize() >= _MOST_UNREAD:
                    self._room = anyio.Event()
                    await self._room.wait()

    async def _may_use(self, tool: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        """Called by the SDK for the CLI: a person decides, in some run, or nobody in time."""
        question = Question(
            call=context.tool_use_id or "", tool=tool, input=given, suggestions=tuple(context.suggestions)
        )
        if not self._lot.enter(self):
            logger.warning("A question was refused: %d processes wait for people already", len(self._lot))
            return PermissionResultDeny(message=FULL)
        self._questions[question.id] = question
        try:
            self._queue.put_nowait(question)
            with anyio.move_on_after(self._config.answer_timeout):
                return await question.answer
            return PermissionResultDeny(message=LATE, interrupt=True)
        finally:
            self._questions.pop(question.id, None)
            self._lot.leave(self)

    def _client_options(self) -> ClaudeAgentOptions:
        """What the SDK itself needs to know: whom to call, and how prompts are marked. The process has its options already."""
        served = server_of(self.launch.custom, self.launch.frontend, self.calls, lambda: self.run)
        return replace(
            self.launch.options,
            can_use_tool=self._may_use,
            mcp_servers={} if served is None else {SERVER: served},
            allowed_tools=[],
            permission_mode=None,
            env={},
        )

    def _noted(self, error: BridgeError) -> BridgeError:
        """The error with what the CLI wrote last, for the log."""
        for line in self._cli.stderr:
            error.add_note(f"The CLI wrote: {line}")
        return error
