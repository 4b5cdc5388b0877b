"""What a person would try with an agent, over HTTP. A scenario raises AssertionError if something is not as it should be."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.agents.script import HELLO, PICK_NUMBER
from tests.agents.world import (
    PATIENCE,
    AgentWorld,
    Conversation,
    interrupts_of,
    read_text,
    require,
    wait_until,
)
from tests.e2e.server import Child
from tests.e2e.sse import Event
from tests.e2e.talk import ending, events_of, one_run

README = Path(__file__).parents[2] / "README.md"
_README_COMMAND = re.compile(r"^ambient run codex .*$", re.MULTILINE)
BIN = str(Path(sys.executable).parent)
PAGE_TOOL = {
    "name": PICK_NUMBER,
    "description": "Ask the page for a number.",
    "parameters": {"type": "object", "properties": {"max": {"type": "integer"}}, "required": ["max"]},
}


@dataclass
class Try:
    """A scenario's world, its server, and a thread of its own."""

    world: AgentWorld
    server: Child
    conversation: Conversation

    @property
    def thread(self) -> str:
        return self.conversation.thread

    def has_file(self, name: str) -> bool:
        """Return True if the thread's workspace has a file of this name."""
        return any(self.thread in path.parts for path in self.world.find_files(name))

    def remembers(self, *words: str) -> bool:
        """Return True if the model's newest request has all these words."""
        request = self.world.model.requests_with("otter remembers")[-1]
        return all(word in request.text for word in words)


async def stream_text(this: Try) -> None:
    async with this.conversation.started("otter greets") as stream:
        frames = await read_text(stream, 2)
        frames += await stream.rest()
    require(one_run(events_of(frames)), HELLO)


