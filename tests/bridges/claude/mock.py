"""aimock, started once for all tests of a process, with its journal of model requests."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.bridges.claude.script import SCRIPT
from tests.scripted_api import read_requests, start_scripted_api


@cache
def model_url() -> str:
    """Where the scripted model listens. Skips the test where there is no Node to run it."""
    return start_scripted_api(SCRIPT)


def model_request(words: str) -> dict[str, Any]:
    """Return the last request to the model with these words in its newest message."""
    found = [body for body in read_requests(model_url()) if words in json.dumps(body.get("messages", [])[-1:])]
    assert found, f"no request to the model had {words!r}, or the request was too large for the journal"
    return found[-1]


def model_conversation(words: str) -> list[tuple[str, str]]:
    """Return the conversation in that request: the role and the last line of each message."""
    return [
        (message["role"], _text(message["content"]).rstrip().rpartition("\n")[2])
        for message in model_request(words)["messages"]
        if message["role"] in ("user", "assistant")
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""
