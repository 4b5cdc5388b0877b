"""A fake ACP agent, scripted by the words of the prompt. A program of its own: `python -I fake_agent.py [--option value]…`.

The last line of a prompt's last text, without the instructions, is its script: steps joined by ` then `, each a word of `STEPS` and its
argument, such as `say hello there` or `think then ask touch a.txt then say done`. `session` answers with what the client has set.

Options, also as variables (`--load-error` is `FAKE_AGENT_LOAD_ERROR`):

    --style NAME          report tools, modes and refusals as claude, codex, gemini or opencode does (default: claude)
    --sessions DIR        keep sessions here for load, resume and list in another process (default: in memory)
    --journal FILE        append every received message as {"t": monotonic seconds, "dir": "c2a", "msg"}
    --without A,B         leave out load, resume, list, close, fork, delete, modes, config or image
    --protocol N          answer initialize with this protocol version
    --ids KIND            ids of its requests: number (from 0 on), text or uuid
    --auth yes            session/new, load and resume answer -32000 until the client has authenticated
    --early yes           send updates of a session before the answer to session/new
    --stray N             send so many updates of another session before the answers to initialize and session/new
    --nag yes             ask for a permission and for input before the answer to initialize
    --replay after        replay a loaded session after the answer, not before
    --load-error yes      refuse load and resume, and forget the session; `exit` ends the process
    --stuck yes           offer no mode but the one it is in
    --start SECONDS       wait before the answer to initialize; `never` gives none
    --mute A,B            give no answer to these methods
    --die METHOD          end when this method is called
    --page N              answer session/list with pages of this size; 0 sends the same empty page for ever
    --exit CODE           end at once with this code
    --banner TEXT         print this line before anything else
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

MODES = {
    "claude": ["default", "acceptEdits", "plan", "auto"],
    "codex": ["read-only", "workspace-write", "agent", "agent-full-access"],
    "gemini": ["default", "autoEdit", "yolo", "plan"],
    "opencode": [],
}
CAPABILITIES = ("load", "resume", "list", "close", "fork", "delete", "modes", "config", "image")
LANE_PERIOD = 0.01  # seconds
FORKED = """import os, signal, sys, time
for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
os.close(int(sys.argv[1]))
while True: time.sleep(60)"""


class RpcError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message, **({} if data is None else {"data": data})}


class Cancelled(Exception):
    """The client cancelled the turn."""


class EndTurn(Exception):
    """The turn ends here with this stop reason."""


class Options:
    """The options of the command line, else those of the environment."""

    def __init__(self, arguments: list[str]) -> None:
        pairs = zip(arguments[::2], arguments[1::2], strict=True)
        self._values = {name.removeprefix("--"): value for name, value in pairs}

    def get(self, name: str, default: str = "") -> str:
        variable = "FAKE_AGENT_" + name.upper().replace("-", "_")
        return self._values.get(name, os.environ.get(variable, default))

    @property
    def style(self) -> str:
        return self.get("style", "claude")

    def has(self, capability: str) -> bool:
        return capability not in self.get("without").split(",")


class Peer:
    """Both directions of the connection: lines out from any thread, answers to our own requests in."""

    def __init__(self, ids: str) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Any, Answer] = {}
        self._ids = _request_ids(ids)

    def write(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[os.write(1, data) :]

    def send(self, message: Json) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def request(self, method: str, params: Json) -> Answer:
        """Send a request. Its answer arrives in the object that this returns."""
        answer = Answer(next(self._ids))
        self._waiting[answer.id] = answer
        self.send({"id": answer.id, "method": method, "params": params})
        return answer

    def resolve(self, message: Json) -> None:
        answer = self._waiting.pop(message.get("id"), None)
        if answer is not None:
            answer.message = message
            answer.arrived.set()


class Answer:
    """The answer to one of our requests, once `arrived` is set."""

    def __init__(self, request_id: Any) -> None:
        self.id = request_id
        self.message: Json = {}
        self.arrived = threading.Event()


def _request_ids(kind: str) -> Iterator[Any]:
    if kind == "uuid":
        import uuid

        return (str(uuid.uuid4()) for _ in itertools.count())
    return (f"request-{number}" if kind == "text" else number for number in itertools.count())


class Session:
    """A conversation, and what the client has set for it."""

    def __init__(self, session_id: str, params: Json, style: str) -> None:
        self.id = session_id
        self.cwd: str = params["cwd"]
        self.mcp_servers: list[Json] = params.get("mcpServers", [])
        self.prompts: list[str] = []
        self.history: list[Json] = []
        self.always: list[str] = []
        self.mode = os.environ.get("INITIAL_AGENT_MODE", "") or (MODES[style] or ["build"])[0]
        self.config: dict[str, Any] = {"model": "alpha", "effort": "low"}
        self.cancelled = threading.Event()
        self.servers: dict[str, McpServer] = {}

    def to_stored(self) -> Json:
        return {name: getattr(self, name) for name in ("id", "cwd", "prompts", "history", "always", "mode", "config")}


class SessionStore:
    """Sessions in memory and, with a directory, in one file each."""

    def __init__(self, directory: str, style: str) -> None:
        self.sessions: dict[str, Session] = {}
        self._directory = Path(directory) if directory else None
        self._style = style

    def find(self, session_id: Any) -> Session:
        """Return an open session. Raises: RpcError."""
        if session_id not in self.sessions:
            raise RpcError(-32002, "Resource not found", {"sessionId": session_id})
        return self.sessions[session_id]

    def add(self, params: Json, stored: Json | None = None) -> Session:
        session_id = f"session-{os.getpid()}-{time.monotonic_ns():x}" if stored is None else params["sessionId"]
        session = Session(session_id, params, self._style)
        for name, value in (stored or {}).items():
            setattr(session, name, params["cwd"] if name == "cwd" else value)
        session.id = session_id
        self.sessions[session.id] = session
        self.save(session)
        return session

    def read(self, session_id: str) -> Json:
        """Return what is stored of a session. Raises: RpcError."""
        path = self._path(session_id)
        if path is not None and path.is_file():
            return json.loads(path.read_text())
        return self.find(session_id).to_stored()

    def list_all(self) -> list[Json]:
        paths = sorted(self._directory.glob("*.json")) if self._directory else []
        stored = [json.loads(path.read_text()) for path in paths]
        return stored or [session.to_stored() for session in self.sessions.values()]

    def save(self, session: Session) -> None:
        path = self._path(session.id)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".draft-{threading.get_ident()}")
            draft.write_text(json.dumps(session.to_stored()))
            draft.replace(path)

    def delete(self, session_id: str) -> None:
        self.sessions.pop(session_id, None)
        path = self._path(session_id)
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, session_id: str) -> Path | None:
        return self._directory / f"{Path(session_id).name}.json" if self._directory else None


class McpServer:
    """A stdio MCP server that this agent has started."""

    def __init__(self, config: Json, cwd: str) -> None:
        self.name: str = config["name"]
        variables = {item["name"]: item["value"] for item in config.get("env", [])}
        self._process = subprocess.Popen(
            [config["command"], *config.get("args", [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **variables},
        )
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[int, Answer] = {}
        threading.Thread(target=self._read, daemon=True).start()
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fake", "version": "1"}}
        self.result(self.request("initialize", params))
        self._send({"method": "notifications/initialized"})
        self.tools: list[str] = [tool["name"] for tool in self.result(self.request("tools/list", {}))["tools"]]

    def request(self, method: str, params: Json) -> Answer:
        answer = Answer(next(self._ids))
        self._waiting[answer.id] = answer
        self._send({"id": answer.id, "method": method, "params": params})
        return answer

    def result(self, answer: Answer) -> Json:
        """Wait for an answer. Raises: RpcError."""
        answer.arrived.wait(60)
        if "result" not in answer.message:
            raise RpcError(-32603, f"MCP server {self.name}: {json.dumps(answer.message.get('error'))}")
        return answer.message["result"]

    def cancel(self, answer: Answer) -> None:
        self._send({"method": "notifications/cancelled", "params": {"requestId": answer.id, "reason": "cancelled"}})

    def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            answer = self._waiting.pop(message.get("id"), None)
            if answer is not None:
                answer.message = message
                answer.arrived.set()
        for answer in list(self._waiting.values()):
            answer.message = {"error": "the server has ended"}
            answer.arrived.set()


class Turn:
    """One prompt: sends its updates, and waits for what the client decides."""

    def __init__(self, peer: Peer, session: Session, options: Options) -> None:
        self.peer = peer
        self.session = session
        self.style = options.style
        self.stop_reason = "end_turn"
        self.usage: Json | None = None
        self.after: list[Json] = []
        self._message_ids = (f"message-{len(session.prompts)}-{number}" for number in itertools.count(1))
        self._calls = itertools.count(1)

    def update(self, kind: str, /, **fields: Any) -> None:
        self.session.history.append({"sessionUpdate": kind, **fields})
        self.send_update({"sessionUpdate": kind, **fields})

    def send_update(self, update: Json) -> None:
        self.peer.send({"method": "session/update", "params": {"sessionId": self.session.id, "update": update}})

    def say(self, text: str, kind: str = "agent_message_chunk") -> None:
        """Stream the text word by word, as one message."""
        marks = {} if self.style == "gemini" else {"messageId": next(self._message_ids)}
        for number, word in enumerate(text.split(" ")):
            self.check()
            self.update(kind, content={"type": "text", "text": f" {word}" if number else word}, **marks)

    def check(self) -> None:
        """Raises: Cancelled."""
        if self.session.cancelled.is_set():
            raise Cancelled

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the time, without one for ever. Raises: Cancelled."""
        if self.session.cancelled.wait(seconds):
            raise Cancelled

    def new_call_id(self, name: str) -> str:
        return f"call-{len(self.session.prompts)}-{next(self._calls)}-{name.split('/')[-1].split(' ')[0]}"

    def await_answer(self, answer: Answer) -> Json:
        """Wait for the client's answer. Raises: Cancelled, RpcError. As codex does, a cancelled request is withdrawn; gemini waits on."""
        while not answer.arrived.wait(0.005):
            if self.session.cancelled.is_set() and self.style not in ("gemini", "opencode"):
                answer.arrived.wait(0.05)
                self.peer.send({"method": "$/cancel_request", "params": {"requestId": answer.id}})
                raise Cancelled
        if "result" not in answer.message:
            raise RpcError(-32603, "The client answered with an error", answer.message.get("error"))
        return answer.message["result"]

    def request_permission(self, call: Json, options: list[tuple[str, str]]) -> Answer:
        offered = [{"optionId": option, "name": option, "kind": kind} for option, kind in options]
        params = {"sessionId": self.session.id, "toolCall": call, "options": offered}
        return self.peer.request("session/request_permission", params)

    def read_outcome(self, answer: Answer, options: list[tuple[str, str]]) -> str:
        """Return the kind of the chosen option. Raises: Cancelled, RpcError for an option that was not offered."""
        outcome = self.await_answer(answer)["outcome"]
        if outcome["outcome"] == "cancelled":
            raise Cancelled
        kinds = dict(options)
        if outcome.get("optionId") not in kinds:
            raise RpcError(-32602, "That option was not offered", outcome)
        return kinds[outcome["optionId"]]


