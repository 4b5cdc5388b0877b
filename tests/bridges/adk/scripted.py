"""A model that plays a script and notes what it saw. The real SDK drives it: nothing else is made up."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import PrivateAttr

from tests.machine_speed import unless_hung

Turn = Sequence[Any] | Exception | Callable[[LlmRequest], Sequence[Any]]
"""What the model answers to one call: responses, strings (text deltas), an exception to raise, or a function of the request."""

Seen = tuple[str, Any]

_PREAMBLE = "For context: below is a transcript of what another agent did"
_QUOTED = re.compile(r"(\[.*):\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>\n(.*)\n<<<END_QUOTED_AGENT_CONTENT>>>", re.DOTALL)


class Scripted(BaseLlm):
    """Answers each call with the next turn of its script; the last one again and again when `loop`."""

    model: str = "scripted"
    _turns: list[Turn] = PrivateAttr(default_factory=list[Turn])
    _loop: bool = PrivateAttr(default=False)
    _requests: list[LlmRequest] = PrivateAttr(default_factory=list[LlmRequest])
    _news: anyio.Event | None = PrivateAttr(default=None)
    _playing: int = PrivateAttr(default=0)

    @classmethod
    def of(cls, *turns: Turn, loop: bool = False) -> Scripted:
        made = cls()
        made._turns, made._loop = list(turns), loop
        return made

    async def wait_for_calls(self, times: int = 1) -> None:
        """Wait until the model has been called this many times."""
        with unless_hung():
            while self.calls < times:
                self._news = anyio.Event()
                await self._news.wait()

    @property
    def playing(self) -> int:
        """How many answers have begun and not ended."""
        return self._playing

    @property
    def calls(self) -> int:
        return len(self._requests)

    @property
    def requests(self) -> list[LlmRequest]:
        return self._requests

    @property
    def saw(self) -> list[list[Seen]]:
        """The contents of each call, as short tuples."""
        return [seen(request) for request in self._requests]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self._requests.append(llm_request.model_copy(update={"contents": list(llm_request.contents)}))
        if self._news is not None:
            self._news.set()
        turn = self._turns[0] if self._loop and len(self._turns) == 1 else self._turns.pop(0)
        if callable(turn):
            turn = turn(llm_request)
        if isinstance(turn, Exception):
            raise turn
        self._playing += 1
        try:
            for response in _streamed(turn) if stream else _whole(turn):
                if isinstance(response, Exception):
                    raise response
                if response is HANG:
                    await anyio.sleep_forever()
                yield response
        finally:
            self._playing -= 1


HANG = object()
"""In a turn: wait until cancelled."""


def text(value: str, **more: Any) -> types.Part:
    return types.Part(text=value, **more)


def thought(value: str) -> types.Part:
    return types.Part(text=value, thought=True)


def call(name: str, id: str | None = None, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, id=id, args=args))


def reply(*parts: types.Part, **more: Any) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=list(parts)), **more)


def piece(*parts: types.Part) -> LlmResponse:
    return reply(*parts, partial=True)


def _streamed(turn: Sequence[Any]) -> list[Any]:
    """The turn as a streaming model sends it: strings and parts as partial pieces, then the whole; responses as they are."""
    if not all(isinstance(one, str | types.Part) for one in turn):
        return [piece(text(one)) if isinstance(one, str) else one for one in turn]
    parts = [text(one) if isinstance(one, str) else one for one in turn]
    pieces = [piece(part) for part in parts if part.text]
    return [*pieces, _joined(parts, partial=False)]


def _whole(turn: Sequence[Any]) -> list[Any]:
    if not all(isinstance(one, str | types.Part) for one in turn):
        return [one for one in turn if not (isinstance(one, LlmResponse) and one.partial)]
    return [_joined([text(one) if isinstance(one, str) else one for one in turn])]


def _joined(parts: list[types.Part], **more: Any) -> LlmResponse:
    """Neighbouring texts of one kind become one part, as the SDK's own aggregator does it."""
    merged: list[types.Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last is not None and part.text and last.text and bool(part.thought) == bool(last.thought):
            merged[-1] = types.Part(text=last.text + part.text, thought=part.thought)
        else:
            merged.append(part)
    return reply(*merged, **more)


def seen(request: LlmRequest) -> list[Seen]:
    """Return the contents of a model request. ADK quotes the actions of other agents: ("quoted", agent and verb, text)."""
    expected = [(content.role or "", part) for content in request.contents for part in content.parts or []]
    return [(role, _short(part)) for role, part in expected if not (part.text or "").startswith(_PREAMBLE)]


def _short(part: types.Part) -> Any:
    if part.function_call is not None:
        return ("call", part.function_call.name, part.function_call.args)
    if part.function_response is not None:
        return ("result", part.function_response.name, part.function_response.response)
    if part.inline_data is not None:
        return ("data", part.inline_data.mime_type, part.inline_data.data)
    if part.file_data is not None:
        return ("file", part.file_data.mime_type, part.file_data.file_uri)
    quoted = _QUOTED.fullmatch(part.text or "")
    if quoted is not None:
        return ("quoted", quoted[1], quoted[2])
    return ("thought", part.text) if part.thought else part.text
