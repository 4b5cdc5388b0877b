"""Recorded sessions of real agents through the translator: as they are, and with members replaced, removed and moved."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol import events as e
from tests.bridges.acp.translated import TranslatedThread
from tests.hypothesis_profiles import examples

RECORDINGS = Path(__file__).parents[2] / "recordings" / "acp"
FILES = sorted(RECORDINGS.glob("*/*.jsonl"))
Json = dict[str, Any]


def messages(path: Path) -> Iterator[tuple[str, Json]]:
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if isinstance(entry["msg"], dict):
            yield entry["dir"], entry["msg"]


def translate_recording(path: Path) -> TranslatedThread:
    """Return the runs of a recorded session."""
    thread = TranslatedThread()
    is_running, prompts = True, set[Any]()
    for sender, message in messages(path):
        match sender, message:
            case "c2a", {"method": "session/prompt", "id": request_id}:
                prompts.add(request_id)
            case "a2c", {"id": request_id, **rest} if "method" not in message and request_id in prompts:
                is_running = is_running or thread.start_run() is None
                thread.end_turn(is_error="error" in rest)
                is_running = False
            case "a2c", {"method": "session/request_permission", "params": {"toolCall": call}}:
                is_running = is_running or thread.start_run() is None
                thread.ask(call.pop("toolCallId"), **call)
                is_running = False
            case "a2c", {"method": "session/update", "params": {"update": update}}:
                is_running = is_running or thread.start_run() is None
                thread.feed(update)
            case _:
                pass
    if is_running:
        thread.end_turn()
    return thread


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recorded_session_becomes_a_legal_thread_in_which_every_call_has_one_result(path: Path) -> None:
    thread = translate_recording(path)
    starts = [event.tool_call_id for event in thread.events if isinstance(event, e.ToolCallStart)]
    assert sorted(starts) == sorted(thread.results())
    assert {event.name for event in thread.events if isinstance(event, e.Custom)} <= {"acp:notice"}


@cache
def recorded_updates() -> list[Json]:
    """Return the different updates and permission requests of all recordings."""
    found: dict[str, Json] = {}
    for path in FILES:
        for sender, message in messages(path):
            params = message.get("params") or {}
            update = params.get("update") or params.get("toolCall")
            if sender == "a2c" and update:
                found.setdefault(f"{path.parent} {update.get('sessionUpdate')} {sorted(update)}", update)
    return list(found.values())


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["completed", "failed", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "data", "path", "id", "_meta"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@st.composite
def mutated_updates(draw: st.DrawFn) -> Json:
    """Draw a recorded update with up to three members, at any depth, replaced or removed."""
    update = copy.deepcopy(draw(st.sampled_from(recorded_updates())))
    for _ in range(draw(st.integers(0, 3))):
        holder: Any = update
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inner = holder[key]
            if isinstance(inner, dict | list) and inner and draw(st.booleans()):
                holder = inner
                continue
            if draw(st.booleans()):
                holder[key] = draw(JUNK)
            else:
                del holder[key]
            break
    if "toolCallId" in update:
        update["toolCallId"] = draw(st.sampled_from(["c1", "c2", "c3"]))
    if draw(st.integers(0, 3)) == 0:
        update["_meta"] = {"claudeCode": {"parentToolUseId": draw(st.sampled_from(["c1", "c2", "c3", "c4"]))}}
    return update


STEPS = st.lists(
    st.tuples(st.sampled_from(["feed"] * 12 + ["ask", "end_run", "end_turn", "silence"]), mutated_updates())
)


@examples(300)
@given(STEPS)
def test_updates_with_anything_in_them_never_raise_and_give_a_legal_thread(steps: list[tuple[str, Json]]) -> None:
    thread = TranslatedThread()
    for step, update in steps:
        match step:
            case "ask":
                members = {name: item for name, item in update.items() if name != "toolCallId"}
                thread.ask(update.get("toolCallId", "c1"), **members)
                thread.start_run()
            case "end_run":
                thread.end_run()
                thread.start_run()
            case "end_turn":
                thread.end_turn()
                thread.start_run()
            case "silence":
                thread.add(thread.translator.report_silence(60))
            case _:
                thread.feed(update)
    thread.end_turn()
    starts = [event.tool_call_id for event in thread.events if isinstance(event, e.ToolCallStart)]
    assert sorted(starts) == sorted(thread.results())
    thread.activities()


@examples(200)
@given(st.dictionaries(st.sampled_from(["sessionUpdate", "toolCallId", "content", "plan", "_meta", "rawInput"]), JUNK))
def test_no_update_is_lost(update: Json) -> None:
    """An update that nothing is known about is an event, or has changed the state."""
    thread = TranslatedThread()
    thread.feed({**update, "sessionUpdate": "something_new"})
    assert isinstance(thread.run_events[-1], e.Custom)
