"""Claude's text and reasoning, and the prompts it gets."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ambient_runner.bridges.claude.run import ClaudeRun
from ambient_runner.protocol import events as e
from tests.bridges.claude.mock import model_conversation, model_request
from tests.bridges.claude.world import claude
from tests.bridges.strands.world import Thread


def spoken(words: list[str], kind: str = "TC") -> str:
    """The deltas of a kind, joined: how the provider cuts them is its own affair."""
    return "".join(json.loads(word.split(" ", 2)[2]) for word in words if word.startswith(f"{kind} "))


def frame(words: list[str]) -> list[str]:
    return [word.split()[0] for word in words if word.split()[0] not in ("TC", "ZMC", "CA")]


def finish(thread: Thread) -> e.RunFinished:
    end = thread.events[-1]
    assert isinstance(end, e.RunFinished)
    return end


def system(words: str) -> str:
    return json.dumps(model_request(words)["messages"][0]) + json.dumps(model_request(words).get("system", ""))


async def test_what_claude_writes_is_a_message_and_the_second_turn_knows_the_first(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        first = await thread.say("say hello there")
        assert (frame(first), spoken(first)) == (["TS", "TE", "MS", "RF"], "Hello there.")
        pid = world.adapter().pid
        await thread.say("walrus remembers")
        assert world.adapter().pid == pid
    assert model_conversation("walrus remembers") == [
        ("user", "say hello there"),
        ("assistant", "Hello there."),
        ("user", "walrus remembers"),
    ]


async def test_thoughts_are_reasoning_and_come_before_the_answer(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        words = await world.thread().say("walrus thinks")
    assert frame(words) == ["ZS", "ZMS", "ZME", "ZE", "TS", "TE", "MS", "RF"]
    assert (spoken(words, "ZMC"), spoken(words)) == ("Two and two.", "Four.")


async def test_every_run_reports_its_own_usage_and_cost(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        ends: list[e.RunFinished] = []
        for _ in range(2):
            await thread.say("walrus counts")
            ends.append(finish(thread))
    usage = [
        e.TokenUsage(provider="anthropic", model="claude-opus-5-5", input_tokens=11, output_tokens=7, total_tokens=18)
    ]
    assert [end.usage for end in ends] == [usage, usage]
    costs = [end.result["costUsd"] for end in ends]
    assert costs[0] > 0
    assert costs[0] == costs[1]
    assert [end.result["turns"] for end in ends] == [1, 1]


async def test_instructions_are_added_to_the_preset_and_context_and_state_go_with_every_message(tmp_path: Path) -> None:
    async with claude(tmp_path, context={"system_prompt_append": "Speak like a gardener."}) as world:
        thread = world.thread()
        await thread.say("walrus begins", context=[e.Context(description="page", value="roses")], state={"bed": 1})
        await thread.say("walrus middle", context=[e.Context(description="page", value="tulips")], state={"bed": 2})
    first, second = model_request("walrus begins"), model_request("walrus middle")
    assert "Speak like a gardener." in system("walrus begins")
    assert "Claude Code" in system("walrus begins")
    assert "page: roses" in json.dumps(first["messages"][-1])
    newest = json.dumps(second["messages"][-1])
    assert "page: tulips" in newest
    assert '{\\"bed\\": 2}' in newest.replace('\\\\"', '\\"')


async def test_limits_of_the_model_reach_it(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_tokens": 1234, "temperature": 0.25, "model": "claude-sonnet-4-5"}
    async with claude(tmp_path, context=limits) as world:
        await world.thread().say("walrus differs")
    request = model_request("walrus differs")
    assert {name: request[name] for name in limits} == limits


async def test_a_client_may_choose_the_model_of_a_run_unless_that_is_forbidden(tmp_path: Path) -> None:
    async with claude(tmp_path, models={"claude-sonnet-4-5"}) as world:
        thread = world.thread()
        await thread.say("walrus begins", forwarded_props={"model": "claude-sonnet-4-5"})
        chosen = model_request("walrus begins")["model"]
        await thread.say("walrus middle", forwarded_props={"model": "claude-opus-4-1"})
        refused = model_request("walrus middle")["model"]
    assert (chosen, refused) == ("claude-sonnet-4-5", "claude-opus-5-5")
    assert model_conversation("walrus middle")[:2] == [("user", "walrus begins"), ("assistant", "I begin.")]


async def test_a_client_chooses_no_model_unless_models_lists_it(tmp_path: Path) -> None:
    wanted = {"model": "claude-sonnet-4-5"}
    async with claude(tmp_path / "default") as world:
        await world.thread().say("walrus begins", forwarded_props=wanted)
        refused = model_request("walrus begins")["model"]
    async with claude(tmp_path / "any", models=["*"]) as world:
        await world.thread().say("walrus middle", forwarded_props=wanted)
        chosen = model_request("walrus middle")["model"]
    assert (refused, chosen) == ("claude-opus-5-5", "claude-sonnet-4-5")


async def test_nothing_about_the_process_reaches_a_client(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("say hello there")
        stream = msgspec.json.encode(thread.events).decode()
    assert str(tmp_path) not in stream
    assert "session" not in stream
    assert "mcp__" not in stream
    assert "WebFetch" not in stream


async def test_user_messages_are_passed_on_literally(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the hidden tulip")
    async with claude(tmp_path) as world:
        await world.thread().say(f"walrus sums up @{secret}")
    assert "the hidden tulip" not in json.dumps(model_request("walrus sums up")["messages"])


async def test_an_image_is_shown_to_the_model(tmp_path: Path) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    parts = [
        e.ImagePart(source=e.DataSource(value=pixel, mime_type="image/png")),
        e.TextPart(text="walrus sums up"),
    ]
    async with claude(tmp_path) as world:
        await world.thread().say(parts)
    assert "images/1.png" in json.dumps(model_request("walrus sums up")["messages"][-1])


async def test_a_failure_of_the_model_is_an_error_without_its_text_and_the_process_continues(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        for words, code in (("gnu crashes", "claude_error"), ("gnu is unpaid", "claude_auth")):
            thread = world.thread(words)
            stored = await world.stored(thread, words)
            pid = world.adapter(words).pid
            assert isinstance(stored[-1], e.RunError)
            assert stored[-1].code == code
            assert "secret reason" not in msgspec.json.encode(stored).decode()
            assert (await thread.say("say hello there"))[-1] == "RF success"
            assert world.adapter(words).pid == pid


async def test_while_the_provider_cannot_be_reached_clients_are_notified_and_the_log_says_once_what_to_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "CLAUDE_CODE_MAX_RETRIES": "2"}
    async with claude(tmp_path, env=nowhere) as world:
        stored = await world.stored(world.thread(), "say hello there")
    retries = [event.value for event in stored if isinstance(event, e.Custom) and event.name == "claude:retry"]
    assert [(one["attempt"], one["maxRetries"], one["status"]) for one in retries] == [(1, 2, None), (2, 2, None)]
    assert isinstance(stored[-1], e.RunError)
    [warning] = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert warning.name == ClaudeRun.__module__
