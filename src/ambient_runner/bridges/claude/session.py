"""One CLI process and the SDK's client of it, owned by one task from its start to its end.

The process's messages, its permission requests, its calls of client tools and its changes of the state come out of one queue, in order.
A process outlives the run that started it: it waits for the next one, or for an answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
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

from ambient_runner.bridges.claude.client_tools import SERVER_NAME, call_records, create_tool_server
from ambient_runner.bridges.claude.errors import ClaudeExited, SessionLost
from ambient_runner.bridges.claude.interrupts import LIMIT_REACHED, TIMED_OUT, PermissionRequest
from ambient_runner.bridges.claude.launch import options_at
from ambient_runner.bridges.claude.permissions import RuleAnswers
from ambient_runner.bridges.claude.process import ManagedCli
from ambient_runner.bridges.claude.state_tool import create_state_tool
from ambient_runner.bridges.claude.translate import StreamState
from ambient_runner.bridges.toolkit.interrupts import asked_again_id
from ambient_runner.bridges.toolkit.pending_calls import PendingCalls
from ambient_runner.errors import BridgeError, BridgeTimeout, BridgeUnavailable
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from claude_agent_sdk import ClaudeAgentOptions, PermissionResult, ToolPermissionContext

    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.bridges.claude.launch import Launch
    from ambient_runner.bridges.claude.memory import SessionPosition
    from ambient_runner.bridges.claude.translate import ToolCallRecord
    from ambient_runner.bridges.toolkit.process_limits import WaitingProcessLimit
    from ambient_runner.bridges.toolkit.turns import NewInput
    from ambient_runner.runs.run import Run

__all__ = ["ENDED", "Session"]

logger = logging.getLogger(__name__)

ENDED = object()
"""The last item of the queue: the process is gone."""

_MAX_UNREAD = 512
_CLEANUP_STEPS = 5
"""Steps of the event loop until tasks that the SDK has cancelled are gone."""
_INTERRUPT_TIMEOUT = 2.0
"""Seconds the CLI has to end its turn after an interrupt."""


class Session:
    """A process started with `launch`, at `position`. Use `start`, then `send_prompt` and `next_message`; `aclose` ends it."""

    def __init__(
        self,
        launch: Launch,
        position: SessionPosition,
        config: ClaudeConfig,
        limit: WaitingProcessLimit,
        thread_id: str,
    ) -> None:
        self.launch = launch
        self.is_busy = False
        """True during a turn."""
        self.last_user_id: str | None = None
        """The id of the last user message it received."""
        self.tool_calls: dict[str, ToolCallRecord] = {}
        self.streams = StreamState()
        """The streamed part of the turn: a run may end in the middle of a message, and the next one continues it."""
        self.cost_usd = 0.0
        """The cost of the process so far."""
        self.run: Run | None = None
        """The active run, for tools that use it."""
        self.secrets: Sequence[str] = ()
        """Secrets that were granted to the process. A run that answers it has other grants, and must redact these too."""
        self._requests: dict[str, PermissionRequest] = {}
        self._config = config
        self._limit = limit
        self._thread_id = thread_id
        self._is_continued = position.session is not None
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self.calls = PendingCalls(self._queue.put_nowait)
        self._first_message: Any = None
        self._queue_drained = anyio.Event()
        self._started = anyio.Event()
        self._rules = RuleAnswers(
            launch.permissions,
            str(launch.options.cwd or ""),
            thread_id,
            self._agent_name,
            accepts_edits=launch.options.permission_mode == "acceptEdits",
            allowed_tools=launch.options.allowed_tools,
        )
        self._cli = ManagedCli(options_at(launch, position), launch.environment)
        self._client = ClaudeSDKClient(self._client_options(), transport=self._cli)
        self._task: asyncio.Task[None] | None = None
        self._scope = anyio.CancelScope()

    @property
    def pid(self) -> int | None:
        return self._cli.pid

    @property
    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done() and self._cli.is_alive

    @property
    def is_waiting(self) -> bool:
        """True if it needs an answer or a tool result to continue."""
        return self.is_alive and bool(self.open_requests or self.calls.open_calls)

    @property
    def open_requests(self) -> list[PermissionRequest]:
        return [request for request in self._requests.values() if request.is_open]

    def ask_again(self, request: PermissionRequest) -> None:
        """Keep a request open under a new id: the answer was for other arguments."""
        self._requests.pop(request.id, None)
        request.id, request.is_shown, request.is_changed = asked_again_id(request.id), False, True
        request.received_at = time.monotonic()
        self._requests[request.id] = request

    def waits_for(self, new_input: NewInput) -> bool:
        """Return True if it waits for a tool result or an answer that this input brings."""
        if not self.is_waiting:
            return False
        open_ids = {request.id for request in self.open_requests}
        answers = [entry for entry in new_input.resume if entry.interrupt_id in open_ids]
        call_ids = {call.client_id for call in self.calls.open_calls}
        has_result = any(result.call_id in call_ids for result in new_input.results)
        return has_result or any(entry.status == "resolved" or new_input.user is None for entry in answers)

    async def start(self) -> None:
        """Start the process. Raises: BridgeUnavailable, BridgeTimeout, SessionLost, ClaudeExited."""
        # The process outlives the run, so no task group of the run can own this task; `aclose` ends it.
        self._task = asyncio.create_task(self._own_process())
        self._task.add_done_callback(self._on_task_done)
        with anyio.move_on_after(self._config.start_timeout):
            await self._started.wait()
        if not self._started.is_set():
            await self.aclose(now=True)
            raise BridgeTimeout(f"Claude did not start within {self._config.start_timeout:g} seconds and was stopped.")
        if self._task.done():
            raise self.exit_error()

    async def send_prompt(self, content: list[dict[str, Any]]) -> None:
        """Begin a turn, and wait until the process has taken it up. Messages from before are discarded.

        Raises: ClaudeExited if it is dead, even if that was not known yet: then nothing has been done.
        """
        while not self._queue.empty():
            if self._queue.get_nowait() is ENDED:
                raise self._with_stderr(ClaudeExited())
        self.is_busy = True
        self.streams.clear()

        async def user_message() -> AsyncGenerator[dict[str, Any], None]:
            yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}

        try:
            await self._client.query(user_message())
        except ClaudeSDKError as error:
            raise self._with_stderr(ClaudeExited()) from error
        self._first_message = await self.next_message(self._config.turn_timeout)
        if self._first_message is ENDED:
            raise self.exit_error()

    async def next_message(self, seconds: float) -> Any:
        """Return the next message, PermissionRequest, PendingCall, StateUpdate or ENDED; None if nothing comes within the time."""
        if self._first_message is not None:
            first, self._first_message = self._first_message, None
            return first
        if self._queue.qsize() < _MAX_UNREAD:
            self._queue_drained.set()
        if not self._queue.empty():
            return self._queue.get_nowait()
        with anyio.move_on_after(seconds):
            return await self._queue.get()
        return None

    async def interrupt_turn(self) -> None:
        """Ask the process to end its turn. Kill it if it does not react."""
        if self._started.is_set():
            with isolate("interrupting a turn of Claude"), anyio.move_on_after(_INTERRUPT_TIMEOUT):
                await self._client.interrupt()
                return
        self.kill()

    async def wait_idle(self) -> bool:
        """End an abandoned turn, and discard its messages. Return False if the process cannot be used again."""
        if not self.is_busy or not self.is_alive:
            return self.is_alive
        await self.interrupt_turn()
        with anyio.move_on_after(_INTERRUPT_TIMEOUT):
            while self.is_busy:
                self.handle_message(await self.next_message(_INTERRUPT_TIMEOUT))
            self._requests.clear()
            return self.is_alive
        return False

    def handle_message(self, message: Any) -> None:
        """Update the state of the process from one of its messages."""
        if message is ENDED or isinstance(message, ResultMessage):
            self.is_busy = False

    def match_pending_calls(self) -> None:
        """Find out which of the model's calls wait for the client."""
        self.calls.match_records(call_records(self.tool_calls))

    def exit_error(self) -> BridgeError:
        """Return the reason why the process is gone."""
        assert self._task is not None
        cause = None if self._task.cancelled() or not self._task.done() else self._task.exception()
        error: BridgeError
        if isinstance(cause, CLINotFoundError):
            error = BridgeUnavailable(
                "The Claude CLI was not found. The wheels of claude-agent-sdk contain it: install it again with "
                "pip install --force-reinstall claude-agent-sdk, or set cli_path."
            )
        elif isinstance(cause, ResultError) and self._is_continued and not self._cli.was_started:
            error = SessionLost()
        elif not self._cli.was_started:
            error = BridgeUnavailable("The Claude CLI did not start. The server's log has the reason.")
        else:
            error = ClaudeExited()
        error.__cause__ = cause
        return self._with_stderr(error)

    async def mcp_status(self) -> list[dict[str, Any]]:
        """Return the status of the MCP servers, as the CLI reports it. Raises: ClaudeExited."""
        try:
            return [dict(server) for server in (await self._client.get_mcp_status())["mcpServers"]]
        except ClaudeSDKError as error:
            raise self._with_stderr(ClaudeExited()) from error

    def kill(self) -> None:
        """Kill the process and everything it has started."""
        self._cli.kill()

    async def aclose(self, *, now: bool = False) -> None:
        """End the process. With `now`, or during a turn, it is killed: it has nothing left to write."""
        if now or self.is_busy:
            self.kill()
        if self._task is None:
            return
        self._queue_drained.set()
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({self._task})
            for _ in range(_CLEANUP_STEPS):
                await asyncio.sleep(0)

    async def _own_process(self) -> None:
        """Run everything the SDK does with this process, in this task.

        A scope ends it: cancelling the task would also cut short the SDK's own cleanup, which is shielded from scopes only.
        """
        try:
            with self._scope:
                await self._receive_messages()
        finally:
            try:
                # If the event loop shuts down, the SDK's cleanup ends at the first await. A second call closes what is still open.
                await self._client.disconnect()
            finally:
                self._queue.put_nowait(ENDED)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Mark the exception as retrieved: there may be no run to call `exit_error`."""
        if not task.cancelled():
            task.exception()
        self._started.set()

    async def _receive_messages(self) -> None:
        async with self._client:
            self._cli.mark_started()
            self._started.set()
            async for message in self._client.receive_messages():
                self._queue.put_nowait(message)
                if self._queue.qsize() >= _MAX_UNREAD:
                    self._queue_drained = anyio.Event()
                    await self._queue_drained.wait()

    async def _ask_permission(
        self, tool: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """Wait for a person's decision, in this run or a later one, unless a rule decides. The SDK calls this for the CLI."""
        if (answer := self._rules.answer(tool, arguments)) is not None:
            return answer
        request = PermissionRequest(
            call_id=context.tool_use_id or "", tool=tool, input=arguments, suggestions=tuple(context.suggestions)
        )
        if not self._limit.try_enter(self):
            logger.warning(
                "Thread %s: a permission request of Claude was refused, because %d processes wait for an answer already. "
                "Raise `max_waiting_processes` to allow more.",
                self._thread_id,
                len(self._limit),
            )
            return PermissionResultDeny(message=LIMIT_REACHED)
        self._requests[request.id] = request
        try:
            self._queue.put_nowait(request)
            with anyio.move_on_after(self._config.interrupt_timeout):
                return await request.answer
            return PermissionResultDeny(message=TIMED_OUT, interrupt=True)
        finally:
            self._requests.pop(request.id, None)
            self._limit.leave(self)

    def _agent_name(self) -> str:
        return self.run.agent if self.run is not None else ""

    def _client_options(self) -> ClaudeAgentOptions:
        """Return the options the SDK's client itself uses: its callbacks and the MCP servers in this process. The CLI has its own."""
        state_tools = [create_state_tool(self._queue.put_nowait)] if self.launch.has_state_tool else []
        custom = [*self.launch.custom, *state_tools]
        server = create_tool_server(custom, self.launch.client_tools, self.calls, lambda: self.run)
        return replace(
            self.launch.options,
            can_use_tool=self._ask_permission,
            hooks=self._rules.add_hook(self.launch.options.hooks),
            mcp_servers={**self.launch.in_process_servers, **({} if server is None else {SERVER_NAME: server})},
            allowed_tools=[],
            permission_mode=None,
            env={},
        )

    def _with_stderr(self, error: BridgeError) -> BridgeError:
        """Return the error with the CLI's last lines, for the log."""
        for line in self._cli.stderr:
            error.add_note(f"The CLI wrote: {line}")
        return error