async def allow_a_command(this: Try) -> None:
    asked = await _ask_to_touch(this)
    call = interrupts_of(asked)[0].get("toolCallId")
    assert call in _tool_calls(asked), "the interrupt is about no call that the client has seen"
    events = await this.conversation.resume(asked, {"approved": True})
    require(events, "The command has ended.")
    assert this.has_file("touched.txt"), "the command was not executed"
    assert call in {event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"}, "no result"


async def decline_a_command(this: Try) -> None:
    asked = await _ask_to_touch(this)
    events = await this.conversation.resume(asked, {"approved": False})
    assert ending(events) in ("success", "cancelled"), events[-1]
    assert not this.has_file("touched.txt"), "the declined command was executed"
    require(await this.conversation.run("otter greets"), HELLO)


async def cancel_a_question(this: Try) -> None:
    asked = await _ask_to_touch(this)
    events = await this.conversation.resume(asked, status="cancelled")
    assert ending(events) in ("success", "cancelled"), events[-1]
    assert not this.has_file("touched.txt"), "the cancelled command was executed"
    require(await this.conversation.run("otter greets"), HELLO)


async def answer_after_coming_back(this: Try) -> None:
    async with this.conversation.started("otter touches") as stream:
        await read_text(stream, 1)
        stream.cut()
    events = await this.conversation.events()
    require(await this.conversation.resume(events, {"approved": True}), "The command has ended.")
    assert this.has_file("touched.txt"), "the command was not executed"


async def call_a_tool_of_the_client(this: Try) -> None:
    events = await this.conversation.run("otter picks", tools=[PAGE_TOOL])
    assert ending(events) == "success", events[-1]
    pending = events[-1]["outcome"].get("pendingToolCallIds", [])
    names = _tool_calls(events)
    assert [names.get(call) for call in pending] == [PICK_NUMBER], f"{pending} of {names}"
    arguments = "".join(event["delta"] for event in events if event["type"] == "TOOL_CALL_ARGS")
    assert json.loads(arguments) == {"max": 10}, arguments
    result = {"id": "result-1", "role": "tool", "toolCallId": pending[0], "content": "7"}
    require(await this.conversation.run(messages=[result], tools=[PAGE_TOOL]), "The page has answered.")


async def stop_in_the_text(this: Try) -> None:
    async with this.conversation.started("otter counts") as stream:
        frames = await read_text(stream, 3)
        await this.conversation.stop()
        with anyio.fail_after(PATIENCE):
            frames += await stream.rest()
    assert ending(one_run(events_of(frames))) == "cancelled", frames[-1].event
    require(await this.conversation.run("otter remembers"), "I remember.")


async def stop_in_a_tool(this: Try) -> None:
    asked = await this.conversation.run("otter lingers")
    entries = [
        {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        for interrupt in interrupts_of(asked)
    ]
    async with this.conversation.started(resume=entries) as stream:
        await wait_until(lambda: this.has_file("begun.txt"), "the start of the command")
        await this.conversation.stop()
        with anyio.fail_after(PATIENCE):
            frames = await stream.rest()
    assert ending(one_run(events_of(frames))) == "cancelled", frames[-1].event
    await wait_until(lambda: not _is_lingering(this), "the end of the command")
    require(await this.conversation.run("otter remembers"), "I remember.")


async def stop_in_a_question(this: Try) -> None:
    asked = await _ask_to_touch(this)
    await this.conversation.stop()
    require(await this.conversation.run("otter remembers"), "I remember.")
    assert not this.has_file("touched.txt"), "the command was executed after the stop"
    assert interrupts_of(asked), "there was no question"


async def go_on_after_the_agent_was_killed(this: Try) -> None:
    require(await this.conversation.run("otter greets"), HELLO)
    async with this.conversation.started("otter counts") as stream:
        frames = await read_text(stream, 3)
        this.world.kill_agent(this.server)
        with anyio.fail_after(PATIENCE):
            frames += await stream.rest()
    assert ending(one_run(events_of(frames))) == "acp_exited", frames[-1].event
    require(await this.conversation.run("otter remembers"), "I remember.")
    assert this.remembers("otter greets"), "the agent does not know the conversation"


async def go_on_after_the_server_was_killed(this: Try) -> None:
    require(await this.conversation.run("otter greets"), HELLO)
    processes = this.world.agent_processes(this.server)
    assert processes, "the agent has no process"
    this.server.signal(signal.SIGKILL)
    this.server.wait()
    await wait_until(lambda: not any(process.handle.is_running() for process in processes), "the end of the agent")
    with this.world.serve() as server:
        conversation = Conversation(server.url, this.thread)
        require(await conversation.run("otter remembers"), "I remember.")
    assert this.remembers("otter greets"), "the agent does not know the conversation"


async def run_the_readmes_command(this: Try) -> None:
    """In a folder without settings, with the agent's own model, and a yes in the terminal."""
    with tempfile.TemporaryDirectory(dir=this.world.directory) as project, tempfile.TemporaryDirectory() as here:
        words = shlex.split(_README_COMMAND.search(README.read_text())[0])  # pyright: ignore[reportOptionalSubscript]
        command = [{"codex": this.world.agent, "/path/to/project": project}.get(word, word) for word in words]
        environment = {**this.world.variables(), "PATH": os.pathsep.join([BIN, this.world.variables()["PATH"]])}
        with anyio.fail_after(PATIENCE):
            ended = await anyio.run_process(command, input=b"y\n", check=False, cwd=here, env=environment)
        said = f"{ended.stdout.decode()}\n{ended.stderr.decode()}"
        assert ended.returncode == 0, said
        assert (Path(project) / "hello.txt").read_text() == "Hello.\n", said


async def _ask_to_touch(this: Try) -> list[Event]:
    """Have the agent ask for a command."""
    events = await this.conversation.run("otter touches")
    assert ending(events) == "interrupt", events[-1]
    assert not this.has_file("touched.txt"), "the command was executed before the answer"
    return events


def _tool_calls(events: list[Event]) -> dict[str, str]:
    return {event["toolCallId"]: event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"}


def _is_lingering(this: Try) -> bool:
    return any("sleep 300" in process.command for process in this.world.agent_processes(this.server))


Scenario = Callable[[Try], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {
    "text is streamed": stream_text,
    "a command is allowed": allow_a_command,
    "a command is declined": decline_a_command,
    "a question is cancelled": cancel_a_question,
    "answered after coming back": answer_after_coming_back,
    "a tool of the client": call_a_tool_of_the_client,
    "stop in the text": stop_in_the_text,
    "stop in a tool": stop_in_a_tool,
    "stop in a question": stop_in_a_question,
    "the README's command": run_the_readmes_command,
    "kill -9 of the agent": go_on_after_the_agent_was_killed,
    "kill -9 of the server": go_on_after_the_server_was_killed,
}