ONCE = [("yes", "allow_once"), ("no", "reject_once")]
USUAL = [("yes", "allow_once"), ("yes-always", "allow_always"), ("no", "reject_once")]
MANY = [("for-tool", "allow_always"), ("for-server", "allow_always"), *ONCE, ("never", "reject_always")]


def step_say(turn: Turn, text: str) -> None:
    turn.say(text)


def step_think(turn: Turn, text: str) -> None:
    turn.say(text or "Two and two.", "agent_thought_chunk")
    turn.say("Four.")


def step_hang(turn: Turn, _: str) -> None:
    turn.say("I begin and")
    turn.wait()


def step_deaf(turn: Turn, _: str) -> None:
    turn.say("I begin and do not hear")
    threading.Event().wait()


def step_finish_anyway(turn: Turn, _: str) -> None:
    """End as usual although the turn was cancelled: the cancellation came too late."""
    turn.say("I finish")
    turn.session.cancelled.wait()
    turn.session.cancelled.clear()
    turn.say("anyway.")


def step_silent(turn: Turn, _: str) -> None:
    turn.wait()


def step_sleep(turn: Turn, seconds: str) -> None:
    turn.wait(float(seconds))


def step_wait(turn: Turn, path: str) -> None:
    """Wait until a file exists."""
    while not Path(turn.session.cwd, path).exists():
        turn.wait(0.005)


def step_crash(turn: Turn, _: str) -> None:
    turn.say("I begin and")
    os.write(2, b"fatal: the fake agent crashes\n")
    os._exit(3)


def step_exit(turn: Turn, code: str) -> None:
    os._exit(int(code or "0"))


def step_tool(turn: Turn, name: str) -> None:
    call = turn.new_call_id(name)
    turn.update("tool_call", toolCallId=call, name=name, title=name, kind="read", status="pending", rawInput={})
    turn.update("tool_call_update", toolCallId=call, status="in_progress", rawInput={"path": "note.txt"})
    content = [_text_block(f"{name} is done")]
    turn.update("tool_call_update", toolCallId=call, status="completed", content=content, rawOutput=f"{name} is done")


def step_ask(turn: Turn, command: str, options: list[tuple[str, str]] = USUAL) -> None:
    """Ask before a command is executed."""
    call = _command_call(turn, command)
    allowed = command in turn.session.always or _is_allowed(
        turn, command, turn.request_permission(call, options), options
    )
    _end_command(turn, call, command, allowed)


def step_ask_once(turn: Turn, command: str) -> None:
    step_ask(turn, command, ONCE)


