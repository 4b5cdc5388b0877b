"""A fake command-line agent, scripted by the words of its prompt. A program of its own: `python -I fake_cli.py [--option value]…`.

The last line of its prompt is its script: steps joined by ` then `, each a word of `STEPS` and its argument, such as `say hello there`.
The prompt is the value of `--prompt`, else it comes from the standard input.

    --format NAME       print text (default), or JSON as codex, gemini, opencode or claude does
    --prompt TEXT       the prompt
    --resume ID         continue this session; `--sessions` must have it
    --sessions DIR      keep sessions here: one file with the prompts of each
    --stay yes          do not exit at the end of the turn
    --stale FILE        write the notify line of this turn to the file that an earlier turn left here, and remember that of this turn
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORKED = """import os, signal, sys, time
for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
os.close(int(sys.argv[1]))
while True: time.sleep(60)"""


def write(text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]


def write_json(**line: Any) -> None:
    write(json.dumps(line) + "\n")


class Turn:
    """One turn: prints in the format of a command."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.format = options.get("format", "text")
        self.session = options.get("resume") or str(uuid.uuid4())
        self.prompt = options["prompt"] if "prompt" in options else sys.stdin.read()
        self.count = 0

    def start(self) -> None:
        match self.format:
            case "codex":
                write_json(type="thread.started", thread_id=self.session)
                write_json(type="turn.started")
            case "gemini":
                write_json(type="init", session_id=self.session, model="fake")
                write_json(type="message", role="user", content=self.prompt)
            case "opencode":
                write_json(type="step_start", sessionID=self.session, part={"type": "step-start"})
            case "claude":
                write_json(type="system", subtype="init", session_id=self.session)
            case _:
                pass

    def say(self, text: str) -> None:
        """Print a text: whole, in pieces, or both, as the command does."""
        match self.format:
            case "codex":
                write_json(type="item.completed", item={"id": self.new_id(), "type": "agent_message", "text": text})
            case "gemini":
                for piece in _pieces(text):
                    write_json(type="message", role="assistant", content=piece, delta=True)
            case "opencode":
                part = {"id": self.new_id(), "type": "text", "text": text}
                write_json(type="text", sessionID=self.session, part=part)
            case "claude":
                for piece in _pieces(text):
                    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}
                    write_json(type="stream_event", event=delta, parent_tool_use_id=None)
                message = {"id": self.new_id(), "content": [{"type": "text", "text": text}]}
                write_json(type="assistant", message=message, parent_tool_use_id=None)
            case _:
                write(text + "\n")

    def call(self, name: str, arguments: dict[str, Any], output: str) -> None:
        """Print a tool call with its result."""
        call = self.new_id()
        match self.format:
            case "codex":
                item = {"id": call, "type": "command_execution", **arguments}
                write_json(type="item.started", item={**item, "status": "in_progress", "exit_code": None})
                write_json(type="item.completed", item={**item, "aggregated_output": output, "exit_code": 0})
            case "gemini":
                write_json(type="tool_use", tool_name=name, tool_id=call, parameters=arguments)
                write_json(type="tool_result", tool_id=call, status="success", output=output)
            case "opencode":
                state = {"status": "completed", "input": arguments, "output": output}
                write_json(type="tool_use", sessionID=self.session, part={"tool": name, "callID": call, "state": state})
            case "claude":
                block = {"type": "tool_use", "id": call, "name": name, "input": arguments}
                write_json(type="assistant", message={"content": [block]})
                result = {"type": "tool_result", "tool_use_id": call, "content": output}
                write_json(type="user", message={"content": [result]})
            case _:
                write(f"[{name} {json.dumps(arguments)}]\n{output}\n")

    def end(self, reason: str = "end_turn") -> None:
        tokens = {"input_tokens": 7, "output_tokens": 3}
        match self.format:
            case "codex":
                write_json(type="turn.completed", usage=tokens)
            case "gemini":
                write_json(type="result", status="success", stats={**tokens, "cached": 2})
            case "opencode":
                reasons = {"end_turn": "stop", "max_tokens": "length", "refusal": "content-filter"}
                part = {
                    "reason": reasons[reason],
                    "tokens": {"input": 7, "output": 3, "cache": {"read": 2, "write": 0}},
                }
                write_json(type="step_finish", sessionID=self.session, part=part)
            case "claude":
                answer = "the whole answer once more"
                write_json(type="result", subtype="success", stop_reason=reason, result=answer, usage=tokens)
            case _:
                pass

    def new_id(self) -> str:
        self.count += 1
        return f"item_{self.count}"


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if not number else f" {word}" for number, word in enumerate(words)]


def step_say(turn: Turn, text: str) -> None:
    turn.say(text)


def step_think(turn: Turn, text: str) -> None:
    write_json(type="item.completed", item={"id": turn.new_id(), "type": "reasoning", "text": text or "Let me see."})


def step_run(turn: Turn, command: str) -> None:
    turn.call("bash", {"command": command}, f"ran {command}")


