"""What is left of a recording when it is cleaned."""

from __future__ import annotations

import json
from typing import Any

from tests.agents.cleaning import clean_recording
from tests.agents.model import KEY


def clean(message: Any, **paths: str) -> Any:
    text = clean_recording([json.dumps({"t": 1.5, "dir": "a2c", "msg": message})], paths)
    return json.loads(text)["msg"]


def test_the_longest_path_is_replaced_first() -> None:
    message = {"cwd": "/a/b/c", "home": "/a/b/d"}
    assert clean(message, **{"/a/b": "/opt", "/a/b/c": "/workspace"}) == {"cwd": "/workspace", "home": "/opt/d"}


def test_keys_addresses_and_times_are_replaced() -> None:
    message = {"key": KEY, "url": "http://127.0.0.1:40123/v1", "updatedAt": "2026-11-17T16:55:32.717Z"}
    assert clean(message) == {
        "key": "placeholder",
        "url": "http://127.0.0.1:4010/v1",
        "updatedAt": "2026-01-01T00:00:00.000Z",
    }


def test_what_an_agent_tells_about_the_machine_is_left_out() -> None:
    text = "<session_context>\nMy operating system is: linux\n</session_context>"
    assert clean({"text": text}) == {"text": "<session_context></session_context>"}


def test_long_lists_and_descriptions_are_shortened_and_nothing_else() -> None:
    commands = [{"name": str(number), "description": "d" * 500} for number in range(9)]
    options = [{"value": str(number)} for number in range(9)]
    message = {"availableCommands": commands, "options": options, "content": commands[:1], "text": "t" * 500}
    cleaned = clean(message)
    assert [len(cleaned[name]) for name in ("availableCommands", "options", "content", "text")] == [3, 6, 1, 500]
    assert len(cleaned["availableCommands"][0]["description"]) == 200


def test_the_options_of_a_permission_request_are_all_kept() -> None:
    options = [{"optionId": str(number), "kind": "allow_once"} for number in range(5)]
    assert clean({"options": options}) == {"options": options}