def step_ask_many(turn: Turn, command: str) -> None:
    step_ask(turn, command, MANY)


def step_ask_always(turn: Turn, command: str) -> None:
    """Ask without an option for this time only."""
    step_ask(turn, command, [("yes-always", "allow_always"), ("no", "reject_once")])


def step_ask_doubled(turn: Turn, command: str) -> None:
    """Ask with ids that occur twice, and with options that lack their id or their kind."""
    options = [("both", "allow_once"), ("twice", "allow_always"), ("twice", "allow_always"), ("both", "reject_always")]
    step_ask(turn, command, [*options, ("bare", ""), ("", "allow_once"), ("no", "reject_once")])


def step_ask_unclear(turn: Turn, command: str) -> None:
    """Ask with one id for everything."""
    step_ask(turn, command, [("both", "allow_once"), ("both", "reject_once")])


def step_ask_edit(turn: Turn, path: str) -> None:
    """Ask before a file is edited."""
    call = {"toolCallId": turn.new_call_id("edit"), "name": "Edit", "title": f"Edit {path}", "kind": "edit"}
    arguments = {"file_path": path, "old_string": "", "new_string": "x"}
    turn.update("tool_call", **call, status="pending", rawInput=arguments)
    answer = turn.request_permission({**call, "rawInput": arguments}, USUAL)
    turn.say("edited" if turn.read_outcome(answer, USUAL).startswith("allow") else "not edited")


def step_ask_beside(turn: Turn, command: str) -> None:
    """Ask, and end another tool while the question is open."""
    call = _command_call(turn, command)
    answer = turn.request_permission(call, USUAL)
    step_tool(turn, "look")
    _end_command(turn, call, command, _is_allowed(turn, command, answer, USUAL))


def step_ask_bare(turn: Turn, command: str) -> None:
    """Ask with nothing but the id of the call, as codex does for tools of MCP servers."""
    call = _command_call(turn, command)
    bare = {"toolCallId": call["toolCallId"], "kind": "execute", "status": "pending"}
    _end_command(turn, call, command, _is_allowed(turn, command, turn.request_permission(bare, USUAL), USUAL))


def step_ask_flood(turn: Turn, count: str) -> None:
    """Ask, and write many chunks while the question is open."""
    call = _command_call(turn, "echo one")
    answer = turn.request_permission(call, USUAL)
    step_wait(turn, "asked")
    step_flood(turn, count)
    _end_command(turn, call, "echo one", _is_allowed(turn, "echo one", answer, USUAL))


def step_ask2(turn: Turn, gap: str) -> None:
    """Two questions that are open together, the second asked `gap` seconds later, while another lane goes on streaming."""
    done = threading.Event()
    lane = threading.Thread(target=_stream_lane, args=(turn, done))
    lane.start()
    try:
        calls = [_command_call(turn, f"echo {name}") for name in ("one", "two")]
        first = turn.request_permission(calls[0], USUAL)
        turn.wait(float(gap or "0.3"))
        asked = [first, turn.request_permission(calls[1], USUAL)]
        for call, answer in zip(calls, asked, strict=True):
            command = call["rawInput"]["command"] if "rawInput" in call else call["title"]
            _end_command(turn, call, command, _is_allowed(turn, command, answer, USUAL))
    finally:
        done.set()
        lane.join()
    turn.say("Both are answered.")


def step_withdraw(turn: Turn, command: str) -> None:
    """Ask, withdraw the question once the file `asked` exists, and go on without an answer."""
    answer = turn.request_permission(_command_call(turn, command), USUAL)
    step_wait(turn, "asked")
    turn.peer.send({"method": "$/cancel_request", "params": {"requestId": answer.id}})
    answer.arrived.wait(60)
    turn.say(f"withdrawn, answered {json.dumps(answer.message.get('result'), sort_keys=True)}")


def step_change(turn: Turn, argument: str) -> None:
    """`change FIRST / SECOND`: ask about the first command and, once the file `asked` exists, make it the second one."""
    first, second = argument.split(" / ")
    call = _command_call(turn, first)
    answer = turn.request_permission(call, USUAL)
    step_wait(turn, "asked")
    turn.update("tool_call_update", toolCallId=call["toolCallId"], rawInput={"command": second})
    Path(turn.session.cwd, "changed").touch()
    _end_command(turn, call, second, _is_allowed(turn, second, answer, USUAL))


def step_switch(turn: Turn, mode: str) -> None:
    """Ask to leave the mode, and do so if it is allowed."""
    call = {"toolCallId": turn.new_call_id("switch"), "title": "Ready?", "kind": "switch_mode", "status": "pending"}
    turn.update("tool_call", **call, name="ExitPlanMode", rawInput={"plan": "Leap."})
    options = [(mode, "allow_always"), ("default", "allow_once"), ("no", "reject_once")]
    allowed = turn.read_outcome(turn.request_permission(call, options), options) == "allow_always"
    turn.update("tool_call_update", toolCallId=call["toolCallId"], status="completed")
    if allowed:
        step_mode(turn, mode)
    turn.say(f"mode {turn.session.mode}")


def _stream_lane(turn: Turn, done: threading.Event) -> None:
    call = turn.new_call_id("lane")
    turn.update("tool_call", toolCallId=call, title="lane", kind="other", status="in_progress", rawInput={})
    for number in itertools.count(1):
        if done.wait(LANE_PERIOD):
            break
        turn.send_update(
            {"sessionUpdate": "tool_call_update", "toolCallId": call, "content": [_text_block(f"tick {number}")]}
        )
        turn.send_update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"{number} "}})
    turn.update("tool_call_update", toolCallId=call, status="completed", content=[_text_block("ticked")])


def _command_call(turn: Turn, command: str) -> Json:
    """Report a command as each agent does, and return the call as its permission request shows it.

    claude reports the input in pieces, opencode another one than it asks about; gemini reports nothing before it asks, and never the input.
    """
    call = {"toolCallId": turn.new_call_id("bash"), "title": command, "kind": "execute", "status": "pending"}
    match turn.style:
        case "gemini":
            return call
        case "claude":
            call["name"] = "Bash"
            turn.update("tool_call", **{**call, "title": "Terminal"}, rawInput={})
            turn.update("tool_call_update", toolCallId=call["toolCallId"], rawInput={"command": command}, title=command)
        case "opencode":
            turn.update("tool_call", **{**call, "title": "bash"}, rawInput={"cwd": turn.session.cwd})
        case _:
            turn.update("tool_call", **{**call, "status": "in_progress"}, rawInput={"command": command})
    return {**call, "rawInput": {"command": command}}


def _is_allowed(turn: Turn, command: str, answer: Answer, options: list[tuple[str, str]]) -> bool:
    kind = turn.read_outcome(answer, options)
    if kind == "allow_always":
        turn.session.always.append(command)
    return kind.startswith("allow")