def step_history(turn: Turn, _: str) -> None:
    """Tell everything that is known of the conversation."""
    turn.say("\n".join([*read_session(turn), turn.prompt]))


def step_environment(turn: Turn, _: str) -> None:
    told = {name: os.environ.get(name, "") for name in ("HOME", "PWD")}
    turn.say(json.dumps({"names": sorted(os.environ), "cwd": str(Path.cwd()), **told}))


def step_arguments(turn: Turn, _: str) -> None:
    turn.say(json.dumps(sys.argv[1:]))


def step_lines(turn: Turn, count: str) -> None:
    for number in range(int(count)):
        turn.say(f"line {number}")


def step_raw(turn: Turn, text: str) -> None:
    """Print this as it is, with the escapes of a Python string."""
    write(text.encode().decode("unicode_escape"))


def step_flood(turn: Turn, size: str) -> None:
    write('{"type": "flood", "x": "' + "x" * int(size) + '"}\n')


def step_hang(turn: Turn, _: str) -> None:
    turn.say("I begin and")
    time.sleep(3600)


def step_silent(turn: Turn, _: str) -> None:
    time.sleep(3600)


def step_crash(turn: Turn, _: str) -> None:
    turn.say("I begin and")
    os.write(2, b"fatal: the fake command has crashed\n")
    os._exit(3)


def step_fail(turn: Turn, _: str) -> None:
    """End with an error before anything was said."""
    os.write(2, b"fatal: no\n")
    os._exit(4)


def step_error(turn: Turn, message: str) -> None:
    """Report an error, and end as if nothing were wrong."""
    write_json(type="error", message=message or "overloaded")


def step_stop_reason(turn: Turn, reason: str) -> None:
    turn.end(reason)


def start_stubborn_child() -> int:
    """Start a process in a session of its own that holds stdout open, and return its id once it ignores signals."""
    ready, is_ready = os.pipe()
    command = [sys.executable, "-I", "-c", FORKED, str(is_ready)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[is_ready])
    os.close(is_ready)
    os.read(ready, 1)
    os.close(ready)
    return child.pid


def step_stubborn(turn: Turn, _: str) -> None:
    """Ignore signals from now on, and leave a process that does so too, outside of the group."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    start_stubborn_child()


def step_fork(turn: Turn, _: str) -> None:
    """Leave a process that keeps the output open."""
    start_stubborn_child()


def step_close_output(turn: Turn, seconds: str) -> None:
    """Close the output, and end some time later with an error."""
    turn.say("that is all")
    os.close(1)
    time.sleep(float(seconds))
    os._exit(5)


def step_notify(turn: Turn, text: str) -> None:
    notify(text or "done")


def step_unfinished_notify(turn: Turn, text: str) -> None:
    with Path(os.environ["AMBIENT_NOTIFY"]).open("a") as file:
        file.write(text or "done")


def notify(line: str) -> None:
    with Path(os.environ["AMBIENT_NOTIFY"]).open("a") as file:
        file.write(line + "\n")


def notify_earlier_turn(file: Path) -> None:
    if file.exists():
        earlier = Path(file.read_text())
        try:
            with earlier.open("a") as target:
                target.write("done\n")
        except OSError:
            pass
    file.write_text(os.environ["AMBIENT_NOTIFY"])


def step_wait(turn: Turn, seconds: str) -> None:
    time.sleep(float(seconds))


def read_session(turn: Turn) -> list[str]:
    file = session_file(turn)
    return json.loads(file.read_text()) if file is not None and file.exists() else []


def save_session(turn: Turn) -> None:
    file = session_file(turn)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([*read_session(turn), turn.prompt]))


def session_file(turn: Turn) -> Path | None:
    return Path(turn.options["sessions"]) / f"{turn.session}.json" if "sessions" in turn.options else None


STEPS: dict[str, Callable[[Turn, str], None]] = {
    name.removeprefix("step_").replace("_", "-"): step
    for name, step in list(globals().items())
    if name.startswith("step_")
}


def main() -> None:
    arguments = sys.argv[1:]
    options = {name.removeprefix("--"): value for name, value in zip(arguments[::2], arguments[1::2], strict=True)}
    turn = Turn(options)
    file = session_file(turn)
    if "resume" in options and (file is None or not file.exists()):
        os.write(2, b"No conversation found with this id\n")
        os._exit(1)
    if "stale" in options:
        notify_earlier_turn(Path(options["stale"]))
    turn.start()
    script = turn.prompt.strip().splitlines()[-1]
    for part in script.split(" then "):
        word, _, argument = part.strip().partition(" ")
        if word in STEPS:
            STEPS[word](turn, argument.strip())
        else:
            turn.say(f"I do not know {word!r}.")
    save_session(turn)
    if "stop-reason" not in script:
        turn.end()
    if options.get("stay") == "yes":
        time.sleep(3600)


if __name__ == "__main__":
    main()
