"""Where a conversation goes on: after a restart, after a rewind, and when the CLI has lost it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.claude.mock import model_conversation, model_request
from tests.bridges.claude.test_text import spoken
from tests.bridges.claude.world import bridge_of, children, claude
from tests.world import KEY, structs_of, user


async def test_after_a_restart_claude_continues_in_its_own_session(tmp_path: Path) -> None:
    store = tmp_path / "threads.db"
    async with claude(tmp_path, store=store) as world:
        await world.thread().say("walrus begins")
    async with claude(tmp_path, store=store) as world:
        thread = world.thread()
        thread.count = 1
        await thread.say("walrus remembers")
    assert model_conversation("walrus remembers") == [
        ("user", "walrus begins"),
        ("assistant", "I begin."),
        ("user", "walrus remembers"),
    ]
    transcripts = list((tmp_path / "home" / ".claude" / "projects").rglob("*.jsonl"))
    assert len(transcripts) == 1


async def test_when_the_cli_has_lost_the_session_it_gets_the_conversation_again(tmp_path: Path) -> None:
    store = tmp_path / "threads.db"
    async with claude(tmp_path, store=store) as world:
        await world.thread().say("walrus begins")
    shutil.rmtree(tmp_path / "home")
    async with claude(tmp_path, store=store) as world:
        thread = world.thread()
        thread.count = 1
        words = await thread.say("walrus remembers")
    assert (spoken(words), words[-1]) == ("I remember.", "RF success")
    newest = str(model_request("walrus remembers")["messages"][-1]["content"])
    assert "User: walrus begins\n\nYou: I begin." in newest


async def test_a_rewind_removes_later_messages_from_claudes_context(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        await thread.say("walrus middle")
        await thread.run(user("u1", "walrus begins"), user("u2", "walrus middle"))
        assert model_conversation("walrus middle") == [
            ("user", "walrus begins"),
            ("assistant", "I begin."),
            ("user", "walrus middle"),
        ]
        await thread.run(user("u1", "walrus begins"))
        assert model_conversation("walrus begins") == [("user", "walrus begins")]
        thread.count = 2
        await thread.say("walrus remembers")
    assert model_conversation("walrus remembers") == [
        ("user", "walrus begins"),
        ("assistant", "I begin."),
        ("user", "walrus remembers"),
    ]


async def test_after_a_fork_claude_sees_what_was_before_the_message_and_the_new_one(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        await thread.say("walrus middle")
        words = await world.thread("fork").run(
            user("n", "walrus remembers"), fork=ForkOrigin(thread_id="t", message_id="u2")
        )
    assert (spoken(words), words[-1]) == ("I remember.", "RF success")
    assert model_conversation("walrus remembers") == [("user", "walrus remembers")]
    request = str(model_request("walrus remembers")["messages"])
    assert (r"User: walrus begins\n\nYou: I begin." in request, "walrus middle" in request) == (True, False)


async def test_without_a_server_the_workspace_keeps_the_position(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    context = PlatformContext(workspace_path=str(work), cwd_path=str(work))
    first = [user("u1", "walrus begins")]
    reply = e.AssistantMessage(id="a1", content="I begin.")
    for messages in (first, [*first, reply, user("u2", "walrus remembers")]):
        adapter = bridge_of(tmp_path / "home").create_adapter(context)
        asked_for = input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=messages))
        events = [event async for event in structs_of(adapter.run(asked_for))]
        assert isinstance(events[-1], e.RunFinished)
        await adapter.aclose()
    assert children() == []
    assert model_conversation("walrus remembers")[:2] == [("user", "walrus begins"), ("assistant", "I begin.")]
    files = list((work / ".claude").iterdir())
    assert [file.name.partition("-")[0] for file in files] == ["ambient"]
    assert [row[0] for row in json.loads(files[0].read_text())["claude"]] == ["u1", "u2"]


async def test_an_erased_thread_leaves_nothing_of_itself_behind(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        await world.runner.erase_thread(KEY)
        assert children() == []
    assert list((tmp_path / "work" / "t" / ".claude").glob("ambient-*")) == []
    assert list((tmp_path / "home" / ".claude" / "projects").rglob("*.jsonl")) == []
