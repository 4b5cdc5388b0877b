"""LangChain's agents with the real packages of model providers. Each message, call and thought is sent once, whatever its ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import SecretStr

from ambient_runner.protocol import events as e
from tests.bridges.langgraph.world import get_weather, langgraph
from tests.scripted_api import Fixture, read_requests, start_scripted_api

CALL = {"id": "call_1", "name": "get_weather", "arguments": '{"city":"Rome"}'}
SCRIPT: list[Fixture] = [
    {
        "match": {"userMessage": "weather", "hasToolResult": False},
        "response": {"reasoning": "I should look it up.", "content": "Let me look.", "toolCalls": [CALL]},
    },
    {
        "match": {"userMessage": "weather", "hasToolResult": True},
        "response": {"reasoning": "It is clear now.", "content": "It is sunny in Rome."},
    },
    {"match": {"userMessage": "riddle"}, "response": {"reasoning": "Think hard.", "content": "A shadow."}},
    {"match": {"userMessage": "thanks"}, "response": {"content": "You are welcome."}},
]
SAVERS = pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])


@cache
def api_url() -> str:
    return start_scripted_api(SCRIPT)


@asynccontextmanager
async def openai(**options: Any) -> AsyncIterator[Any]:
    async with httpx.AsyncClient() as client:
        yield ChatOpenAI(
            model="gpt-5",
            base_url=f"{api_url()}/v1",
            api_key=SecretStr("x"),
            http_async_client=client,
            **options,
        )


@asynccontextmanager
async def anthropic() -> AsyncIterator[Any]:
    from langchain_anthropic import ChatAnthropic

    model: Any = ChatAnthropic(model_name="claude-scripted", base_url=api_url(), api_key=SecretStr("x"))  # type: ignore[call-arg]
    yield model
    await model._async_client.close()


@asynccontextmanager
async def google() -> AsyncIterator[Any]:
    from langchain_google_genai import ChatGoogleGenerativeAI

    model: Any = ChatGoogleGenerativeAI(model="gemini-scripted", base_url=api_url(), google_api_key=SecretStr("x"))
    yield model
    await model.client.aio.aclose()
    model.client.close()


ANSWER = [
    "user: weather please",
    "reasoning: I should look it up.",
    "assistant: Let me look.",
    'call: call_1 get_weather {"city":"Rome"}',
    "tool: sunny in Rome",
    "reasoning: It is clear now.",
    "assistant: It is sunny in Rome.",
]
WITHOUT_REASONING = [line for line in ANSWER if not line.startswith("reasoning")]
RESPONSES = [
    {"use_responses_api": True},
    *({"use_responses_api": True, "output_version": name} for name in ("v0", "v1")),
]


async def check_conversation(model: Any, saver: Any, expected: list[str]) -> None:
    """Two turns: the second shows that the model gets each message of the first once."""
    async with langgraph(create_agent(model, [get_weather], checkpointer=saver())) as thread:
        await thread.say("weather please")
        starts = [event for event in thread.events if isinstance(event, e.ToolCallStart | e.TextMessageStart)]
        assert [type(event).__name__ for event in starts] == ["TextMessageStart", "ToolCallStart", "TextMessageStart"]
        assert await thread.messages() == expected
        before = len(read_requests(api_url()))
        await thread.say("thanks")
        assert await thread.messages() == [*expected, "user: thanks", "assistant: You are welcome."]
        (request,) = read_requests(api_url())[before:]
        said = [
            message["content"] for message in request["messages"] if message["role"] != "system" and message["content"]
        ]
    assert said == ["weather please", "Let me look.", "sunny in Rome", "It is sunny in Rome.", "thanks"]


@SAVERS
@pytest.mark.parametrize("options", RESPONSES, ids=["default format", "v0", "v1"])
async def test_openais_responses_api_gives_one_message_one_call_and_one_thought(options: Any, saver: Any) -> None:
    async with openai(**options) as model:
        await check_conversation(model, saver, ANSWER)


@SAVERS
async def test_openais_chat_completions_give_one_message_and_one_call(saver: Any) -> None:
    async with openai() as model:
        await check_conversation(model, saver, WITHOUT_REASONING)


async def test_models_of_one_node_that_stream_at_the_same_time_are_messages_of_their_own() -> None:
    async with openai(use_responses_api=True) as model:

        async def ask_twice(state: MessagesState) -> Any:
            return {"messages": await asyncio.gather(*(model.ainvoke("thanks") for _ in range(2)))}

        graph = StateGraph(MessagesState).add_node("ask", ask_twice).add_edge(START, "ask").compile()
        async with langgraph(graph) as thread:
            await thread.say("hi")
            assert await thread.messages() == ["user: hi", *["assistant: You are welcome."] * 2]


async def test_anthropics_messages_api_gives_one_message_one_call_and_one_thought(long: bool) -> None:
    if not long:
        pytest.skip("in `make test-all`: the package of one provider is enough for every change")
    async with anthropic() as model:
        await check_conversation(model, InMemorySaver, ANSWER)


async def test_googles_api_gives_one_message_and_one_thought(long: bool) -> None:
    """Without a call: aimock ends one with a reason that Google's package does not know."""
    if not long:
        pytest.skip("in `make test-all`: the package of one provider is enough for every change")
    async with google() as model, langgraph(create_agent(model, checkpointer=InMemorySaver())) as thread:
        for _ in range(2):
            await thread.say("a riddle")
        turn = ["user: a riddle", "reasoning: Think hard.", "assistant: A shadow."]
        assert await thread.messages() == [*turn, *turn]