def _end_command(turn: Turn, call: Json, command: str, allowed: bool) -> None:
    """Execute the command or report that it was rejected; codex and opencode end the turn then."""
    call_id = call["toolCallId"]
    if not allowed:
        turn.update("tool_call_update", toolCallId=call_id, status="failed", content=[_text_block("rejected")])
        if turn.style in ("codex", "opencode"):
            raise EndTurn("cancelled" if turn.style == "codex" else "end_turn")
        turn.say(f"rejected {command}")
        return
    turn.update("tool_call_update", toolCallId=call_id, status="in_progress")
    output = _execute(turn, command)
    content = [] if turn.style == "gemini" else [_text_block(output)]
    turn.update("tool_call_update", toolCallId=call_id, status="completed", content=content, title=command)
    turn.say(f"executed {command}")


def _execute(turn: Turn, command: str) -> str:
    process = subprocess.Popen(
        command,
        shell=True,
        cwd=turn.session.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while process.poll() is None:
        if turn.session.cancelled.wait(0.005):
            process.kill()
    assert process.stdout is not None
    output = process.stdout.read()
    turn.check()
    return output


def step_history(turn: Turn, _: str) -> None:
    turn.say("\n".join(turn.session.prompts))


def step_flood(turn: Turn, count: str) -> None:
    """Write many chunks as fast as possible, in blocks as a busy agent would."""
    params = {"sessionId": turn.session.id, "update": {"sessionUpdate": "agent_message_chunk", "messageId": "flood"}}
    params["update"]["content"] = {"type": "text", "text": "chunk "}
    line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"
    whole, rest = divmod(int(count), 64)
    for _ in range(whole):
        turn.check()
        turn.peer.write(line * 64)
    turn.peer.write(line * rest)


def step_clock(turn: Turn, argument: str) -> None:
    """`clock N GAP`: N chunks, each with the monotonic nanoseconds at which it was written, and the end of a word."""
    _tell_time(turn, argument, "{} ")


def step_ticks(turn: Turn, argument: str) -> None:
    """`ticks N GAP`: the same, but a word ends with the next chunk."""
    _tell_time(turn, argument, " {}")


def _tell_time(turn: Turn, argument: str, form: str) -> None:
    count, gap = argument.split(" ")
    for _ in range(int(count)):
        turn.wait(float(gap))
        content = {"type": "text", "text": form.format(time.monotonic_ns())}
        turn.send_update({"sessionUpdate": "agent_message_chunk", "content": content, "messageId": "clock"})


def step_junk(turn: Turn, _: str) -> None:
    """Everything that an agent must not send, and then an ordinary answer."""
    for line in (b"not JSON", b"{broken", b"\xff\xfe", b"\0", b"", b"null", b"42", b"[" * 5000, b"[{}]", b"{}"):
        turn.peer.write(line + b"\n")
    turn.peer.send({"id": 987654, "result": {"nobody": "asked"}})
    turn.peer.send({"method": "_fake/notice", "params": {"level": "info"}})
    turn.peer.send(
        {"method": "session/update", "params": {"sessionId": "another", "update": {"sessionUpdate": "plan"}}}
    )
    turn.peer.send({"method": "session/update", "params": []})
    for update in (
        {"sessionUpdate": "_surprise", "value": 1},
        {"sessionUpdate": 7},
        {},
        {"sessionUpdate": "tool_call"},
    ):
        turn.send_update(update)
    turn.update("tool_call_update", toolCallId="nobody-began", status="completed", content=[_text_block("orphan")])
    for _ in range(2):
        turn.update("tool_call", toolCallId="doubled", title="doubled", kind="other", status="completed", rawInput={})
    turn.update("tool_call_update", toolCallId="doubled", status="completed", content=[_text_block("twice")])
    answer = turn.peer.request("fake/ask", {"sessionId": turn.session.id})
    answer.arrived.wait(60)
    turn.say(f"still here, and fake/ask was answered {answer.message.get('error', {}).get('code')}")


def step_line(turn: Turn, size: str) -> None:
    """One line of exactly this many bytes with its newline, then a short one."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "@"}, "messageId": "line"}
    params = {"sessionId": turn.session.id, "update": update}
    line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"
    turn.peer.write(line.replace(b"@", b"x" * (int(size) - len(line) + 1)))
    turn.say("The line was sent.")


def step_ignore_term(turn: Turn, _: str) -> None:
    """From here on only SIGKILL ends this process: see `Agent.prepare`."""
    turn.say("Signals are ignored.")


def start_stubborn_child() -> int:
    """Start a process in a session of its own that holds stdout open, and return its id once it ignores signals."""
    ready, is_ready = os.pipe()
    command = [sys.executable, "-I", "-c", FORKED, str(is_ready)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[is_ready])
    os.close(is_ready)
    os.read(ready, 1)
    os.close(ready)
    return child.pid


def step_fork(turn: Turn, _: str) -> None:
    """Start a child in a session of its own that ignores signals and holds stdout open."""
    turn.say(f"child {start_stubborn_child()}")


def step_elicit(turn: Turn, mode: str) -> None:
    colour = {
        "type": "string",
        "title": "Colour",
        "oneOf": [{"const": "red", "title": "Red"}, {"const": "blue", "title": "Blue"}],
    }
    form = {"requestedSchema": {"type": "object", "properties": {"colour": colour}, "required": ["colour"]}}
    url = {"url": "https://example.com/sign-in", "elicitationId": "elicitation-1"}
    params = {"sessionId": turn.session.id, "mode": mode or "form", "message": "Which colour?"}
    answer = turn.await_answer(turn.peer.request("elicitation/create", {**params, **(url if mode else form)}))
    if mode:
        turn.peer.send({"method": "elicitation/complete", "params": {"elicitationId": "elicitation-1"}})
    turn.say(f"answered {json.dumps(answer, sort_keys=True)}")


def step_elicit_with(turn: Turn, params: str) -> None:
    """Ask for input with these parameters, in JSON."""
    asked = {"sessionId": turn.session.id, "message": "Please.", **json.loads(params)}
    answer = turn.await_answer(turn.peer.request("elicitation/create", asked))
    turn.say(f"answered {json.dumps(answer, sort_keys=True)}")


def step_ask_options(turn: Turn, count: str) -> None:
    """Ask with so many options that allow something always, after the usual ones."""
    step_ask(turn, "echo one", [*ONCE, *((f"option-{number}", "allow_always") for number in range(int(count)))])


def step_ask_long(turn: Turn, size: str) -> None:
    """Ask about a call with so many characters of arguments, and tell the error that is answered."""
    call = {"toolCallId": turn.new_call_id("long"), "kind": "execute", "rawInput": {"command": "x" * int(size)}}
    answer = turn.request_permission(call, USUAL)
    answer.arrived.wait(60)
    turn.say(f"answered {answer.message.get('error', {}).get('code')}")


def step_leave(turn: Turn, name: str) -> None:
    """Begin a tool and never report its end."""
    call = turn.new_call_id(name)
    turn.update("tool_call", toolCallId=call, name=name, title=name, kind="read", status="in_progress", rawInput={})


def step_plan(turn: Turn, _: str) -> None:
    for first, second in (("in_progress", "pending"), ("completed", "in_progress"), ("completed", "completed")):
        entries = [
            {"content": "Look", "priority": "high", "status": first},
            {"content": "Leap", "priority": "medium", "status": second},
        ]
        turn.update("plan", entries=entries)
    turn.say("Planned.")


def step_usage(turn: Turn, _: str) -> None:
    turn.update("usage_update", used=1200, size=200000, cost={"amount": 0.25, "currency": "USD"})
    turn.usage = {
        "totalTokens": 31,
        "inputTokens": 11,
        "outputTokens": 7,
        "thoughtTokens": 5,
        "cachedReadTokens": 6,
        "cachedWriteTokens": 2,
    }
    turn.say("Counted.")


def step_title(turn: Turn, title: str) -> None:
    turn.update("session_info_update", title=title)


def step_mode(turn: Turn, mode: str) -> None:
    """The agent changes its own mode; gemini tells it as text."""
    turn.session.mode = mode
    if turn.style == "gemini":
        turn.update("agent_message_chunk", content={"type": "text", "text": f"[MODE_UPDATE] {mode}"})
    else:
        turn.update("current_mode_update", currentModeId=mode)


def step_commands(turn: Turn, _: str) -> None:
    turn.update("available_commands_update", availableCommands=[{"name": "plan", "description": "Plan first."}])


def step_notice(turn: Turn, text: str) -> None:
    turn.update("notice", severity="warning", title="Notice", description=text)


def step_image(turn: Turn, _: str) -> None:
    turn.update("agent_message_chunk", content={"type": "image", "data": "aGk=", "mimeType": "image/png"})


def step_diff(turn: Turn, path: str) -> None:
    call = turn.new_call_id("edit")
    change = {"type": "diff", "path": str(Path(turn.session.cwd, path)), "oldText": "old\n", "newText": "new\n"}
    turn.update("tool_call", toolCallId=call, title=f"Edit {path}", kind="edit", status="pending", content=[change])
    turn.update("tool_call_update", toolCallId=call, status="completed", content=[change], locations=[{"path": path}])


def step_terminal(turn: Turn, text: str) -> None:
    """Output of a command only in `_meta`, as codex sends it."""
    call = turn.new_call_id("terminal")
    shown = [{"type": "terminal", "terminalId": call}]
    turn.update("tool_call", toolCallId=call, title="make", kind="execute", status="in_progress", content=shown)
    for word in text.split(" "):
        delta = {"terminal_output_delta": {"data": f"{word}\n", "terminal_id": call}}
        turn.update("tool_call_update", toolCallId=call, _meta=delta)
    exit_code = {"terminal_exit": {"exit_code": 0, "signal": None, "terminal_id": call}}
    turn.update("tool_call_update", toolCallId=call, status="completed", _meta=exit_code)


def step_subagent(turn: Turn, text: str) -> None:
    """A subagent whose calls and text carry the call that started it, as claude sends them."""
    parent, inner = turn.new_call_id("task"), turn.new_call_id("inner")
    task = {"claudeCode": {"toolName": "Task"}}
    child = {"claudeCode": {"toolName": "Read", "parentToolUseId": parent}}
    turn.update(
        "tool_call", toolCallId=parent, title="Task", kind="think", status="in_progress", rawInput={}, _meta=task
    )
    turn.update("tool_call", toolCallId=inner, title="Read", kind="read", status="pending", rawInput={}, _meta=child)
    turn.update("tool_call_update", toolCallId=inner, status="completed", content=[_text_block("read")], _meta=child)
    turn.update("tool_call_update", toolCallId=parent, status="completed", content=[_text_block(text)], _meta=task)


def step_subagent_ask(turn: Turn, command: str) -> None:
    """A subagent asks before a command is executed."""
    parent = turn.new_call_id("task")
    child = {"_meta": {"claudeCode": {"toolName": "Bash", "parentToolUseId": parent}}}
    call = {"toolCallId": turn.new_call_id("bash"), "title": command, "kind": "execute", "status": "pending", **child}
    turn.update(
        "tool_call", toolCallId=parent, name="Task", title="Task", kind="think", status="in_progress", rawInput={}
    )
    turn.update("tool_call", **call, name="Bash", rawInput={"command": command})
    answer = turn.request_permission({**call, "rawInput": {"command": command}}, USUAL)
    status = "completed" if _is_allowed(turn, command, answer, USUAL) else "failed"
    turn.update("tool_call_update", toolCallId=call["toolCallId"], status=status, content=[_text_block("ran")], **child)
    turn.update("tool_call_update", toolCallId=parent, status="completed", content=[_text_block("told")])
    turn.say("The subagent is done.")


def step_mcp(turn: Turn, argument: str) -> None:
    """`mcp TOOL {"a": 1} {"a": 2}`: call a tool of the client's MCP servers, once per object, all at the same time."""
    tool, _, rest = argument.partition(" ")
    server = next((server for server in _servers(turn.session) if tool in server.tools), None)
    if server is None:
        turn.say(f"no server has {tool}")
        return
    calls = [McpCall(turn, server, tool, arguments) for arguments in _read_objects(rest)]
    for call in calls:
        call.start()
    said = [call.finish() for call in calls]
    turn.say(f"The tool answered: {' and '.join(said)}")


def step_lane_mcp(turn: Turn, argument: str) -> None:
    """As `mcp`, while another lane goes on streaming."""
    _beside_lane(turn, lambda: step_mcp(turn, argument))


def step_lane_ask(turn: Turn, argument: str) -> None:
    """As `mcp`, while a question is open and another lane goes on streaming."""

    def ask() -> None:
        answer = turn.request_permission(_command_call(turn, "echo one"), USUAL)
        step_mcp(turn, argument)
        turn.await_answer(answer)

    _beside_lane(turn, ask)


def _beside_lane(turn: Turn, action: Callable[[], None]) -> None:
    done = threading.Event()
    lane = threading.Thread(target=_stream_lane, args=(turn, done))
    lane.start()
    try:
        action()
    finally:
        done.set()
        lane.join()


def step_mcp_impatient(turn: Turn, argument: str) -> None:
    """As `mcp`, but give the call up once the file `asked` exists."""
    tool, _, rest = argument.partition(" ")
    server = next(server for server in _servers(turn.session) if tool in server.tools)
    answer = server.request("tools/call", {"name": tool, "arguments": json.loads(rest)})
    step_wait(turn, "asked")
    server.cancel(answer)


def step_mcp_list(turn: Turn, _: str) -> None:
    turn.say(" ".join(f"{server.name}/{tool}" for server in _servers(turn.session) for tool in server.tools))


class McpCall:
    """One call of an MCP tool, reported in the style of an agent."""

    def __init__(self, turn: Turn, server: McpServer, tool: str, arguments: Json) -> None:
        self.turn, self.server, self.tool, self.arguments = turn, server, tool, arguments
        call_id = turn.new_call_id(tool)
        self.id = f"mcp_{server.name}_{tool}__{call_id}" if turn.style == "gemini" else call_id
        self._answer: Answer | None = None

    def start(self) -> None:
        """Report the call, ask for permission where the agent does, and send it. Raises: Cancelled, EndTurn."""
        announce = {
            "claude": self._start_claude,
            "codex": self._start_codex,
            "gemini": self._start_gemini,
            "opencode": self._start_opencode,
        }
        meta = announce[self.turn.style]()
        params = {"name": self.tool, "arguments": self.arguments}
        self._answer = self.server.request("tools/call", params if meta is None else {**params, "_meta": meta})

    def finish(self) -> str:
        """Wait for the result, report it and return its text. Raises: Cancelled."""
        assert self._answer is not None
        while not self._answer.arrived.wait(0.005):
            if self.turn.session.cancelled.is_set():
                self.server.cancel(self._answer)
                self._update("failed")
                raise Cancelled
        result = self.server.result(self._answer)
        text = " ".join(block.get("text", f"[{block['type']}]") for block in result["content"])
        status = "failed" if result.get("isError") else "completed"
        blocks = [{"type": "content", "content": block} for block in result["content"]]
        match self.turn.style:
            case "codex":
                self._update(status, rawOutput={"result": {**result, "_meta": None}, "error": None})
            case "opencode":
                self._update(status, content=blocks, rawOutput={"output": text, "metadata": {"truncated": False}})
            case "gemini":
                self._update(status, title=self._gemini_title, content=blocks, locations=[], kind="other")
            case _:
                self._update(status, content=blocks, rawOutput=result["content"], _meta=self._claude_meta)
        return text

    @property
    def _claude_meta(self) -> Json:
        return {"claudeCode": {"toolName": f"mcp__{self.server.name}__{self.tool}"}}

    @property
    def _gemini_title(self) -> str:
        return f"{self.tool} ({self.server.name} MCP Server)"

    def _update(self, status: str, **fields: Any) -> None:
        self.turn.update("tool_call_update", toolCallId=self.id, status=status, **fields)

    def _start_claude(self) -> Json:
        name, meta = f"mcp__{self.server.name}__{self.tool}", self._claude_meta
        call = {"toolCallId": self.id, "name": name, "title": name, "kind": "other", "status": "pending", "content": []}
        self.turn.update("tool_call", **call, rawInput={}, _meta=meta)
        self.turn.update("tool_call_update", toolCallId=self.id, rawInput=self.arguments, _meta=meta)
        self._ask({**call, "rawInput": self.arguments, "_meta": meta})
        return {"claudecode/toolUseId": self.id}

    def _start_codex(self) -> Json:
        raw = {"server": self.server.name, "tool": self.tool, "arguments": self.arguments}
        self.turn.update(
            "tool_call",
            toolCallId=self.id,
            title=f"mcp.{self.server.name}.{self.tool}",
            kind="execute",
            status="in_progress",
            rawInput=raw,
            _meta={"is_mcp_tool_call": True},
        )
        self._ask({"toolCallId": self.id, "kind": "execute", "status": "pending"})
        self._update("in_progress")
        return {"callId": self.id}

    def _start_gemini(self) -> None:
        self._ask(
            {
                "toolCallId": self.id,
                "status": "pending",
                "title": self._gemini_title,
                "content": [],
                "locations": [],
                "kind": "other",
            }
        )

    def _start_opencode(self) -> None:
        call = {"toolCallId": self.id, "title": f"{self.server.name}_{self.tool}", "kind": "other", "locations": []}
        self.turn.update("tool_call", **call, status="pending", rawInput={})
        self.turn.update("tool_call_update", **call, status="in_progress", rawInput=self.arguments)

    def _ask(self, call: Json) -> None:
        answer = self.turn.request_permission(call, MANY)
        if not self.turn.read_outcome(answer, MANY).startswith("allow"):
            self._update("failed")
            raise EndTurn("end_turn")


def _servers(session: Session) -> list[McpServer]:
    """Return the session's stdio servers, started by the first that asks."""
    for config in session.mcp_servers:
        if "command" in config and config["name"] not in session.servers:
            session.servers[config["name"]] = McpServer(config, session.cwd)
    return list(session.servers.values())


def _read_objects(text: str) -> list[Json]:
    decoder, objects, position = json.JSONDecoder(), list[Json](), 0
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        objects.append(value)
        position += len(text[position:]) - len(text[position:].lstrip())
    return objects or [{}]


def step_login(turn: Turn, _: str) -> None:
    raise RpcError(-32000, "Authentication required", {"authMethods": AUTH_METHODS})


def step_env(turn: Turn, name: str) -> None:
    """Tell the names of its variables and its directory, or one variable's value."""
    told = {"cwd": str(Path.cwd()), "names": sorted(os.environ), "pid": os.getpid()}
    turn.say(os.environ.get(name, "unset") if name else json.dumps(told))


def step_write(turn: Turn, argument: str) -> None:
    """`write PATH TEXT`, without a question."""
    path, _, text = argument.partition(" ")
    turn.say(_attempt(lambda: f"wrote {Path(turn.session.cwd, path).write_text(text)} characters"))


def step_read(turn: Turn, path: str) -> None:
    turn.say(_attempt(lambda: f"read {Path(turn.session.cwd, path).read_text()}"))


def step_connect(turn: Turn, argument: str) -> None:
    """`connect HOST PORT`"""
    import socket

    host, port = argument.split(" ")

    def connect() -> str:
        with socket.create_connection((host, int(port)), timeout=10):
            return f"connected to {host} {port}"

    turn.say(_attempt(connect))


def step_get(turn: Turn, argument: str) -> None:
    """`get URL [HEADER=VALUE]`: an HTTP request, through the proxy of its variables."""
    import urllib.request

    url, _, header = argument.partition(" ")
    name, _, value = header.partition("=")
    request = urllib.request.Request(url, headers={name: value} if name else {})

    def get() -> str:
        with urllib.request.urlopen(request, timeout=10) as response:
            return f"got {response.status} {response.read().decode()}"

    turn.say(_attempt(get))


def _attempt(action: Callable[[], str]) -> str:
    try:
        return action()
    except OSError as error:
        return f"failed: {type(error).__name__}"


def step_stop_reason(turn: Turn, reason: str) -> None:
    turn.say("I stop.")
    turn.stop_reason = reason


def step_error(turn: Turn, message: str) -> None:
    turn.say("I begin and")
    raise RpcError(-32603, message or "Internal error", {"errorKind": "overloaded"})


def step_error_text(turn: Turn, message: str) -> None:
    """An error told as text, with `end_turn`."""
    turn.say(message or "API Error: 529 overloaded")
    if turn.style == "codex":
        turn.update("session_info_update", _meta={"codex": {"threadStatus": {"type": "systemError"}}})


def step_retry(turn: Turn, _: str) -> None:
    """Tell, as codex does, that the model did not answer and is asked again."""
    error = {"message": "Reconnecting... 1/5", "willRetry": True}
    turn.update("session_info_update", _meta={"codex": {"error": error}})


def step_late(turn: Turn, text: str) -> None:
    """Updates that come after the prompt's answer."""
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text or "too late"}}
    turn.say("In time.")
    turn.after += [chunk, {"sessionUpdate": "session_info_update", "title": "A late title"}]


