"""Record the threads of the four frameworks again: `python -m tests.recordings [--derive] [framework…]`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from ambient_runner.protocol.events import Tool, ToolMessage
from ambient_runner.runs.runner import Runner
from ambient_runner.testing import fold_activities, fold_frames
from tests.recordings import AUDIENCES, HERE, frames_of, read_facts
from tests.world import KEY, run_once, user

ACCOUNT, BALANCE, THOUGHT = "ACC-4711-0815", "balance 98765", "The user wants the account"
CHART = Tool(name="show_chart", description="Show a chart.", parameters={"type": "object", "properties": {}})


@asynccontextmanager
async def strands_runner() -> AsyncGenerator[Runner, None]:
    import strands as sdk

    from tests.bridges.strands.scripted import ScriptedModel, call, calls, says, text, thought, turn
    from tests.bridges.strands.world import agent_of, strands

    @sdk.tool
    def lookup(account: str) -> str:
        """Look an account up."""
        return f"{account}: {BALANCE}"

    model = ScriptedModel(
        calls(thought(THOUGHT, signature="sig-1"), text("Let me look. "), call("c1", "lookup", *_pieces(ACCOUNT))),
        turn(text("It is fine."), call("c2", "show_chart", '{"kind": "bar"}'), stop="tool_use"),
        says("There it is."),
    )
    async with strands(agent_of(model, lookup), tools=[CHART]) as thread:
        yield thread.runner


@asynccontextmanager
async def adk_runner() -> AsyncGenerator[Runner, None]:
    from tests.bridges.adk.scripted import call, reply, text, thought
    from tests.bridges.adk.world import agent, talking

    def lookup(account: str) -> dict[str, str]:
        """Look an account up."""
        return {"account": account, "text": BALANCE}

    root, _ = agent(
        [reply(thought(THOUGHT), text("Let me look. "), call("lookup", "c1", account=ACCOUNT))],
        [reply(text("It is fine."), call("show_chart", "c2", kind="bar"))],
        ["There it is."],
        tools=[lookup],
    )
    async with talking(root) as talk:
        yield talk.runner


@asynccontextmanager
async def langgraph_runner() -> AsyncGenerator[Runner, None]:
    from langchain_core.tools import tool

    from tests.bridges.langgraph.scripted import ScriptedModel, blocks, call, calls, says, text
    from tests.bridges.langgraph.world import agent_graph, langgraph

    @tool
    def lookup(account: str) -> str:
        """Look an account up."""
        return f"{account}: {BALANCE}"

    model = ScriptedModel(
        calls(blocks({"type": "thinking", "thinking": THOUGHT, "index": 0}), call("c1", "lookup", *_pieces(ACCOUNT))),
        calls(text("It is fine."), call("c2", "show_chart", '{"kind": "bar"}')),
        says("There it is."),
    )
    async with langgraph(agent_graph(model, lookup), tools=[CHART]) as thread:
        yield thread.runner


@asynccontextmanager
async def claude_runner() -> AsyncGenerator[Runner, None]:
    from tests.bridges.claude.world import claude

    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory) / "work" / "t"
        work.mkdir(parents=True)
        (work / "note.txt").write_text(f"{ACCOUNT}: {BALANCE}\n")
        async with claude(Path(directory)) as world:
            yield world.runner


RUNNERS: dict[str, Callable[[], AbstractAsyncContextManager[Runner]]] = {
    "strands": strands_runner,
    "adk": adk_runner,
    "langgraph": langgraph_runner,
    "claude": claude_runner,
}


async def record(framework: str) -> None:
    async with RUNNERS[framework]() as runner:
        if framework == "claude":
            for number, text in enumerate(("walrus thinks", "otter looks")):
                await run_once(runner, user(f"u{number}", text))
            literals = [ACCOUNT, BALANCE, "Two and two", "cat note.txt"]
        else:
            await run_once(runner, user("u1", "How is my account?"), tools=[CHART])
            await run_once(runner, ToolMessage(id="a1", tool_call_id="c2", content="shown"), tools=[CHART])
            literals = [ACCOUNT, BALANCE, THOUGHT]
        entries = [
            {
                "owner": batch.owner,
                "kind": batch.kind,
                "run": batch.run,
                "lines": [line.decode() for line in batch.lines],
            }
            for batch in await runner.ledger.read_batches(KEY, 0)
        ]
    _write("facts", framework, {"literals": literals, "entries": entries})


def derive(framework: str) -> None:
    """Write the frames of a recorded thread, and what they fold to."""
    recording = read_facts(framework)
    for audience in AUDIENCES:
        frames = frames_of(recording, audience)
        folded = {"folded": fold_frames(frames), "activities": fold_activities(frames)}
        _write("frames", f"{framework}-{audience}", {"frames": frames, **folded})


def _write(folder: str, name: str, value: dict[str, Any]) -> None:
    (HERE / folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def _pieces(account: str) -> list[str]:
    arguments = json.dumps({"account": account})
    return [arguments[:12], arguments[12:]]


def main() -> None:
    """Record the named frameworks, all without names; with `--derive` only write the frames of what is recorded."""
    names = [name for name in sys.argv[1:] if name != "--derive"]
    for framework in names or RUNNERS:
        if "--derive" not in sys.argv:
            anyio.run(record, framework)
        derive(framework)


if __name__ == "__main__":
    main()
