"""Replies of the models of the dojo's agents, in every framework.

A script is chosen by the words of the user's last message, and a reply of it by the number of tool results since then, so that one model
serves many threads at the same time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["RESULT", "Call", "Reply", "Script", "ScriptRequest", "argument_pieces", "find_reply", "text_pieces"]

SAW, DID_NOT_SEE = " I saw it.", " I did not see it."


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call of a model."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def json(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of a model: a thought, a text, a call. Its text ends with a statement if the request contained the words `saw`."""

    text: str = ""
    thought: str = ""
    call: Call | None = None
    saw: str = ""


Script = Mapping[str, Sequence[Reply]]


@dataclass(frozen=True, kw_only=True)
class ScriptRequest:
    """The request to a model: everything as text, and the texts of the user and tool results (RESULT) in their order."""

    everything: str
    inputs: Sequence[str]


RESULT = "\0tool result"


def find_reply(script: Script, request: ScriptRequest) -> Reply:
    """Return the reply to this request. Raises: KeyError if the script has none."""
    results = 0
    for text in reversed(request.inputs):
        for words, replies in script.items():
            if words in text:
                return _with_proof(replies[results], request)
        results += text is RESULT
    raise KeyError(request.inputs)


def _with_proof(reply: Reply, request: ScriptRequest) -> Reply:
    if not reply.saw:
        return reply
    return replace(reply, text=reply.text + (SAW if reply.saw in request.everything else DID_NOT_SEE))


def text_pieces(text: str) -> list[str]:
    """Return a text as a model streams it: word by word."""
    return re.findall(r"\S+\s*", text)


def argument_pieces(call: Call) -> list[str]:
    """Return the arguments of a call as a model streams them."""
    return [call.json[index : index + 24] for index in range(0, len(call.json), 24)]
