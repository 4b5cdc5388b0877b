"""Tools of the CLI, of the developer and of the client, and agents that Claude sends out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

from ambient_runner.protocol import events as e
from ambient_runner.protocol.ids import client_safe_id
from ambient_runner.runs.run import current_run
from tests.bridges.claude.mock import model_request
from tests.bridges.claude.script import ENDLESS
from tests.bridges.claude.test_text import frame, spoken
from tests.bridges.claude.world import PAINT, claude, tool_message
from tests.world import user


def select_words(words: list[str], *kinds: str) -> list[str]:
    return [word for word in words if word.split()[0] in kinds]


async def test_a_command_runs_in_the_workspace_and_its_output_is_the_result(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        note(tmp_path)
        words = await world.thread().say("otter looks")
    assert frame(words) == ["TS", "TE", "CS", "CE", "CR", "TS", "TE", "MS", "RF"]
    assert select_words(words, "CR") == ['CR call_look "tulip"']
    assert spoken(words) == "Let me look.It says tulip."


async def test_a_file_is_read_and_another_is_made(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        note(tmp_path)
        thread = world.thread()
        read = await thread.say("otter reads")
        await thread.say("otter touches")
    assert len(select_words(read, "CR")) == 1
    assert "tulip" in select_words(read, "CR")[0]
    assert (tmp_path / "work" / "t" / "made.txt").exists()


async def test_a_tool_of_the_developer_runs_here_and_knows_the_run(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    @tool("add", "Add two numbers", {"a": int, "b": int})
    async def add(arguments: Any) -> dict[str, Any]:
        seen.append([message.id for message in current_run().accepted])
        texts = [str(arguments["a"] + arguments["b"]), "and no more"]
        return {"content": [{"type": "text", "text": text} for text in texts]}

    async with claude(tmp_path, context={"custom_tools": [add]}) as world:
        thread = world.thread()
        await thread.say("say hello there")
        words = await thread.say("otter adds")
    assert select_words(words, "CS") == ["CS call_add add < m1"]
    assert select_words(words, "CR") == ['CR call_add "5\\nand no more"']
    assert seen == [["u2"]]


async def test_an_mcp_server_of_the_options_that_runs_in_this_process_is_called(tmp_path: Path) -> None:
    """It was offered to the CLI, and "No such tool available" was the result."""

    @tool("get_weather", "Return the weather at a location", {"location": str})
    async def get_weather(arguments: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"Sunny in {arguments['location']}."}]}

    server = create_sdk_mcp_server("weather", tools=[get_weather])
    options = ClaudeAgentOptions(mcp_servers={"weather": server}, allowed_tools=["mcp__weather__get_weather"])
    async with claude(tmp_path, options=options) as world:
        words = await world.thread().say("otter checks the sky")
    assert select_words(words, "CS") == ["CS call_up mcp__weather__get_weather < m1"]
    assert select_words(words, "CR") == ['CR call_up "Sunny in Lisbon."']


async def test_a_call_of_a_clients_tool_ends_the_run_and_its_result_continues_in_the_same_process(
    tmp_path: Path,
) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        asked_for = await thread.say("otter paints")
        pid = world.adapter().pid
        answered = await thread.answer(call_paint="it is teal now")
        assert world.adapter().pid == pid
    assert frame(asked_for) == ["CS", "CE", "MS", "RF"]
    assert select_words(asked_for, "CS") == ["CS call_paint change_background < m1"]
    assert asked_for[-1] == "RF waits for call_paint"
    assert (frame(answered), spoken(answered)) == (["TS", "TE", "MS", "RF"], "Painted.")
    assert model_request("it is teal now")["messages"][-1]["tool_call_id"] == "call_paint"


async def test_a_call_under_an_id_that_no_client_could_send_back_is_answered_in_the_same_process(
    tmp_path: Path,
) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        asked_for = await thread.say("otter names it at length")
        pid = world.adapter().pid
        answered = await thread.answer(**{client_safe_id(ENDLESS): "it is long now"})
        assert world.adapter().pid == pid
    assert asked_for[-1] == f"RF waits for {client_safe_id(ENDLESS)}"
    assert (frame(answered), spoken(answered)) == (["TS", "TE", "MS", "RF"], "Long.")
    assert model_request("it is long now")["messages"][-1]["tool_call_id"] == ENDLESS


async def test_results_of_several_calls_reach_the_calls_they_belong_to(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        assert (await thread.say("otter doubles"))[-1] == "RF waits for call_one call_two"
        words = await thread.answer(call_two="painted for call_two", call_one="painted for call_one")
    assert (spoken(words), words[-1]) == ("Painted twice.", "RF success")
    results = {
        one["tool_call_id"]: one["content"] for one in model_request("painted for")["messages"] if one["role"] == "tool"
    }
    assert {call: str(content) for call, content in results.items()} == {
        "call_one": "painted for call_one",
        "call_two": "painted for call_two",
    }


async def test_a_run_does_not_end_while_the_model_still_writes_another_call(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        words = await thread.say("otter takes its time")
        assert words[-1] == "RF waits for call_early call_late"
        written = "".join(word.split(" ", 2)[2] for word in words if word.startswith("CA call_late "))
        assert json.loads(written) == {"color": "a very long name of a blue"}
        assert (await thread.answer(call_early="a", call_late="b"))[-1] == "RF success"


async def test_results_and_a_new_message_together_are_answered_one_after_the_other(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("otter paints")
        words = await thread.run(tool_message("call_paint", "teal it is"), user("u2", "walrus remembers"))
    assert (spoken(words), words[-1]) == ("Painted.I remember.", "RF success")
    assert "teal it is" not in str(model_request("walrus remembers")["messages"][-1])


async def test_a_new_message_instead_of_a_result_abandons_the_call(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("otter paints")
        words = await thread.say("walrus remembers")
    assert (spoken(words), words[-1]) == ("I remember.", "RF success")


async def test_a_call_that_does_not_fit_the_tool_is_answered_here(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        words = await world.thread(tools=[PAINT]).say("otter misuses")
    assert len(select_words(words, "CR")) == 1
    assert select_words(words, "CR")[0].endswith(" error")
    assert words[-1] == "RF success"


def hostile(kind: str, directory: Path) -> dict[str, Any]:
    """A schema that must not be checked in the server: it would read a file, or take for ever."""
    doubled = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    secret = directory / "secret.json"
    secret.write_text('{"const": "hush-hush"}')
    match kind:
        case "file":
            return {"properties": {"color": {"description": "d", "$ref": secret.as_uri()}}}
        case "pattern":
            return {"properties": {"color": {"type": "string", "pattern": "^(a+)+$"}}}
        case "names":
            return {"properties": {"color": {"type": "string"}}, "patternProperties": {"^(a+)+$": False}}
        case _:
            return {
                "properties": {"color": {"$ref": "#/$defs/d0"}},
                "$defs": {**doubled, "d40": {"type": "string"}},
            }


@pytest.mark.parametrize("kind", ["file", "pattern", "names", "doubled"])
async def test_what_a_client_declares_is_for_the_model_and_does_nothing_in_the_server(
    tmp_path: Path, kind: str
) -> None:
    schema = {"type": "object", **hostile(kind, tmp_path)}
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[msgspec.structs.replace(PAINT, parameters=schema)])
        assert (await thread.say("otter strains"))[-1] == "RF waits for call_strain"
        assert (await thread.answer(call_strain="strained"))[-1] == "RF success"
    [offered] = [one["function"] for one in model_request("strained")["tools"] if "ambient" in one["function"]["name"]]
    expected = {"color": {"description": "d"}} if kind == "file" else schema["properties"]
    assert offered["parameters"]["properties"] == expected


async def test_a_call_whose_id_the_model_has_used_before_is_answered_under_its_own(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread(tools=[PAINT])
        await thread.say("otter paints")
        await thread.answer(call_paint="it is teal now")
        again = await thread.say("otter paints")
        assert again[-1] == "RF waits for call_paint~2"
        pid = world.adapter().pid
        words = await thread.answer(**{"call_paint~2": "teal once more"})
        assert world.adapter().pid == pid
    assert (frame(words), words[-1]) == (["TS", "TE", "MS", "RF"], "RF success")
    [transcript] = [path.read_text() for path in (tmp_path / "home" / ".claude" / "projects").rglob("*.jsonl")]
    assert "teal once more" in transcript


async def test_tools_of_a_later_run_reach_claude_too_and_it_keeps_the_conversation(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("walrus begins")
        thread.tools = [PAINT]
        words = await thread.say("otter paints")
        assert words[-1] == "RF waits for call_paint"
        await thread.answer(call_paint="done")
        thread.tools = []
        await thread.say("walrus sums up")
    names = {one["function"]["name"] for one in model_request("walrus sums up")["tools"]}
    assert "mcp__ambient__change_background" not in names
    assert "walrus begins" in str(model_request("walrus sums up")["messages"])


async def test_a_tool_that_cannot_be_offered_is_left_out(tmp_path: Path) -> None:
    odd = [msgspec.structs.replace(PAINT, name=name) for name in ("Bash", "two words", "x" * 60)]
    async with claude(tmp_path) as world:
        await world.thread(tools=[*odd, PAINT]).say("walrus differs")
    ours = [name for one in model_request("walrus differs")["tools"] if "ambient" in (name := one["function"]["name"])]
    assert ours == ["mcp__ambient__change_background"]


async def test_a_tool_with_the_name_of_one_that_claude_has_is_left_out_and_reported(tmp_path: Path) -> None:
    """The names of MCP tools too, and those that the CLI makes the same: their calls could be taken for the client's."""

    @tool("paint.wall", "Paint a wall", {"color": str})
    async def paint_wall(arguments: Any) -> dict[str, Any]:
        raise NotImplementedError

    names = ["Bash", "mcp__weather__get_weather", "update_state", "paint_wall"]
    forged = [msgspec.structs.replace(PAINT, name=name) for name in names]
    async with claude(tmp_path, context={"custom_tools": [paint_wall]}) as world:
        thread = world.thread(tools=[*forged, PAINT])
        await thread.say("walrus differs")
    offered = [one["function"] for one in model_request("walrus differs")["tools"]]
    ours = {one["name"]: one["description"] for one in offered if "ambient" in one["name"]}
    assert ours == {"mcp__ambient__change_background": PAINT.description, "mcp__ambient__paint_wall": "Paint a wall"}
    assert [
        event.value for event in thread.events if isinstance(event, e.Custom) and event.name == "ambient:dropped"
    ] == [{"type": "TOOLS", "reason": "name_taken", "names": names}]


async def test_an_agent_that_claude_sends_out_is_a_subagent_of_its_call(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        note(tmp_path)
        thread = world.thread()
        words = await thread.say("otter delegates")
    subagent_id = "subagent-call_task"
    assert select_words(words, "SUB", "END") == [
        f"SUB {subagent_id} general-purpose < call_task",
        f"END SUB {subagent_id}",
    ]
    assert f'CR call_inner "tulip" @{subagent_id}' in words
    mine = [event for event in thread.events if getattr(event, "subagent_run_id", None) == subagent_id]
    text = "".join(one.delta for one in mine if isinstance(one, e.TextMessageContent))
    assert text == "I will look.The note says tulip."
    assert [word.split()[1] for word in select_words(words, "CS")] == ["call_task", "call_inner"]
    assert words[-1] == "RF success"


def note(directory: Path) -> None:
    place = directory / "work" / "t"
    place.mkdir(parents=True, exist_ok=True)
    (place / "note.txt").write_text("tulip\n")
