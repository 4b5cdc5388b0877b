"""Runs of the fake agent: prompts, streams, warm processes, stops, failures, and how a thread goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import psutil
import pytest

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.errors import ConfigError, InvalidInput
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol.events import Cancelled, RunError, RunFinished, Success, ToolCallResult, UserMessage
from tests.bridges.acp.world import fake_command, serve
from tests.machine_speed import unless_hung
from tests.world import KEY, events_of, request


def _texts(events: list[str]) -> str:
    return "".join(json.loads(event.split(" ", 2)[2]) for event in events if event.startswith("TC "))


def _started(events: list[str]) -> list[str]:
    return [event.split('"started": "')[1].split('"')[0] for event in events if event.startswith("CUSTOM acp:session")]


async def test_text_streams_as_it_comes(tmp_path: Path) -> None:
    """Chunks that arrive together may be one delta."""
    async with serve(tmp_path) as world:
        events = await world.thread().say("say hello then sleep 0.2 then say there")
    assert [event for event in events if event[:2] in ("TS", "TC", "TE")] == [
        "TS m1",
        'TC m1 "hello"',
        "TE m1",
        "TS m2",
        'TC m2 "there"',
        "TE m2",
    ]
    assert events[-1] == "RF success"


async def test_a_second_run_uses_the_same_process_and_sends_only_what_is_new(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say one")
        pid = world.adapter().pid
        events = await thread.say("history")
        assert world.adapter().pid == pid
        assert _texts(events) == "say one\nhistory"
        assert _started(events) == []
        assert [len(prompt["prompt"]) for prompt in world.received("session/prompt")] == [1, 1]


async def test_a_killed_agent_resumes_its_session(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say one")
        process = psutil.Process(world.adapter().pid)
        process.kill()
        process.wait(30)
        events = await thread.say("history")
        assert _started(events) == ["resumed"]
        assert _texts(events) == "say one\nhistory"


async def test_an_agent_without_resume_loads_its_session_and_the_replay_is_dropped(tmp_path: Path) -> None:
    options = {"without": "resume", "replay": "after"}
    async with serve(tmp_path, options) as world:
        thread = world.thread()
        await thread.say("say one")
        await world.adapter().aclose()
        events = await thread.say("history")
        assert _started(events) == ["loaded"]
        assert _texts(events) == "say one\nhistory"


async def test_an_agent_that_lost_its_session_gets_the_conversation(tmp_path: Path) -> None:
    async with serve(tmp_path, {"load_error": "yes"}) as world:
        thread = world.thread()
        await thread.say("say one")
        await world.adapter().aclose()
        events = await thread.say("say two")
        assert _started(events) == ["replayed"]
        blocks = world.received("session/prompt")[-1]["prompt"]
        assert "User: say one" in blocks[0]["text"]
        assert "You: one" in blocks[0]["text"]


async def test_a_thread_continues_in_another_server(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with serve(tmp_path, store=store) as world:
        await world.thread().say("say one")
    async with serve(tmp_path, store=store) as world:
        thread = world.thread()
        thread.count = 1
        events = await thread.say("history")
    assert _started(events) == ["resumed"]
    assert _texts(events) == "say one\nhistory"


async def test_a_rewound_thread_gets_a_new_session_with_the_conversation_up_to_there(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say one")
        await thread.say("say two")
        events = await thread.run(UserMessage(id="u1", content="say one"))
        assert _started(events) == ["new"]
        assert len(world.received("session/new")) == 2


async def test_a_fork_gets_a_session_of_its_own_with_the_conversation_up_to_there(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("say one")
        await thread.say("say two")
        point = ForkOrigin(thread_id="t", message_id="u2")
        events = await world.thread("fork").run(UserMessage(id="n", content="say three"), fork=point)
        blocks = world.received("session/prompt")[-1]["prompt"]
    assert _started(events) == ["replayed"]
    assert "User: say one\n\nYou: one" in blocks[0]["text"]
    assert ("two" in str(blocks), blocks[-1]["text"]) == (False, "say three")


async def test_a_crash_ends_the_run_with_acp_exited_and_the_thread_goes_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored("crash")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "acp_exited"
        events = await world.stored("say again", message_id="u2")
        assert isinstance(events[-1], RunFinished)


async def test_an_agent_that_says_nothing_ends_with_agent_timeout(tmp_path: Path) -> None:
    async with serve(tmp_path, turn_timeout=0.3) as world:
        events = await world.stored("silent")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "agent_timeout"


async def test_an_agent_that_does_not_start_ends_with_agent_timeout(tmp_path: Path) -> None:
    async with serve(tmp_path, {"start": "never"}, start_timeout=0.5) as world:
        events = await world.stored("say hi")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "agent_timeout"


async def test_an_agent_that_needs_a_login_says_how(tmp_path: Path) -> None:
    async with serve(tmp_path, {"auth": "yes"}) as world:
        events = await world.stored("say hi")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "acp_auth_required"


@pytest.mark.parametrize("reason", ["max_tokens", "max_turn_requests", "refusal"])
async def test_a_stop_reason_is_in_the_result(tmp_path: Path, reason: str) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored(f"say hi then stop-reason {reason}")
        end = events[-1]
        assert isinstance(end, RunFinished)
        assert end.outcome == Success()
        assert end.result == {"stopReason": reason}


async def test_a_stop_in_the_middle_of_text_keeps_the_process(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="hang")))
            async for event in _follow(world, started):
                if event.__class__.__name__ == "TextMessageContent":
                    pid = world.adapter().pid
                    await world.runner.ledger.request_stop(KEY, "stop")
                    break
            events = await events_of(world.runner, started)
        assert isinstance(events[-1], RunFinished)
        assert events[-1].outcome.__class__.__name__ == "Cancelled"
        assert world.adapter().pid == pid
        events = await world.stored("say on", message_id="u2")
        assert isinstance(events[-1], RunFinished)


async def test_a_stop_in_the_middle_of_a_command_ends_it_and_gives_it_a_result(tmp_path: Path) -> None:
    async with serve(tmp_path, mode="bypass") as world:
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="ask touch begun; sleep 300")))
            while not (tmp_path / "work" / "t" / "begun").exists():
                await anyio.sleep(0.01)
            await world.runner.ledger.request_stop(KEY, "stop")
            events = await events_of(world.runner, started)
        assert isinstance(events[-1], RunFinished)
        assert events[-1].outcome == Cancelled()
        assert len([event for event in events if isinstance(event, ToolCallResult)]) == 1
        events = await world.stored("say on", message_id="u2")
        assert isinstance(events[-1], RunFinished)


async def test_a_prompt_after_a_cancellation_that_came_too_late_waits_for_a_moment(tmp_path: Path) -> None:
    """Claude Code keeps such a cancellation, and would end the next turn at once."""
    async with serve(tmp_path) as world:
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="finish-anyway")))
            async for event in _follow(world, started):
                if event.__class__.__name__ == "TextMessageContent":
                    await world.runner.ledger.request_stop(KEY, "stop")
                    break
            events = await events_of(world.runner, started)
        assert isinstance(events[-1], RunFinished)
        assert events[-1].outcome == Cancelled()
        assert isinstance((await world.stored("say on", message_id="u2"))[-1], RunFinished)
        times = {method: world.received_at(method) for method in ("session/cancel", "session/prompt")}
    assert times["session/prompt"][-1] - times["session/cancel"][0] >= 0.9


async def _follow(world: object, started: object) -> object:
    from ambient_runner.runs.event_reader import follow_run

    async for event in follow_run(world.runner.ledger, started):  # type: ignore[attr-defined]
        yield event


async def test_usage_and_plans_arrive(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        events = await world.stored("plan then usage then say hi")
    end = events[-1]
    assert isinstance(end, RunFinished)
    assert end.usage
    assert any(event.__class__.__name__ == "ActivitySnapshot" for event in events)


async def test_junk_harms_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, {"ids": "uuid"}) as world:
        events = await world.stored("junk then say fine")
    assert isinstance(events[-1], RunFinished)


async def test_the_environment_is_that_of_the_settings_and_the_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED_TOKEN", "a-server-secret-4711")
    async with serve(tmp_path, granted=lambda run: {"GRANTED": "yes"}, env={"MINE": "1"}) as world:
        text = _texts(await world.thread().say("env"))
    assert "GRANTED" in text
    assert "MINE" in text
    assert "UNRELATED_TOKEN" not in text


async def test_at_the_limit_of_processes_idle_ones_are_ended(tmp_path: Path) -> None:
    async with serve(tmp_path, processes=1) as world:
        first, second = world.thread("a"), world.thread("b")
        await first.say("say one")
        await second.say("say two")
        assert world.adapter("a").pid is None
        events = await first.say("history")
        assert _texts(events) == "say one\nhistory"


async def test_at_the_limit_of_processes_in_use_a_run_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path, processes=1) as world:
        with unless_hung():
            started = await world.runner.start(request(UserMessage(id="u1", content="hang"), thread="a"))
            async for event in _follow(world, started):
                if event.__class__.__name__ == "TextMessageContent":
                    break
            events = await world.stored("say hi", thread="b")
            await world.runner.ledger.request_stop(KEY._replace(id="a") if hasattr(KEY, "_replace") else KEY, "stop")
        assert isinstance(events[-1], RunError)
        assert events[-1].code == "acp_busy"


async def test_a_folder_of_the_client_must_be_below_the_roots(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    async with serve(tmp_path, roots=[str(project)]) as world:
        thread = world.thread()
        for cwd in ("relative", str(other), str(project / "missing"), 7):
            with pytest.raises(InvalidInput):
                await thread.say("env", forwarded_props={"acp": {"cwd": cwd}})
        text = _texts(await thread.say("env", forwarded_props={"acp": {"cwd": str(project)}}))
        assert str(project) in text
        assert str(project) in _texts(await thread.say("env"))
        with pytest.raises(InvalidInput):
            await thread.say("env", forwarded_props={"acp": {"cwd": str(tmp_path / "other")}})
    assert project.is_dir()


async def test_a_thread_is_not_bound_to_a_directory_of_the_server(tmp_path: Path) -> None:
    """Below a root that contains the workspaces, a client could choose the workspace of another thread, or what the server keeps there."""
    for name in ("other", ".records"):
        (tmp_path / "work" / name).mkdir(parents=True)
    hidden = {"hidden_paths": [str(tmp_path / "work")]}
    async with serve(tmp_path, roots=[str(tmp_path)], context=hidden) as world:
        for name in ("work/other", "work/.records", "work"):
            bound = {"acp": {"cwd": str(tmp_path / name)}}
            assert await world.thread(f"at {name}").say("env", forwarded_props=bound) == []
        own = tmp_path / "work/t"
        own.mkdir()
        assert str(own) in _texts(await world.thread().say("env", forwarded_props={"acp": {"cwd": str(own)}}))


async def test_a_client_cannot_widen_the_mode(tmp_path: Path) -> None:
    async with serve(tmp_path, mode="plan") as world:
        thread = world.thread()
        await thread.say("say hi", forwarded_props={"acp": {"mode": "yolo"}})
        assert world.adapter().session is not None
        assert world.adapter().session.launch.options.mode == "plan"


async def test_what_the_agent_sends_between_runs_is_delivered_in_the_next(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("late")
        events = await thread.say("say next")
        assert events[-1] == "RF success"
    assert _texts(events).endswith("next")


async def test_a_thread_that_works_in_its_workspace_cannot_be_bound_later(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with serve(tmp_path, roots=[str(project)]) as world:
        thread = world.thread()
        await thread.say("say hi")
        with pytest.raises(InvalidInput):
            await thread.say("env", forwarded_props={"acp": {"cwd": str(project)}})


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean mode"):
        ACPBridge(command=fake_command(), modes="plan")
    with pytest.raises(ConfigError, match="codex"):
        ACPBridge("codexx")
    with pytest.raises(ConfigError, match="needs a profile or a command"):
        ACPBridge()
    with pytest.raises(ConfigError, match="npm install -g @agentclientprotocol/codex-acp"):
        ACPBridge("codex", env={"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="not found"):
        ACPBridge(command=["no-such-agent-4711"])
    with pytest.raises(ConfigError, match="sandbox"):
        ACPBridge(command=[sys.executable], sandbox="maybe")
    assert ACPBridge(command=[sys.executable], mode="ACCEPT_EDITS").config.mode == "accept-edits"
