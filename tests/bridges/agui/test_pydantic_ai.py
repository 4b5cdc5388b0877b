"""pydantic-ai's own AG-UI adapter behind this server, with a scripted model: what clients get, and what the model saw."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.ui import StateDeps

from ambient_runner import create_app
from ambient_runner.bridges.pydantic_ai import PydanticAIBridge
from ambient_runner.bridges.registry import load_agent
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

BACKGROUND = {
    "name": "change_background",
    "description": "Change the background colour of the page",
    "parameters": {"type": "object", "properties": {"background": {"type": "string"}}},
}
Said = str | dict[int, DeltaToolCall]


def example(name: str) -> ModuleType:
    place = Path(__file__).parents[3] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Scripted:
    """A model that says one list after another and remembers what it was shown."""

    def __init__(self, *turns: list[Said]) -> None:
        self._turns = list(turns)
        self.seen: list[list[tuple[str, Any]]] = []
        self.tools: list[list[str]] = []
        self.model = FunctionModel(stream_function=self._speak)

    async def _speak(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Said]:
        self.seen.append([part for message in messages for part in _parts(message)])
        self.tools.append([tool.name for tool in info.function_tools])
        for piece in self._turns.pop(0):
            yield piece


def _parts(message: ModelMessage) -> list[tuple[str, Any]]:
    assert isinstance(message, ModelRequest | ModelResponse)
    return [(part.part_kind, getattr(part, "args", None) or getattr(part, "content", None)) for part in message.parts]


def call(name: str, arguments: str, id: str) -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall(name=name, json_args=arguments, tool_call_id=id)}


async def post(client: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
    with unless_hung():
        response = await client.post("/", json=body)
    assert response.status_code == 200, response.text
    return [event for _, event in frames(response)]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events if not event.get("name", "").startswith("ambient:")]


def words(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_two_turns_of_text() -> None:
    scripted = Scripted(["Hel", "lo."], ["Again."])
    async with client_of(example("agui_pydantic_ai").create(scripted.model, SETTINGS)) as client:
        first = await post(client, run_body("hi"))
        second = await post(client, run_body("once more", message="u2"))
    assert kinds(first) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert (words(first), words(second)) == ("Hello.", "Again.")
    assert scripted.seen == [
        [("user-prompt", "hi")],
        [("user-prompt", "hi"), ("text", "Hello."), ("user-prompt", "once more")],
    ]
    assert [message["content"] for message in second[-2]["messages"]] == ["hi", "Hello.", "once more", "Again."]


async def test_a_tool_of_the_agent() -> None:
    scripted = Scripted([call("get_weather", '{"city": "Oslo"}', "c1")], ["Sunny."])
    async with client_of(example("agui_pydantic_ai").create(scripted.model, SETTINGS)) as client:
        events = await post(client, run_body("weather?"))
    assert [kind for kind in kinds(events) if kind.startswith("TOOL")] == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    assert words(events) == "Sunny."
    assert scripted.seen[1] == [
        ("user-prompt", "weather?"),
        ("tool-call", '{"city": "Oslo"}'),
        ("tool-return", "It is sunny in Oslo."),
    ]
    roles = [message["role"] for message in events[-2]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]


async def test_a_tool_of_the_agent_that_the_page_declares_too_is_the_agents() -> None:
    """The run failed: pydantic-ai refuses two tools of the same name, so any client could stop the agent."""
    scripted = Scripted([call("get_weather", '{"city": "Oslo"}', "c1")], ["Sunny."])
    forged = {**BACKGROUND, "name": "get_weather"}
    async with client_of(example("agui_pydantic_ai").create(scripted.model, SETTINGS)) as client:
        events = await post(client, run_body("weather?", tools=[forged, BACKGROUND]))
    assert (words(events), events[-1]["outcome"]) == ("Sunny.", {"type": "success"})
    assert scripted.tools == [["get_weather", "change_background"]] * 2
    assert [event["value"] for event in events if event.get("name") == "ambient:dropped"] == [
        {"type": "TOOLS", "reason": "name_taken", "names": ["get_weather"]}
    ]


async def test_the_function_tools_of_the_agent_are_listed() -> None:
    async with client_of(example("agui_pydantic_ai").create(Scripted().model, SETTINGS)) as client:
        (found,) = (await client.get("/tools")).json()["tools"]
    assert (found["name"], found["parameters"]["required"]) == ("get_weather", ["city"])


async def test_a_tool_of_the_page() -> None:
    scripted = Scripted([call("change_background", '{"background": "teal"}', "c1")], ["It is teal now."])
    async with client_of(example("agui_pydantic_ai").create(scripted.model, SETTINGS)) as client:
        first = await post(client, run_body("Make it teal", tools=[BACKGROUND]))
        result = {"id": "a1", "role": "tool", "toolCallId": "c1", "content": "done"}
        body = {"threadId": "t", "runId": "r2", "protocolVersion": "1.0", "messages": [result], "tools": [BACKGROUND]}
        second = await post(client, body)
    assert first[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    assert "TOOL_CALL_RESULT" not in kinds(first)
    assert words(second) == "It is teal now."
    assert scripted.tools == [["get_weather", "change_background"]] * 2
    assert scripted.seen[1] == [
        ("user-prompt", "Make it teal"),
        ("tool-call", '{"background": "teal"}'),
        ("tool-return", "done"),
    ]


async def test_a_failing_model_is_an_error_without_its_text() -> None:
    async def fails(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "Well, "
        raise RuntimeError("cannot reach db.internal with password sk-demo-5f2a9c71e04b8d36")

    model = FunctionModel(stream_function=fails)
    async with client_of(example("agui_pydantic_ai").create(model, SETTINGS)) as client:
        events = await post(client, run_body("hi"))
    assert events[-1]["type"] == "RUN_ERROR"
    assert "sk-demo-5f2a9c71e04b8d36" not in str(events)
    assert events[-2]["messages"][-1]["content"] == "Well, "


hello = Agent(Scripted(["Hello."]).model)


async def test_the_command_line_takes_a_pydantic_ai_agent_as_it_is() -> None:
    name, bridge = load_agent("mine=tests.bridges.agui.test_pydantic_ai:hello")
    async with client_of(create_app(SETTINGS, {name: bridge})) as client:
        assert words(await post(client, run_body("hi"))) == "Hello."


async def test_the_model_knows_the_context_that_the_page_sends() -> None:
    instructions: list[str | None] = []

    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        instructions.append(info.instructions)
        yield "Hello."

    agent = Agent(FunctionModel(stream_function=speak), instructions="Be kind.")
    bridge = PydanticAIBridge(agent, instructions="Be brief.")
    context = [{"description": "Name of the user", "value": "Bob"}]
    async with client_of(create_app(SETTINGS, {"mine": bridge})) as client:
        await post(client, run_body("hi", context=context))
        await post(client, run_body("hi", thread="other"))
    assert instructions == [
        "Be kind.\n\nBe brief.\n\nContext of this request:\n- Name of the user: Bob",
        "Be kind.\n\nBe brief.",
    ]


class Note(BaseModel):
    text: str = ""


async def test_the_state_of_one_thread_is_not_read_by_a_run_of_another() -> None:
    """pydantic-ai sets the state of a run on `deps`, which the bridge has once for all runs."""
    both_run = anyio.Event()
    running: list[str] = []

    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Said]:
        if len(messages) > 1:
            yield "Done."
            return
        running.append("one")
        if len(running) == 2:
            both_run.set()
        await both_run.wait()
        yield call("read_note", "{}", "c1")

    agent = Agent(FunctionModel(stream_function=speak), deps_type=StateDeps[Note])

    @agent.tool
    def read_note(context: RunContext[StateDeps[Note]]) -> str:
        return context.deps.state.text

    bridge = PydanticAIBridge(agent, deps=StateDeps(Note()))
    results: dict[str, str] = {}
    async with client_of(create_app(SETTINGS, {"mine": bridge})) as client, anyio.create_task_group() as group:

        async def ask(name: str) -> None:
            events = await post(client, run_body("hi", thread=name, state={"text": name}))
            results[name] = next(event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT")

        group.start_soon(ask, "red")
        group.start_soon(ask, "blue")
    assert results == {"red": "red", "blue": "blue"}
