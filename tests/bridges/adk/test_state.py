"""State, artifacts and metadata (D6, D16)."""

from __future__ import annotations

from typing import Any

from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.adk.tools import ToolContext
from google.genai import types

from ambient_runner.protocol import events as e
from tests.bridges.adk.scripted import call, reply, text
from tests.bridges.adk.world import agent, short, talking
from tests.world import user


def write(tool_context: ToolContext) -> dict[str, Any]:
    """Write state of every kind."""
    for key in ("a/b", "c~d", "user:x", "app:y", "temp:z", "_internal"):
        tool_context.state[key] = 1
    return {}


def read(tool_context: ToolContext) -> dict[str, Any]:
    """Read the state."""
    return {"state": {key: value for key, value in tool_context.state.to_dict().items() if value is not None}}


HELLO = [("user", "hi")]
WRITTEN = [*HELLO, ("model", ("call", "write", {})), ("user", ("result", "write", {}))]
SHOWN = "SS {'a/b': 1, 'c~d': 1}"
"""What `write` leaves, as clients see it."""


async def test_changes_are_patches_with_escaped_pointers_and_private_keys_stay_private() -> None:
    root, model = agent([call("write", "s1")], ["Done."], tools=[write])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS s1 write",
            "CA s1 {}",
            "CE s1",
            "CR s1 {}",
            "SD [{'op': 'add', 'path': '/a~1b', 'value': 1}, {'op': 'add', 'path': '/c~0d', 'value': 1}]",
            "TS m1",
            "TC Done.",
            "TE",
            SHOWN,
            "RF",
        ]
    assert model.saw == [HELLO, WRITTEN]


async def test_a_client_reads_and_writes_visible_keys_only() -> None:
    root, model = agent([call("write", "s1")], ["A"], [call("read", "s2")], ["B"], tools=[write, read])
    async with talking(root) as talk:
        first = await talk.say("u1")
        forged = {"a/b": 2, "user:x": 9, "app:y": 9, "_internal": 9, "mine": True}
        second = await talk.say("u2", state=forged)
    assert first[-2:] == [SHOWN, "RF"]
    [expected] = [word for word in second if word.startswith("CR s2 ")]
    assert second == [
        *("RS", "SS {'a/b': 2, 'mine': True}", "CS s2 read", "CA s2 {}", "CE s2", expected, "TS m1", "TC B", "TE", "RF")
    ]
    state = {"a/b": 2, "mine": True, "user:x": 1, "app:y": 1, "_internal": 1}
    then = [*WRITTEN, ("model", "A"), *HELLO]
    assert model.saw == [
        HELLO,
        WRITTEN,
        then,
        [*then, ("model", ("call", "read", {})), ("user", ("result", "read", {"state": state}))],
    ]


async def test_a_key_the_client_removes_is_gone_for_the_agent() -> None:
    root, model = agent(["A"], [call("read", "s1")], ["B"], ["C"], tools=[read])
    async with talking(root) as talk:
        await talk.say("u1", state={"keep": 1, "drop": 2})
        second = await talk.say("u2", state={"keep": 1})
        third = await talk.say("u3", state={"keep": 1})
    assert model.saw[2][-1][1][2]["state"] == {"keep": 1}
    assert [word for word in (*second, *third) if word.startswith("SS")] == ["SS {'keep': 1}"]


async def test_a_run_that_changes_no_state_sends_no_state_event() -> None:
    root, _ = agent(["A"], ["B"])
    async with talking(root) as talk:
        await talk.say("u1", state={"keep": 1})
        assert await talk.say("u2", state={"keep": 1}) == ["RS", "TS m1", "TC B", "TE", "RF"]


async def test_values_that_are_not_json_do_not_break_the_run() -> None:
    def odd(tool_context: ToolContext) -> dict[str, Any]:
        """Write something odd."""
        tool_context.state["when"] = {1, 2}
        return {"kind": b"\xff"}

    root, _ = agent([call("odd", "s1")], ["Done."], tools=[odd])
    async with talking(root) as talk:
        words = await talk.say("u1")
    assert words[-1] == "RF"


async def test_artifacts_and_metadata_are_custom_events() -> None:
    async def save(tool_context: ToolContext) -> dict[str, Any]:
        """Save a file."""
        await tool_context.save_artifact("a.txt", types.Part(text="hello"))
        return {}

    final = reply(text("Saved."), custom_metadata={"grade": "A"})
    root, model = agent([call("save", "s1")], [final], tools=[save])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS s1 save",
            "CA s1 {}",
            "CE s1",
            "CR s1 {}",
            "X adk:artifacts {'a.txt': 0}",
            "TS m1",
            "TC Saved.",
            "TE",
            "X adk_custom_metadata {'grade': 'A'}",
            "RF",
        ]
    assert model.saw == [
        HELLO,
        [*HELLO, ("model", ("call", "save", {})), ("user", ("result", "save", {}))],
    ]


async def test_code_the_model_ran_and_media_it_made_are_custom_events() -> None:
    parts = [
        types.Part(executable_code=types.ExecutableCode(code="1+1", language=types.Language.PYTHON)),
        types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="2")),
        types.Part(inline_data=types.Blob(data=b"hi", mime_type="image/png")),
    ]

    class Odd(BaseAgent):
        async def _run_async_impl(self, ctx: Any) -> Any:
            yield Event(
                author=self.name,
                invocation_id=ctx.invocation_id,
                content=types.Content(role="model", parts=parts),
            )

    async with talking(Odd(name="odd")) as talk:
        events = await talk.run(user("u1"))
    assert [(event.name, event.value) for event in events if isinstance(event, e.Custom)] == [
        ("adk:code", {"language": "PYTHON", "code": "1+1"}),
        ("adk:code_result", {"outcome": "OUTCOME_OK", "output": "2"}),
        ("adk:media", {"inlineData": {"data": "aGk=", "mimeType": "image/png"}}),
    ]
    assert short(events)[-1] == "RF"
