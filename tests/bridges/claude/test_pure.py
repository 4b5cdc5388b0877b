"""The parts that need no process: the position to continue from, the prompt, the launch, and the meaning of an answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    PermissionResultAllow,
    PermissionResultDeny,
    create_sdk_mcp_server,
    tool,
)

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.claude.bridge import ClaudeBridge
from ambient_runner.bridges.claude.config import ClaudeConfig
from ambient_runner.bridges.claude.interrupts import PermissionRequest, to_permission_result
from ambient_runner.bridges.claude.launch import build_launch, options_at
from ambient_runner.bridges.claude.memory import (
    AnsweredMessage,
    ClaudeMemory,
    SessionPosition,
    memory_path,
    read_memory_file,
    write_memory_file,
)
from ambient_runner.bridges.claude.run_input import build_prompt
from ambient_runner.bridges.claude.shared import ClaudeBridgeState
from ambient_runner.bridges.toolkit.interrupts import DECLINED
from ambient_runner.bridges.toolkit.turns import find_new_input, to_turns
from ambient_runner.errors import ConfigError
from ambient_runner.protocol import events as e
from ambient_runner.runs.lowering import lower_props
from tests.bridges.claude.script import ASKED
from tests.machine_speed import unless_hung
from tests.world import KEY, user

MESSAGES = [
    user("u1", "one"),
    e.AssistantMessage(id="a1", content="first"),
    user("u2", "two"),
    e.AssistantMessage(id="a2", content="second"),
]
SESSION, OTHER = str(UUID(int=1)), str(UUID(int=2))
FIRST, SECOND = str(UUID(int=11)), str(UUID(int=12))
MEMORY = ClaudeMemory((AnsweredMessage("u1", SESSION, FIRST), AnsweredMessage("u2", SESSION, SECOND)))


def test_a_conversation_continues_after_its_newest_answer() -> None:
    assert MEMORY.find_position(to_turns(MESSAGES)) == SessionPosition(session=SESSION, entry=SECOND, missing_turns=[])


def test_rewound_turns_are_cut_off() -> None:
    assert MEMORY.find_position(to_turns(MESSAGES[:2])) == SessionPosition(
        session=SESSION, entry=FIRST, missing_turns=[]
    )


def test_a_turn_without_an_end_is_sent_again() -> None:
    unfinished = ClaudeMemory((MEMORY.answers[0], AnsweredMessage("u2", SESSION, None)))
    assert unfinished.find_position(to_turns(MESSAGES)) == SessionPosition(
        session=SESSION, entry=FIRST, missing_turns=to_turns(MESSAGES)[2:]
    )


@pytest.mark.parametrize("answers", [(), (AnsweredMessage("other", "s", "e"),), (AnsweredMessage("u1", "s", None),)])
def test_an_unknown_conversation_is_sent_from_its_beginning(answers: tuple[AnsweredMessage, ...]) -> None:
    memory = ClaudeMemory(answers)
    assert memory.find_position(to_turns(MESSAGES)) == SessionPosition(missing_turns=to_turns(MESSAGES))


def test_a_memory_file_is_read_as_it_was_written_and_anything_else_as_empty(tmp_path: Path) -> None:
    path = memory_path(tmp_path, ("tenant", "owner", "../../t"))
    assert path.parent == tmp_path / ".claude"
    write_memory_file(path, MEMORY)
    assert read_memory_file(path) == MEMORY
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    for broken in ("", "[]", '{"claude": [["u1"], 5, ["u1", 1, 2]]}', "\udcff"):
        path.write_text(broken, errors="surrogateescape")
        assert read_memory_file(path) == ClaudeMemory()


@pytest.mark.parametrize("bad", ["*", "--help", "", "../x", f"{UUID(int=3)}\n"])
def test_a_memory_with_ids_that_are_not_the_clis_is_ignored(bad: str) -> None:
    good = ["u1", SESSION, FIRST]
    rows = [["u0", bad, FIRST], good, ["u2", SESSION, bad], *([["u3", bad, None]] if bad else [])]
    assert ClaudeMemory.from_stored({"claude": rows}) == ClaudeMemory((AnsweredMessage("u1", SESSION, FIRST),))


def test_a_turn_that_has_no_session_yet_stays_in_the_memory() -> None:
    begun = ClaudeMemory((AnsweredMessage("u1", "", None),))
    assert ClaudeMemory.from_stored(begun.to_stored()) == begun


@pytest.mark.parametrize("kind", ["pipe", "directory", "huge", "link"])
async def test_only_a_plain_file_of_reasonable_size_is_read(tmp_path: Path, kind: str) -> None:
    path, real = tmp_path / "ambient.json", tmp_path / "real.json"
    write_memory_file(real, MEMORY)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "huge":
            path.write_text(real.read_text() + " " * (1 << 20))
        case _:
            path.symlink_to(real)
    with unless_hung():
        loaded = await anyio.to_thread.run_sync(read_memory_file, path, abandon_on_cancel=True)
    assert loaded == ClaudeMemory()


def test_a_memory_keeps_the_newest_answers_only() -> None:
    memory = ClaudeMemory()
    for n in range(40):
        memory = memory.add_answer(f"u{n}", "s", f"e{n}")
    answers = memory.answers
    assert (len(answers), answers[-1]) == (32, AnsweredMessage("u39", "s", "e39"))
    newer = memory.add_answer("u39", "s", None)
    assert newer.answers[-2:] == (answers[-2], AnsweredMessage("u39", "s", None))


def prompt_blocks(*messages: e.Message, missing_turns: Any = (), **fields: Any) -> list[str]:
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=list(messages), **fields)
    return [block["text"] for block in build_prompt(run_input, find_new_input(run_input), missing_turns)]


def test_context_and_state_come_before_the_users_text() -> None:
    context = [e.Context(description="page", value="roses")]
    assert prompt_blocks(user("u1", "hi"), context=context, state={"n": 1}) == [
        "<context>\nContext of this request:\n- page: roses\n</context>\n",
        '<state>\n{"n": 1}\n</state>\n',
        "hi",
    ]


def test_the_conversation_is_sent_with_its_calls_and_results() -> None:
    call = e.ToolCall(id="c1", function=e.FunctionCall(name="Bash", arguments='{"command": "ls"}'))
    turns = to_turns(
        [
            user("u1", "look"),
            e.AssistantMessage(id="a1", content="Sure.", tool_calls=[call]),
            e.ToolMessage(id="t1", tool_call_id="c1", content="a tree"),
        ]
    )
    assert prompt_blocks(user("u2", "and?"), missing_turns=turns) == [
        '<conversation_so_far>\nUser: look\n\nYou: Sure.\nYou called Bash with {"command": "ls"}\n\n'
        "Bash gave: a tree\n</conversation_so_far>\n",
        "and?",
    ]


def test_an_unreadable_attachment_is_named() -> None:
    parts = [e.ImagePart(source=e.UrlSource(value="http://127.0.0.1/x")), e.TextPart(text="see")]
    assert prompt_blocks(e.UserMessage(id="u1", content=parts)) == [
        "[An attachment that cannot be read here: image]",
        "see",
    ]


def permission_request(**fields: Any) -> PermissionRequest:
    return PermissionRequest(**{"call_id": "c1", "tool": "Bash", "input": {"command": "ls"}, **fields})


def entry(payload: Any, status: Any = "resolved") -> e.ResumeEntry:
    return e.ResumeEntry(interrupt_id="i", status=status, payload=payload)


async def test_an_approval_is_for_the_arguments_that_were_shown() -> None:
    assert to_permission_result(permission_request(), entry({"approved": True})) == PermissionResultAllow(
        updated_input={"command": "ls"}
    )


@pytest.mark.parametrize("edited", ['{"command": "true"}', ["true"], {}, 5, False], ids=repr)
async def test_an_approval_with_malformed_edits_declines_the_call(edited: Any) -> None:
    """The original command was executed."""
    answer = to_permission_result(permission_request(), entry({"approved": True, "editedArgs": edited}))
    assert answer == PermissionResultDeny(message=DECLINED)


async def test_no_answer_declines_the_call() -> None:
    assert to_permission_result(permission_request(), None) == PermissionResultDeny(message=DECLINED)


@pytest.mark.parametrize(
    ("payload", "answers"),
    [
        ({"answers": {"Which colour?": "Blue"}}, {"Which colour?": "Blue"}),
        ({"Which colour?": "Blue"}, {"Which colour?": "Blue"}),
        ({"answers": {"Which colour?": ["Red", "Blue"], "Other?": "x"}}, {"Which colour?": "Red, Blue"}),
        ("Green", {"Which colour?": "Green"}),
    ],
)
async def test_an_answer_may_be_written_in_several_ways(payload: Any, answers: dict[str, str]) -> None:
    request = permission_request(tool="AskUserQuestion", input=ASKED)
    assert to_permission_result(request, entry(payload)) == PermissionResultAllow(
        updated_input={**ASKED, "answers": answers}
    )


@pytest.mark.parametrize("payload", [None, {}, {"answers": {"Other?": "x"}}, 5])
async def test_an_answer_to_something_else_is_none(payload: Any) -> None:
    request = permission_request(tool="AskUserQuestion", input=ASKED)
    assert isinstance(to_permission_result(request, entry(payload)), PermissionResultDeny)


def launched(config: ClaudeConfig | None = None, **fields: Any) -> ClaudeAgentOptions:
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=[], **fields)
    launch = build_launch(config or ClaudeConfig(), PlatformContext(cwd_path="/w", add_dirs=["/x"]), run_input, {}, {})
    return options_at(launch, SessionPosition(session="s", entry="e"))


def test_nothing_of_a_workspace_counts_unless_it_is_named() -> None:
    options = launched()
    assert (options.setting_sources, options.strict_mcp_config, options.permission_mode) == ([], True, "acceptEdits")
    assert (options.cwd, options.add_dirs, options.resume, options.resume_session_at) == ("/w", ["/x"], "s", "e")


@pytest.mark.parametrize("name", ["ambient", "ambient__more", "ambient..more"])
def test_no_other_server_takes_the_name_of_our_tools_which_need_no_permission(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers: Any = {name: {"type": "http", "url": "http://127.0.0.1:9/"}, "ambient-notes": {"type": "sse", "url": "x"}}
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=[])
    for own, offered in ((servers, {}), ({}, servers)):
        config = ClaudeConfig(options=ClaudeAgentOptions(mcp_servers=own))
        launch = build_launch(config, PlatformContext(mcp_servers=offered), run_input, {}, {})
        assert launch.options.mcp_servers == {"ambient-notes": {"type": "sse", "url": "x"}}
    assert len(caplog.records) == 2


def test_characters_that_a_command_line_refuses_are_not_in_the_system_prompt() -> None:
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=[])
    launch = build_launch(ClaudeConfig(), PlatformContext(system_prompt_append="b\0rief \ud800"), run_input, {}, {})
    prompt: Any = launch.options.system_prompt
    assert prompt["append"] == "brief ?"


@pytest.mark.parametrize("model", ["--dangerously-skip-permissions", "two words", "x" * 200, 5, None])
def test_an_invalid_model_name_is_not_passed_on(model: Any) -> None:
    assert launched(forwarded_props={"model": model}).model == "default"


@pytest.mark.parametrize(
    ("models", "passed"), [((), {}), (("a", "b"), {"model": "a"}), (("b",), {}), (("*",), {"model": "a"})]
)
def test_of_the_forwarded_props_only_a_listed_model_is_read(models: tuple[str, ...], passed: dict[str, str]) -> None:
    rules = ClaudeBridge(models=models).forwarded_props
    assert isinstance(rules, dict)
    assert lower_props({"model": "a", "user": "eve"}, rules)[0] == passed


def test_two_runs_that_need_the_same_process_have_the_same_launch() -> None:
    config, ctx = ClaudeConfig(), PlatformContext(cwd_path="/w")
    run_input = [
        e.RunAgentInput(thread_id="t", run_id=run, messages=[user(run)], state={"n": run}) for run in ("a", "b")
    ]
    first, second = (build_launch(config, ctx, one, {"PATH": "/bin"}, {"TOKEN": "x"}) for one in run_input)
    assert first == second
    assert first != build_launch(config, ctx, run_input[0], {"PATH": "/bin"}, {"TOKEN": "y"})


def test_what_was_granted_wins_and_is_not_shown() -> None:
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=[])
    base = {"ANTHROPIC_API_KEY": "of the server"}
    launch = build_launch(ClaudeConfig(), PlatformContext(), run_input, base, {"ANTHROPIC_API_KEY": "granted-to-alice"})
    assert launch.environment["ANTHROPIC_API_KEY"] == "granted-to-alice"
    assert "granted-to-alice" not in repr(launch)


def test_what_every_process_has_is_known_by_name_and_so_is_the_password_of_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://corp:proxy%20password@127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://[no-address")
    shared = ClaudeBridgeState(
        ClaudeConfig(
            env={"CONFIG_API_KEY": "of-the-config", "PLAIN": "not-a-secret"},
            options=ClaudeAgentOptions(env={"OTHER_API_KEY": "of-the-options", "CONFIG_API_KEY": "never-given"}),
            pass_env=["HTTP_PROXY"],
        )
    )
    assert {"of-the-config", "of-the-options", "proxy%20password", "proxy password"} <= set(shared.secrets)
    assert {"not-a-secret", "never-given"} & set(shared.secrets) == set()


async def test_whatever_replaced_the_memory_file_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    shared = ClaudeBridgeState(ClaudeConfig(env={"CLAUDE_CONFIG_DIR": str(tmp_path / "home")}))
    directory, link, other = tmp_path / "directory", tmp_path / "link", tmp_path / "kept"
    for one in (directory, other):
        one.mkdir()
        (one / "file").touch()
    link.symlink_to(other)
    for place in (directory, link):
        shared.track_thread(KEY, place, MEMORY)
        await shared.erase_thread(KEY)
    assert sorted(tmp_path.rglob("*")) == [other, other / "file"]


async def test_transcripts_are_erased_where_the_processes_write_them(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shared = ClaudeBridgeState(ClaudeConfig(options=ClaudeAgentOptions(env={"CLAUDE_CONFIG_DIR": str(elsewhere)})))
    other, gone = (elsewhere / "projects" / "-w" / f"{name}.jsonl" for name in (OTHER, SESSION))
    other.parent.mkdir(parents=True)
    for file in (other, gone):
        file.touch()
    shared.track_thread(KEY, None, MEMORY)
    await shared.erase_thread(KEY)
    assert list(other.parent.iterdir()) == [other]


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"permission_mode": "ask"}, "'acceptEdits', 'auto'"),
        ({"permission_mode": None}, "'acceptEdits', 'auto'"),
        ({"setting_sources": ["project", "home"]}, "'local', 'project', 'user'"),
        ({"setting_sources": "project"}, "'local', 'project', 'user'"),
        ({"permision_mode": "plan"}, "Did you mean permission_mode?"),
        ({"zzz": 1}, "allowed_tools, cli_path"),
    ],
)
def test_an_invalid_option_is_refused_at_once_with_the_valid_values(settings: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ClaudeBridge(**settings)
    assert hint in str(refused.value)


def test_of_the_servers_variables_only_named_ones_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MINE_TOO", "NOT_MINE", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "x")
    base = ClaudeBridgeState(ClaudeConfig(pass_env=["MINE_TOO", "NOT_SET"])).base_variables
    assert {"MINE_TOO", "ANTHROPIC_API_KEY", "PATH"} <= base.keys()
    assert {"NOT_MINE", "NOT_SET"} & base.keys() == set()


async def test_the_tools_that_are_known_without_a_process_are_listed() -> None:
    @tool("add", "Add two numbers", {"a": int, "b": int})
    async def add(arguments: Any) -> dict[str, Any]:
        raise NotImplementedError

    server = create_sdk_mcp_server("my weather", tools=[add])
    external = {"command": "secret-command", "env": {"TOKEN": "secret-token"}}
    options = ClaudeAgentOptions(mcp_servers={"my weather": server, "far": external}, disallowed_tools=["Write"])
    bridge = ClaudeBridge(tools=["Bash", "Write"], options=options)
    found = await bridge.list_tools(PlatformContext(custom_tools=[add], mcp_servers={"far": external}))
    assert [(each.name, each.metadata) for each in found] == [
        ("Bash", None),
        ("add", None),
        ("update_state", None),
        ("mcp__my_weather__add", {"source": "mcp", "mcpServer": "my weather"}),
    ]
    assert found[1].parameters["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}
    assert found[3].parameters["properties"] == found[1].parameters["properties"]
    assert "secret" not in str(found)


async def test_all_of_the_clis_own_tools_are_listed_unless_some_are_chosen() -> None:
    found = {each.name for each in await ClaudeBridge(state_tool="never").list_tools(PlatformContext())}
    assert {"Bash", "Read", "WebFetch"} <= found
    assert "update_state" not in found
