"""Let an agent repeat guesses of a server's secrets, and compare what a client sees of right and wrong ones.

    python -m tests.fuzz.oracle --secrets 20

For every length of every secret, as it is, in base64 or in hex, there are three texts of one shape: the right beginning, one with a wrong
last character, and random characters. Each is sent word by word, character by character and in one delta, as text, as reasoning and as
arguments. Events between the deltas show when each of them leaves. The frames must be equal but for ids, times and the characters
themselves. Otherwise it exits with 1. A long secret is searched for by pieces: the first 32 characters of it are replaced. Below, all three
are compared; above, the first two.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import re
import string
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import anyio
import httpx
from fastapi import FastAPI

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.config.secret_values import with_secrets
from tests.fuzz.planted_secrets import random_token
from tests.server.demo_server import client_of, frames, run_body

__all__ = ["Difference", "fuzz_oracle", "server_secrets"]

_KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
_ALPHABETS = (
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "-_./+=~:",
    "0123456789abcdef",
)
_LENGTHS = ((14, 40), (14, 40), (80, 200))
_FORMS = (
    lambda secret: secret,
    lambda secret: secret,
    lambda secret: base64.b64encode(secret.encode()).decode()[: len(secret) * 8 // 6],
    lambda secret: secret.encode().hex(),
)
_LONG, _PIECE = 64, 32
"""Characters from which a text is searched for by pieces, and of a piece."""
_MAX_LENGTHS = 40
"""Lengths of one secret that are tried."""
_CONTEXTS = ("x {}", "x {} and more")
_WORD = re.compile(r"\s*\S+|\s+")
_SPLITS = {
    "word by word": lambda text: cast("list[str]", _WORD.findall(text)),
    "character by character": list,
    "in one delta": lambda text: [text],
}
_CHANNELS = ("TEXT", "REASONING", "ARGS")
GUESSES_PER_RUN = len(_SPLITS) * len(_CHANNELS) * 2


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first frame in which two texts of one shape differ."""

    secret: int
    length: int
    text: str
    other: str
    frame: Any
    other_frame: Any


async def _repeat_words(run_input: Any) -> AsyncGenerator[dict[str, Any], None]:
    """Repeat the user's words in every way, once with other events between the deltas and once without."""
    text = run_input.messages[-1].content
    for is_ticking in (True, False):
        for number, split in enumerate(_SPLITS.values()):
            for channel in _CHANNELS:
                for event in _events(channel, f"{channel}-{number}-{is_ticking}", split(text)):
                    yield event
                    if is_ticking:
                        yield {"type": "CUSTOM", "name": "tick", "value": 1}


def _events(channel: str, name: str, deltas: Sequence[str]) -> Iterator[dict[str, Any]]:
    match channel:
        case "TEXT":
            yield {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}
            yield from ({"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": delta} for delta in deltas)
            yield {"type": "TEXT_MESSAGE_END", "messageId": name}
        case "REASONING":
            yield {"type": "REASONING_MESSAGE_START", "messageId": name, "role": "reasoning"}
            yield from ({"type": "REASONING_MESSAGE_CONTENT", "messageId": name, "delta": delta} for delta in deltas)
            yield {"type": "REASONING_MESSAGE_END", "messageId": name}
        case _:
            yield {"type": "TOOL_CALL_START", "toolCallId": name, "toolCallName": "repeat"}
            yield from ({"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": delta} for delta in deltas)
            yield {"type": "TOOL_CALL_END", "toolCallId": name}


def server_secrets(count: int, seed: int) -> list[str]:
    """Return the secrets of the server for this seed."""
    rng = Random(f"secrets/{seed}")
    return [random_token(rng, rng.randint(*rng.choice(_LENGTHS)), rng.choice(_ALPHABETS)) for _ in range(count)]


async def fuzz_oracle(secret_count: int, seed: int, *, lengths: int = _MAX_LENGTHS) -> tuple[int, Difference | None]:
    """Return the number of guesses and the first difference. `lengths` limits the lengths of each secret that are tried."""
    rng, secrets = Random(seed), server_secrets(secret_count, seed)
    environ = {f"SERVER_{number}_TOKEN": secret for number, secret in enumerate(secrets)}
    app = FastAPI()
    settings = with_secrets(Settings(store="memory://", history="server"), environ, ())
    add_ambient_endpoints(app, AGUIBridge(_repeat_words), settings=settings)
    guesses = 0
    async with client_of(app) as client:
        client.timeout = httpx.Timeout(60)
        for number, secret in enumerate(secrets):
            form = rng.choice(_FORMS)(secret)
            for length in _tried_lengths(rng, form, lengths):
                for context in _CONTEXTS:
                    texts = [context.format(guess) for guess in _guesses(rng, form, length)]
                    seen = [await _frames_of(client, text) for text in texts]
                    guesses += len(texts) * GUESSES_PER_RUN
                    for text, other in zip(texts[1:], seen[1:], strict=True):
                        if other != seen[0]:
                            return guesses, _describe(number, length, (texts[0], seen[0]), (text, other))
    return guesses, None


def _tried_lengths(rng: Random, secret: str, count: int) -> list[int]:
    lengths = [length for length in range(1, len(secret)) if length != _PIECE or len(secret) <= _LONG]
    return sorted(rng.sample(lengths, min(count, len(lengths))))


def _guesses(rng: Random, secret: str, length: int) -> list[str]:
    """Return the right beginning, one whose last character is wrong, and other characters of the same kinds."""
    right = secret[:length]
    guesses = [right, right[:-1] + _other_char(rng, right[-1])]
    if len(secret) <= _LONG or length < _PIECE:
        guesses.append("".join(_other_char(rng, char) for char in right))
    return guesses


def _other_char(rng: Random, char: str) -> str:
    kind = next((kind for kind in _KINDS if char in kind), "-_./+=~:")
    return rng.choice(kind.replace(char, ""))


async def _frames_of(client: httpx.AsyncClient, text: str) -> list[Any]:
    """Return the frames of a run on a new thread, with the length of each string in place of the string."""
    response = await client.post("/", json=run_body(text, thread="guesses"))
    assert response.status_code == 200, response.text
    await client.delete("/thread/guesses")
    return [_lengths_of(event) for _, event in frames(response)]


def _lengths_of(value: Any) -> Any:
    match value:
        case str():
            return len(value)
        case dict():
            members = cast("dict[str, Any]", value)
            return {
                name: item if name == "type" else _lengths_of(item)
                for name, item in members.items()
                if name != "timestamp"
            }
        case list():
            return [_lengths_of(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _describe(secret: int, length: int, right: tuple[str, list[Any]], other: tuple[str, list[Any]]) -> Difference:
    pairs = zip([*right[1], None], [*other[1], None], strict=False)
    frame, other_frame = next(pair for pair in pairs if pair[0] != pair[1])
    return Difference(secret=secret, length=length, text=right[0], other=other[0], frame=frame, other_frame=other_frame)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--secrets", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # Each guess of a piece is one.
    guesses, difference = anyio.run(fuzz_oracle, options.secrets, options.seed)
    if difference is None:
        print(f"{guesses:,} guesses of {options.secrets} secrets: right and wrong ones look alike.")
        return 0
    print(
        f"The client can tell {difference.text!r} from {difference.other!r}, {difference.length} characters of secret {difference.secret}:"
    )
    print(f"  {json.dumps(difference.frame)}\n  {json.dumps(difference.other_frame)}")
    print(f"  python -m tests.fuzz.oracle --secrets {options.secrets} --seed {options.seed}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
