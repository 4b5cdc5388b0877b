"""A LangChain chat model that plays a script, so that real graphs run without a network, and remembers what it was shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, PrivateAttr

Step = AIMessageChunk | BaseException | anyio.Event
"""A chunk of the model's stream, something to raise, or an event to wait for."""
Turn = list[Step]
Script = Callable[[list[BaseMessage]], Turn]
"""Decides a turn from the messages the model is shown."""


class ScriptedModel(BaseChatModel):
    """Plays one turn per call. `saw` is what each call was shown in short words, `shown` the messages, `bound` the names of its tools."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    turns: list[Any] = []
    script: Any = None
    saw: list[list[str]] = []
    shown: list[list[BaseMessage]] = []
    bound: list[str] = []
    closed: int = 0
    gate: Any = None
    """Asked before every step: what to wait for, if anything."""
    _news: anyio.Event = PrivateAttr(default_factory=anyio.Event)

    def __init__(self, *turns: Turn, script: Script | None = None, **options: Any) -> None:
        super().__init__(turns=list(turns), script=script, saw=[], shown=[], bound=[], **options)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_provider": "scripted", "ls_model_name": "scripted-1", "ls_model_type": "chat"}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """The model with these tools: what it calls is written in its script."""
        self.bound = [
            tool["function"]["name"] if "function" in tool else tool["name"] for tool in map(_tool_spec, tools)
        ]
        return self.bind(tools=self.bound)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        """A model that does not stream: the turn in one message."""
        whole: AIMessageChunk | None = None
        for step in self._play(messages):
            assert isinstance(step, AIMessageChunk)
            whole = step if whole is None else whole + step
        assert whole is not None
        received = AIMessage(content=whole.content, tool_calls=whole.tool_calls, usage_metadata=whole.usage_metadata)
        return ChatResult(generations=[ChatGeneration(message=received)])

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        try:
            for step in self._play(messages):
                wait = self.gate() if self.gate else None
                if wait is not None:
                    await wait.wait()
                if isinstance(step, anyio.Event):
                    await step.wait()
                elif isinstance(step, BaseException):
                    raise step
                else:
                    yield ChatGenerationChunk(message=step.model_copy(deep=True))
        finally:
            self.closed += 1

    def _play(self, messages: list[BaseMessage]) -> Turn:
        self.shown.append(list(messages))
        self.saw.append([words(message) for message in messages])
        self._news.set()
        return self.script(messages) if self.script else self.turns.pop(0)

    async def wait_for_requests(self, times: int) -> None:
        """Wait until the model has received so many requests."""
        while len(self.saw) < times:
            self._news = anyio.Event()
            await self._news.wait()


def _tool_spec(tool: Any) -> dict[str, Any]:
    return tool if isinstance(tool, dict) else {"name": tool.name}


def words(message: BaseMessage) -> str:
    """A message as the model saw it: `user: hi`, `ai: Look: c1 get_weather {'city': 'Rome'}`, `tool c1: sunny`."""
    content = message.content if isinstance(message.content, str) else str(message.content)
    match message:
        case AIMessage():
            calls = [f"{call['id']} {call['name']} {call['args']}" for call in message.tool_calls]
            return " ".join(["ai:", *([content] if content else []), *calls])
        case ToolMessage():
            error = " error" if message.status == "error" else ""
            return f"tool {message.tool_call_id}: {content}{error}"
        case SystemMessage():
            return f"system: {content}"
        case _:
            return f"user: {content}"


def says(*deltas: str, usage: tuple[int, int] | None = None) -> Turn:
    """A turn of text alone."""
    return [*text(*deltas), *counted(usage)]


def calls(*blocks: Turn, usage: tuple[int, int] | None = None) -> Turn:
    """A turn of several blocks, calls among them."""
    return [*(step for block in blocks for step in block), *counted(usage)]


def counted(usage: tuple[int, int] | None) -> Turn:
    if usage is None:
        return []
    sent, received = usage
    total = {"input_tokens": sent, "output_tokens": received, "total_tokens": sent + received}
    return [AIMessageChunk(content="", usage_metadata=total)]  # type: ignore[arg-type]


def text(*deltas: str) -> Turn:
    return [AIMessageChunk(content=delta) for delta in deltas]


def blocks(*sent: dict[str, Any]) -> Turn:
    """Content blocks, each in a chunk of its own."""
    return [AIMessageChunk(content=[{"index": 0, **block}]) for block in sent]


def call(call_id: str, name: str, *pieces: str, index: int = 0) -> Turn:
    """A call whose name comes first and whose arguments come in these pieces."""
    first = {"id": call_id, "name": name, "args": "", "index": index}
    rest = [{"id": None, "name": None, "args": piece, "index": index} for piece in pieces]
    return [AIMessageChunk(content="", tool_call_chunks=[chunk]) for chunk in (first, *rest)]  # type: ignore[list-item]


def atomic(call_id: str, name: str, args: dict[str, Any]) -> Turn:
    """A call that comes in one piece, as some providers send it."""
    return [AIMessageChunk(content="", tool_calls=[{"id": call_id, "name": name, "args": args}])]  # type: ignore[list-item]