def step_linger(turn: Turn, command: str) -> None:
    """Write after the turn was cancelled: before its end and after it. With a command, ask about it before."""
    try:
        turn.say("I begin.")
        if command:
            step_ask(turn, command)
        turn.wait()
    except Cancelled:
        for kind in ("agent_message_chunk", "agent_thought_chunk"):
            chunk = {"sessionUpdate": kind, "content": {"type": "text", "text": "I linger."}}
            image = {"sessionUpdate": kind, "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}}
            turn.send_update(chunk)
            turn.after += [chunk, image]
        turn.after.append({"sessionUpdate": "session_info_update", "title": "A late title"})
        raise


def step_session(turn: Turn, _: str) -> None:
    """Tell what the client has set: the mode, the options, the servers and the capabilities it declared."""
    session = turn.session
    told = {
        "mode": session.mode,
        "config": session.config,
        "cwd": session.cwd,
        "servers": [server["name"] for server in session.mcp_servers],
        "client": CLIENT,
    }
    turn.say(json.dumps(told, sort_keys=True))


def _text_block(text: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": text}}


STEPS: dict[str, Callable[[Turn, str], None]] = {
    name.removeprefix("step_").replace("_", "-"): step
    for name, step in list(globals().items())
    if name.startswith("step_")
}
AUTH_METHODS = [{"id": "fake-login", "name": "Log in", "description": "Run `fake login` in the terminal"}]
CLIENT: Json = {}
"""The parameters of the client's initialize."""


class Agent:
    """The methods of ACP."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.style = options.style
        self.peer = Peer(options.get("ids", "number"))
        self.store = SessionStore(options.get("sessions"), self.style)
        self.is_stubborn = False
        self._is_authenticated = options.get("auth") != "yes"
        self._methods: dict[str, Callable[[Json], Any]] = {
            "initialize": self.initialize,
            "authenticate": self.authenticate,
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/resume": self.resume_session,
            "session/fork": self.fork_session,
            "session/list": self.list_sessions,
            "session/close": self.close_session,
            "session/delete": self.delete_session,
            "session/set_mode": self.set_mode,
            "session/set_config_option": self.set_config_option,
        }

    def serve(self) -> None:
        """Serve until stdin ends."""
        journal = self.options.get("journal")
        for line in sys.stdin.buffer:
            if journal:
                with Path(journal).open("a") as file:
                    file.write(f'{{"t": {time.monotonic():.6f}, "dir": "c2a", "msg": {line.decode().strip()}}}\n')
            try:
                message = json.loads(line)
            except ValueError:
                self.peer.send({"id": None, "error": {"code": -32700, "message": "Parse error"}})
                continue
            self.handle(message)

    def handle(self, message: Json) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            self.peer.resolve(message)
        elif method == "session/cancel":
            self.cancel_turn(params["sessionId"])
        elif "id" not in message:
            pass
        elif method == "session/prompt":
            self.begin_prompt(message["id"], params)
        else:
            self.answer(message["id"], lambda: self.call(method, params))

    def cancel_turn(self, session_id: str) -> None:
        if session_id in self.store.sessions:
            self.store.sessions[session_id].cancelled.set()

    def call(self, method: str, params: Json) -> Any:
        if method not in self._methods:
            raise RpcError(-32601, "Method not found", {"method": method})
        if method == self.options.get("die"):
            os._exit(6)
        if method in self.options.get("mute").split(","):
            return None
        return self._methods[method](params)

    def answer(self, request_id: Any, compute: Callable[[], Any]) -> None:
        try:
            result = compute()
            if result is not None:
                self.peer.send({"id": request_id, "result": result})
        except RpcError as error:
            self.peer.send({"id": request_id, "error": error.body})

    def initialize(self, params: Json) -> Json | None:
        CLIENT.update(params)
        delay = self.options.get("start", "0")
        if delay == "never":
            return None
        time.sleep(float(delay))
        self._send_strays()
        if self.options.get("nag") == "yes":
            call = {"toolCallId": "early", "title": "early", "kind": "execute"}
            offered = [{"optionId": "yes", "name": "yes", "kind": "allow_once"}]
            self.peer.request("session/request_permission", {"sessionId": "x", "toolCall": call, "options": offered})
            self.peer.request("elicitation/create", {"mode": "form", "message": "Sign in", "requestedSchema": {}})
        offered = {name: {} for name in ("resume", "list", "close", "fork", "delete") if self.options.has(name)}
        return {
            "protocolVersion": int(self.options.get("protocol", "1")),
            "agentInfo": {"name": f"fake-{self.style}", "title": "Fake agent", "version": "1.0"},
            "agentCapabilities": {
                "loadSession": self.options.has("load"),
                "promptCapabilities": {"image": self.options.has("image"), "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": offered,
            },
            "authMethods": [] if self._is_authenticated else AUTH_METHODS,
        }

    def authenticate(self, params: Json) -> Json:
        self._is_authenticated = True
        return {}

    def new_session(self, params: Json) -> Json:
        self._check_session(params)
        session = self.store.add(params)
        self._send_strays()
        if self.options.get("early") == "yes":
            self._announce(session)
        return {"sessionId": session.id, **self._settings(session)}

    def load_session(self, params: Json) -> Json | None:
        session = self._reopen(params, "load")
        replay = [{"sessionUpdate": "session_info_update", "title": "Loaded"}, *session.history]
        if self.options.get("replay") == "after":
            threading.Thread(target=self._replay_later, args=(session, replay)).start()
        else:
            self._send_updates(session, replay)
        return self._settings(session)

    def resume_session(self, params: Json) -> Json:
        return self._settings(self._reopen(params, "resume"))

    def fork_session(self, params: Json) -> Json:
        self._require("fork")
        stored = self.store.read(params["sessionId"])
        session = self.store.add({"mcpServers": [], **params, "sessionId": f"{params['sessionId']}-fork"}, stored)
        return {"sessionId": session.id, **self._settings(session)}

    def list_sessions(self, params: Json) -> Json:
        self._require("list")
        found = [_session_info(stored) for stored in self.store.list_all()]
        found = [info for info in found if params.get("cwd") in (None, info["cwd"])]
        size, start = int(self.options.get("page", "1000")), int(params.get("cursor", "0"))
        following = {"nextCursor": str(start + size)} if start + size < len(found) or size == 0 else {}
        return {"sessions": found[start : start + size], **following}

    def close_session(self, params: Json) -> Json:
        self._require("close")
        self.store.find(params["sessionId"]).cancelled.set()
        del self.store.sessions[params["sessionId"]]
        return {}

    def delete_session(self, params: Json) -> Json:
        self._require("delete")
        self.store.delete(params["sessionId"])
        return {}

    def set_mode(self, params: Json) -> Json:
        session = self.store.find(params["sessionId"])
        if params["modeId"] not in MODES[self.style] and not params["modeId"].startswith("permission-profile:"):
            raise RpcError(-32602, "Unknown mode", {"modeId": params["modeId"]})
        session.mode = params["modeId"]
        if self.style == "gemini":
            text = {"type": "text", "text": f"[MODE_UPDATE] {session.mode}"}
            self._send_updates(session, [{"sessionUpdate": "agent_message_chunk", "content": text}])
        else:
            self._send_updates(session, [{"sessionUpdate": "current_mode_update", "currentModeId": session.mode}])
        return {}

    def set_config_option(self, params: Json) -> Json:
        session = self.store.find(params["sessionId"])
        if params["configId"] == "mode":
            session.mode = params["value"]
        else:
            session.config[params["configId"]] = params["value"]
        options = self._config_options(session)
        self._send_updates(session, [{"sessionUpdate": "config_option_update", "configOptions": options}])
        return {"configOptions": options}

    def begin_prompt(self, request_id: Any, params: Json) -> None:
        """Run a prompt in a thread of its own: the client can cancel it, and other requests are answered meanwhile."""
        try:
            session = self.store.find(params.get("sessionId"))
        except RpcError as error:
            self.peer.send({"id": request_id, "error": error.body})
            return
        texts = [_block_text(block) for block in params["prompt"]]
        texts = [text for text in texts if not text.startswith("<instructions>")] or texts
        script = [text for text in texts if text.strip()][-1].strip().splitlines()[-1]
        session.prompts.append("\n".join(texts))
        session.history.append({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": texts[-1]}})
        session.cancelled.clear()
        self.store.save(session)
        if script.startswith("ignore-term"):
            self._ignore_signals()
        threading.Thread(target=self._run_prompt, args=(request_id, session, script), daemon=True).start()

    def _ignore_signals(self) -> None:
        """Only the main thread can do this."""
        self.is_stubborn = True
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _run_prompt(self, request_id: Any, session: Session, script: str) -> None:
        turn = Turn(self.peer, session, self.options)
        self.answer(request_id, lambda: self._perform(turn, script))
        self.store.save(session)
        self._send_updates(session, turn.after)

    def _perform(self, turn: Turn, script: str) -> Json:
        try:
            for part in script.split(" then "):
                word, _, argument = part.strip().partition(" ")
                if word in STEPS:
                    STEPS[word](turn, argument.strip())
                else:
                    turn.say(f"I do not know {word!r}.")
        except Cancelled:
            return {"stopReason": "cancelled"}
        except EndTurn as end:
            return {"stopReason": str(end)}
        return {"stopReason": turn.stop_reason, **({} if turn.usage is None else {"usage": turn.usage})}

    def _check_session(self, params: Json) -> None:
        if not self._is_authenticated:
            raise RpcError(-32000, "Authentication required", {"authMethods": AUTH_METHODS})
        if not isinstance(params.get("mcpServers"), list) or not Path(params.get("cwd", "")).is_absolute():
            raise RpcError(-32602, "Invalid params")

    def _reopen(self, params: Json, capability: str) -> Session:
        self._require(capability)
        self._check_session(params)
        if self.options.get("load-error") == "exit":
            os._exit(4)
        if self.options.get("load-error") == "yes":
            self.store.delete(params["sessionId"])
            raise RpcError(-32603, "Internal error", {"details": "No previous sessions found"})
        return self.store.add(params, self.store.read(params["sessionId"]))

    def _require(self, capability: str) -> None:
        if not self.options.has(capability):
            raise RpcError(-32601, "Method not found")

    def _settings(self, session: Session) -> Json:
        settings: Json = {}
        if MODES[self.style] and self.options.has("modes"):
            offered = [session.mode] if self.options.get("stuck") == "yes" else MODES[self.style]
            available = [{"id": mode, "name": mode.title()} for mode in offered]
            settings["modes"] = {"currentModeId": session.mode, "availableModes": available}
        if self.style != "gemini" and self.options.has("config") and self.options.get("stuck") != "yes":
            settings["configOptions"] = self._config_options(session)
        return settings

    def _config_options(self, session: Session) -> list[Json]:
        choices = {
            "mode": ("mode", MODES[self.style] or ["build", "plan"], session.mode),
            "model": ("model", ["alpha", "beta"], session.config["model"]),
            "effort": ("thought_level", ["low", "high"], session.config["effort"]),
        }
        return [
            {
                "id": name,
                "name": name.title(),
                "category": category,
                "type": "select",
                "currentValue": value,
                "options": [{"value": choice, "name": choice.title()} for choice in values],
            }
            for name, (category, values, value) in choices.items()
        ]

    def _announce(self, session: Session) -> None:
        commands = [{"name": "early", "description": "Sent before the session was known."}]
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        self._send_updates(session, [update, {"sessionUpdate": "session_info_update", "title": "An early title"}])

    def _send_strays(self) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "stray "}}
        for _ in range(int(self.options.get("stray", "0"))):
            self.peer.send({"method": "session/update", "params": {"sessionId": "another", "update": update}})

    def _replay_later(self, session: Session, replay: list[Json]) -> None:
        time.sleep(0.05)
        self._send_updates(session, replay)

    def _send_updates(self, session: Session, updates: list[Json]) -> None:
        for update in updates:
            self.peer.send({"method": "session/update", "params": {"sessionId": session.id, "update": update}})


def _session_info(stored: Json) -> Json:
    title = {"title": stored["prompts"][0]} if stored["prompts"] else {}
    return {"sessionId": stored["id"], "cwd": stored["cwd"], **title, "updatedAt": "2026-01-02T03:04:05Z"}


def _block_text(block: Json) -> str:
    match block.get("type"):
        case "text":
            return block["text"]
        case "resource":
            return block["resource"].get("text", "[blob]")
        case "resource_link":
            return f"[link {block['uri']}]"
        case kind:
            return f"[{kind}]"


def main() -> None:
    options = Options(sys.argv[1:])
    if options.get("banner"):
        os.write(1, options.get("banner").encode() + b"\n")
    if options.get("exit"):
        os.write(2, b"fatal: the fake agent does not start\n")
        os._exit(int(options.get("exit")))
    agent = Agent(options)
    agent.serve()
    while agent.is_stubborn:
        time.sleep(60)
    os._exit(0)


if __name__ == "__main__":
    main()
