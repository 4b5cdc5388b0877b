"""The connection to an agent: its child process, and JSON-RPC over its standard streams. `session.py` speaks the protocol on it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.errors import ACPAuthRequired, ACPError, ACPExited, ACPNotStarted
from ambient_runner.errors import BridgeError, BridgeTimeout, BridgeUnavailable
from ambient_runner.processes.child import ChildProcess
from ambient_runner.processes.json_rpc import JsonRpcPeer, PeerClosed
from ambient_runner.processes.json_rpc_messages import JsonRpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.profiles import Profile
    from ambient_runner.processes.json_rpc_messages import Message

__all__ = ["AUTH_REQUIRED", "AgentConnection"]

AUTH_REQUIRED = -32000
"""Error code of the protocol: the agent needs a login."""
_HANDLED_REQUESTS = ("session/request_permission", "elicitation/create")
_LOGIN = "Its operator can sign it in with `ambient agents login NAME`."
_EXIT_GRACE = 2.0
"""Seconds an agent has to write its files after its input has ended."""


class AgentConnection:
    """One process of an agent. `on_message` receives its messages in order, `on_exit` is called when it is gone.

    `try_handle_line` is that of `JsonRpcPeer`.
    """

    def __init__(
        self,
        profile: Profile,
        on_message: Callable[[Message], None],
        on_exit: Callable[[], None],
        *,
        try_handle_line: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.profile = profile
        self.received_bytes = 0
        """Bytes of its output so far."""
        self._on_exit = on_exit
        self._child: ChildProcess | None = None
        self._peer = JsonRpcPeer(
            self._write,
            methods=_HANDLED_REQUESTS,
            on_message=on_message,
            try_handle_line=try_handle_line,
            name=profile.title,
        )
        self.notify = self._peer.notify
        self.respond = self._peer.respond
        self.respond_error = self._peer.respond_error
        self.send_request = self._peer.send_request

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.is_alive

    async def start(self, launch: Launch, command: Sequence[str]) -> None:
        """Start the process with this command, which may be that of its sandbox. Raises: BridgeUnavailable."""
        try:
            self._child = await ChildProcess.start(
                command,
                env=launch.environment,
                cwd=launch.cwd,
                on_output=self._handle_output,
                on_exit=self._handle_exit,
            )
        except OSError as error:
            raise self._start_error(launch, error) from error

    async def call(self, method: str, params: dict[str, Any], *, timeout: float) -> Any:
        """Send a request and return its result. Raises: BridgeError, of which ACPAuthRequired, ACPExited and BridgeTimeout are known."""
        with self._mapped_errors(method, timeout):
            return await self._peer.call(method, params, timeout=timeout)

    def to_error(self, method: str, error: JsonRpcError) -> BridgeError:
        """Return our error for one that the agent responded with. The log has its text."""
        if error.code == AUTH_REQUIRED:
            key = self.profile.key_variable
            known: ACPError = ACPAuthRequired(
                f"{self.profile.title} is not signed in on this server. "
                + (
                    f"Its operator can sign it in with `ambient agents login {self.profile.name}`, or set {key}."
                    if key
                    else _LOGIN
                )
            )
        else:
            known = ACPError()
        known.add_note(f"The agent answered {method} with the error {error.code}: {error.message} {error.data or ''}")
        return self.with_stderr(known)

    def exit_error(self) -> BridgeError:
        """Return the reason why the process is gone."""
        return self.with_stderr(ACPExited())

    def not_started_error(self, launch: Launch) -> BridgeError:
        """Return the error for a process that has ended before it was ready, with how it ended and what it wrote for the log."""
        program = launch.command[0]
        error = ACPNotStarted(
            f"{self.profile.title} did not start: its process ended before it was ready. "
            f"Check its command, {program}, on the server, whose log has what it wrote."
        )
        if self._child is not None and self._child.returncode is not None:
            error.add_note(f"Its exit code is {self._child.returncode}.")
        return self.with_stderr(error)

    def with_stderr(self, error: BridgeError) -> BridgeError:
        """Return the error with the agent's last lines, for the log."""
        for line in self._child.stderr if self._child is not None else ():
            error.add_note(f"The agent wrote: {line}")
        return error

    def pause_output(self) -> None:
        if self._child is not None:
            self._child.pause_output()

    def resume_output(self) -> None:
        if self._child is not None:
            self._child.resume_output()

    def kill(self) -> None:
        """Kill the process and everything it has started."""
        if self._child is not None:
            self._child.kill()

    async def aclose(self, *, now: bool = False) -> None:
        """End the process, at once or after it has written its files."""
        grace = 0.0 if now or self.profile.quirks.ends_slowly else _EXIT_GRACE
        if self._child is not None:
            await self._child.aclose(grace)
        self._peer.close()

    @contextmanager
    def _mapped_errors(self, method: str, timeout: float) -> Generator[None]:
        try:
            yield
        except JsonRpcError as error:
            raise self.to_error(method, error) from error
        except PeerClosed as error:
            raise self.exit_error() from error
        except TimeoutError as error:
            raise self.with_stderr(
                BridgeTimeout(
                    f"{self.profile.title} did not answer {method} within {timeout:g} seconds and was stopped."
                )
            ) from error

    def _start_error(self, launch: Launch, error: OSError) -> BridgeError:
        if isinstance(error, FileNotFoundError) and error.filename == launch.cwd:
            return BridgeUnavailable(f"The working directory of {self.profile.title} does not exist any more.")
        name = launch.command[0]
        install = (
            f" Install it: {self.profile.install}" if self.profile.install else " Install it, or correct `command`."
        )
        return BridgeUnavailable(f"The command {name} cannot be started.{install}")

    def _handle_output(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self._peer.feed(data)

    def _handle_exit(self) -> None:
        self._peer.close()
        self._on_exit()

    def _write(self, data: bytes) -> None:
        if self._child is not None:
            self._child.write(data)
