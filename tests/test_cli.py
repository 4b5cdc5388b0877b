"""The `ambient` command: rendering and questions by value, the verbs through the real command line, in this process and in a child."""

from __future__ import annotations

import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from ambient_runner.cli.main import _trusted_config
from ambient_runner.cli.render import (
    EndPiece,
    LineEndPiece,
    NotePiece,
    Piece,
    ReasoningPiece,
    Screen,
    TextPiece,
    ToolCallPiece,
    to_plain_text,
    to_renderable,
)
from ambient_runner.protocol import events as ev
from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

AMBIENT = str(Path(sys.executable).with_name("ambient"))
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "reference" / "cli.md"
EXAMPLES = ROOT / "examples"


def shown(*events: ev.Event) -> list[Piece]:
    screen = Screen()
    return [piece for event in events for piece in screen.render_event(event)]


FINISHED = ev.RunFinished(thread_id="t", run_id="r")


@pytest.mark.parametrize(
    ("event", "pieces"),
    [
        (ev.TextMessageStart(message_id="m"), []),
        (ev.TextMessageContent(message_id="m", delta="hi "), [TextPiece("hi ")]),
        (ev.TextMessageEnd(message_id="m"), [LineEndPiece()]),
        (ev.ReasoningMessageContent(message_id="m", delta="hm"), [ReasoningPiece("hm")]),
        (ev.ReasoningMessageEnd(message_id="m"), [LineEndPiece()]),
        (ev.StateSnapshot(snapshot={"a": 1}), [NotePiece("state", '{"a": 1}')]),
        (
            ev.StateDelta(delta=[{"op": "remove", "path": "/a"}]),
            [NotePiece("state", '{"op": "remove", "path": "/a"}')],
        ),
        (ev.StepStarted(step_name="plan"), [NotePiece("step", "plan")]),
        (ev.SubagentStarted(subagent_run_id="s", name="helper"), [NotePiece("subagent", "helper")]),
        (ev.SubagentError(subagent_run_id="s", message="lost"), [NotePiece("subagent", "lost")]),
        (ev.Custom(name="ambient:gap", value=1), [NotePiece("ambient:gap", "1")]),
        (
            ev.Custom(name="ambient:dropped", value={"type": "CUSTOM", "reason": "too_large"}),
            [NotePiece("left out", "CUSTOM: too_large")],
        ),
        (ev.MessagesSnapshot(messages=[]), []),
        (FINISHED, [EndPiece("success", "")]),
        (
            ev.RunFinished(thread_id="t", run_id="r", outcome=ev.Cancelled()),
            [EndPiece("cancelled", "The run was stopped.")],
        ),
        (
            ev.RunFinished(
                thread_id="t",
                run_id="r",
                outcome=ev.Interrupted(interrupts=[ev.Interrupt(id="i", reason="confirmation", message="May I?")]),
            ),
            [EndPiece("interrupt", "May I?")],
        ),
        (ev.RunError(message="It failed.", code="agent_error"), [EndPiece("error", "It failed. (agent_error)")]),
        (ev.RunError(message="It failed. The server's log has the reason."), [EndPiece("error", "It failed.")]),
        (ev.RunError(message="Try again; the server's log has the reason."), [EndPiece("error", "Try again.")]),
    ],
)
def test_each_event_is_rendered_as_segments(event: ev.Event, pieces: list[Piece]) -> None:
    assert shown(event) == pieces


def test_set_up_messages_are_shown_apart_from_the_answer() -> None:
    screen = Screen()
    events = [
        ev.Custom(name="ambient:capabilities", value={}),
        ev.TextMessageStart(message_id="d", role="developer"),
        ev.TextMessageContent(message_id="d", delta="Workspace "),
        ev.TextMessageContent(message_id="d", delta="validated"),
        ev.TextMessageEnd(message_id="d"),
        ev.TextMessageContent(message_id="m", delta="Hello"),
    ]
    assert [piece for event in events for piece in screen.render_event(event)] == [
        NotePiece("setup", "Workspace validated"),
        TextPiece("Hello"),
    ]


def test_a_tool_call_is_shown_once_with_its_result() -> None:
    assert shown(
        ev.ToolCallStart(tool_call_id="c", tool_call_name="add"),
        ev.ToolCallArgs(tool_call_id="c", delta='{"a":'),
        ev.ToolCallArgs(tool_call_id="c", delta="1}"),
        ev.ToolCallEnd(tool_call_id="c"),
        ev.ToolCallResult(message_id="m", tool_call_id="c", content="2"),
        FINISHED,
    ) == [ToolCallPiece("add", '{"a":1}', "2"), EndPiece("success", "")]


def test_a_tool_call_without_a_result_is_shown_at_the_end() -> None:
    assert shown(ev.ToolCallStart(tool_call_id="c", tool_call_name="paint"), FINISHED) == [
        ToolCallPiece("paint", "", None),
        EndPiece("success", ""),
    ]


def test_content_parts_become_text_and_kinds() -> None:
    image = ev.ImagePart(source=ev.UrlSource(value="https://example.com/x.png"))
    assert ev.content_as_text([ev.TextPart(text="see "), image]) == "see \n[image]"


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (TextPiece("hi "), "hi "),
        (LineEndPiece(), "\n"),
        (ToolCallPiece("add", "{}", "2"), "[tool] add {}\n[result] 2\n"),
        (ToolCallPiece("paint", "{}", None), "[tool] paint {}\n[no result]\n"),
        (NotePiece("state", "{}"), "[state] {}\n"),
        (EndPiece("success", ""), ""),
        (EndPiece("error", "It failed."), "[error] It failed.\n"),
    ],
)
def test_a_pipe_gets_plain_text(piece: Piece, text: str) -> None:
    assert to_plain_text(piece) == text


@pytest.mark.parametrize(
    "piece",
    [
        TextPiece("[bold]not markup[/bold]"),
        ReasoningPiece("[bold]not markup[/bold]"),
        ToolCallPiece("[bold]not markup[/bold]", "", None),
        ToolCallPiece("tool", "[bold]not markup[/bold]", None),
        ToolCallPiece("tool", "", "[bold]not markup[/bold]"),
        NotePiece("x", "[bold]not markup[/bold]"),
        EndPiece("error", "[bold]not markup[/bold]"),
    ],
)
def test_agent_text_is_never_interpreted_as_markup(piece: Piece) -> None:
    screen = io.StringIO()
    Console(file=screen, width=120, force_terminal=True, color_system=None).print(to_renderable(piece))
    assert "[bold]not markup[/bold]" in screen.getvalue()


def test_agent_text_cannot_control_the_terminal() -> None:
    screen = io.StringIO()
    Console(file=screen, width=120, force_terminal=True, color_system=None).print(
        to_renderable(TextPiece("red \x1b[31m bell \x07 \x9b2J end"))
    )
    assert screen.getvalue().rstrip("\n") == "red [31m bell  2J end"


def test_help_names_every_command_and_so_do_the_docs(ambient: Callable[..., Any]) -> None:
    code, out, _ = ambient("--help")
    page = DOCS.read_text(encoding="utf-8")
    assert code == 0
    assert [
        name for name in ("serve", "run", "threads", "doctor") if name not in out or f"ambient {name}" not in page
    ] == []
    _, out, _ = ambient("threads", "--help")
    verbs = ("list", "show", "tail", "export")
    assert [name for name in verbs if name not in out or f"ambient threads {name}" not in page] == []


def test_the_version_is_printed(ambient: Callable[..., Any]) -> None:
    from importlib.metadata import version

    assert ambient("--version") == (0, f"ambient-runner {version('ambient-runner')}\n", "")


NAGGING = '''
from ambient_runner import FrameworkCapabilities, RunInterrupted, PlatformBridge
from ambient_runner.protocol.events import Interrupt

class Nagging:
    """Asks again, whatever it is told."""

    async def run(self, input):
        raise RunInterrupted([Interrupt(id=input.run_id, reason="confirmation", message="Sure?")])
        yield

class Bridge(PlatformBridge):
    def capabilities(self):
        return FrameworkCapabilities()

    def create_adapter(self, ctx):
        return Nagging()
'''


def test_the_end_of_input_ends_an_agent_that_raises_interrupts_repeatedly(
    ambient: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nagging.py").write_text(NAGGING)
    monkeypatch.setattr(sys, "path", [*sys.path])
    code, out, _ = ambient("run", "nag=nagging:Bridge", "hello", stdin="")
    assert (code, out.count("Sure?")) == (3, 1)


def test_a_stored_message_cannot_control_the_terminal(ambient: Callable[..., Any]) -> None:
    ambient("run", "demo", "say \x1b]52;c;aGk=\x07 hi", "--thread", "t1")
    code, out, _ = ambient("threads", "show", "t1")
    assert (code, "\x1b" in out, "\x07" in out, "]52;c;aGk=" in out) == (0, False, False, True)


def test_an_answer_in_a_pipe_is_plain_text(ambient: Callable[..., Any]) -> None:
    assert ambient("run", "demo", "say hello there", "--thread", "t1") == (0, "hello there\n", "")


def test_a_prompt_can_come_from_standard_input(ambient: Callable[..., Any]) -> None:
    assert ambient("run", "demo", "-", "--thread", "t1", stdin="say from a pipe") == (0, "from a pipe\n", "")


def test_a_tool_call_is_shown_with_arguments_and_result(ambient: Callable[..., Any]) -> None:
    code, out, _ = ambient("run", "demo", "weather Oslo")
    assert code == 0
    assert out.splitlines()[0] == '[tool] get_weather {"city": "Oslo"}'
    assert out.splitlines()[1].startswith('[result] {"city": "Oslo"')


def test_a_failed_run_exits_with_one_and_keeps_the_reason_to_itself(ambient: Callable[..., Any]) -> None:
    code, out, _ = ambient("run", "demo", "crash")
    assert code == 1
    assert "[error]" in out
    assert "a detail for the log only" not in out


def test_the_example_bridge_runs_by_its_place_in_the_current_directory(
    ambient: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert ambient("run", "parrot=own_bridge:ParrotBridge", "hello there")[:2] == (0, "hello there \n")


@pytest.mark.parametrize(
    ("stdin", "decided"),
    [("y\n\n", "Approved"), ("n\ntoo early\n", "Declined"), ("perhaps\ny\n\n", "Approved"), ("", "Cancelled")],
)
def test_an_interrupt_prompts_for_an_answer_and_the_run_continues(
    ambient: Callable[..., Any], stdin: str, decided: str
) -> None:
    code, out, _ = ambient("run", "demo", "approve deploy", stdin=stdin)
    assert code == (0 if stdin else 3)
    assert f"{decided}: I" in out
    assert out.count("May I deploy?") == 1


def test_an_interrupt_works_without_a_stored_thread_too(ambient: Callable[..., Any]) -> None:
    _, out, _ = ambient("run", "demo", "approve deploy", "--store", "memory://", stdin="y\n\n")
    assert "Approved: I may deploy." in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "dmeo", "hello"),
        ("run", "demo", "hello", "--store", "nowhere"),
        ("run", "demo", "hello", "--store", "carrier-pigeon://x"),
        ("serve", "--host", "0.0.0.0"),
        ("serve", "demo", "demo"),
        ("serve", "--port", "99999"),
        ("serve", "--store", "carrier-pigeon://x", "--port", "0"),
        ("serve", "--config", "absent.toml"),
    ],
)
def test_a_wrong_configuration_is_a_sentence_and_exit_code_two(
    ambient: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    code, out, err = ambient(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_a_port_that_is_taken_is_a_sentence(ambient: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = ambient("serve", "--port", str(taken.getsockname()[1]))
    assert code == 2
    assert "Traceback" not in err


def test_threads_are_listed_shown_followed_and_exported(ambient: Callable[..., Any], tmp_path: Path) -> None:
    ambient("run", "demo", "say hello", "--thread", "t1")
    assert ambient("threads", "list", "--owner", "alice")[:2] == (
        0,
        "No threads of owner alice; --all lists those of every owner.\n",
    )
    ambient("run", "demo", "say again", "--thread", "t1")

    code, out, _ = ambient("threads", "list")
    assert (code, "t1" in out, "demo" in out) == (0, True, True)

    assert ambient("threads", "show", "t1")[:2] == (
        0,
        "user: say hello\nassistant: hello\nuser: say again\nassistant: again\n",
    )

    code, out, _ = ambient("threads", "export", "t1")
    entries = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    seqs = [entry["seq"] for entry in entries]
    assert seqs == sorted(set(seqs))
    assert {tuple(entry) for entry in entries} == {("seq", "ts", "owner", "kind", "body")}
    assert [entry["kind"] for entry in entries].count("RUN_FINISHED") == 2

    ambient("threads", "export", "t1", "-o", str(tmp_path / "t1.jsonl"))
    assert (tmp_path / "t1.jsonl").read_text() == out

    code, followed, _ = ambient("threads", "tail", "t1", "--until-idle")
    lines = followed.splitlines()
    assert (code, len(lines)) == (0, len(entries))
    cursor = lines[-2].split()[0]
    assert ambient("threads", "tail", "t1", "--until-idle", "--after", cursor)[:2] == (0, lines[-1] + "\n")


@pytest.mark.parametrize("verb", ["show", "tail", "export"])
def test_a_thread_that_is_not_there_is_a_sentence(ambient: Callable[..., Any], verb: str) -> None:
    ambient("run", "demo", "say hello")
    code, out, err = ambient("threads", verb, "absent")
    assert (code, out) == (1, "")
    assert "absent" in err


def test_a_cursor_of_another_thread_is_refused(ambient: Callable[..., Any]) -> None:
    ambient("run", "demo", "say hello", "--thread", "t1")
    code, out, _ = ambient("threads", "tail", "t1", "--after", "AAAAAAAAAAAA.1")
    assert (code, out) == (1, "")


def test_the_doctor_finds_this_machine_well(ambient: Callable[..., Any]) -> None:
    code, out, _ = ambient("doctor", "--port", "0")
    assert (code, "problem" in out) == (0, False)


def test_the_doctor_reports_what_is_wrong(ambient: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, _ = ambient("doctor", "--port", str(taken.getsockname()[1]))
    assert (code, "problem" in out) == (1, True)


def child(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AMBIENT_")}
    return subprocess.Popen(
        [AMBIENT, *arguments],
        cwd=tmp_path,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Output of a child up to these words, byte by byte: they may come without a line break."""
    assert process.stdout is not None
    seen = ""
    while words not in seen:
        ready, _, _ = select.select([process.stdout], [], [], 20)
        byte = os.read(process.stdout.fileno(), 1) if ready else b""
        assert byte, f"the child said only: {seen}"
        seen += byte.decode("latin-1")
    return seen


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_and_reports_it(tmp_path: Path, ending: signal.Signals) -> None:
    """Only Ctrl-C did: after a SIGTERM, or a closed terminal, the run was active until it was found abandoned."""
    with child(tmp_path, "run", "demo", "hang", "--thread", "t1") as process:
        read_until(process, "hanging")
        process.send_signal(ending)
        out, _ = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, "[cancelled]" in out, "Traceback" in out) == (130, True, False)


STUBBORN = """
import asyncio
import time
from ag_ui.core import TextMessageChunkEvent
from ambient_runner import FrameworkCapabilities, PlatformBridge


class Task:
    async def run(self, input):
        yield TextMessageChunkEvent(message_id="m", role="assistant", delta="working ")
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass


class Thread:
    def run(self, input):
        yield TextMessageChunkEvent(message_id="m", role="assistant", delta="working ")
        time.sleep(3600)


class Bridge(PlatformBridge):
    def __init__(self, adapter):
        self.adapter = adapter

    def capabilities(self):
        return FrameworkCapabilities()

    def create_adapter(self, ctx):
        return self.adapter()


task, thread = Bridge(Task), Bridge(Thread)
"""


@pytest.mark.parametrize("agent", ["task", "thread"])
def test_a_run_that_ignores_its_cancellation_does_not_keep_the_command_open(tmp_path: Path, agent: str) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    (tmp_path / "ambient.toml").write_text("[timeouts]\ngrace = 0.2\n")
    with child(tmp_path, "run", f"mine=stubborn:{agent}", "go", "--thread", "t1") as process:
        read_until(process, "working")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, "[cancelled]" in out) == (130, True)
    assert f"in a {agent}" in out


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_serving_on_port_zero_prints_its_address_responds_at_once_and_exits_cleanly(
    tmp_path: Path, ending: signal.Signals
) -> None:
    from urllib.request import urlopen

    with child(tmp_path, "serve", "--port", "0") as process:
        try:
            said = read_until(process, "Listening on http://127.0.0.1:") + read_until(process, "\n")
            url = said.splitlines()[-1].removeprefix("Listening on ")
            with urlopen(f"{url}/health", timeout=HANG_SECONDS) as response:
                assert response.status == 200
            events = runpy.run_path(str(EXAMPLES / "hello.py"))["run_agent"]("say hello", f"{url}/")
            assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["hello"]
        finally:
            process.send_signal(ending)
            out, _ = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, "Traceback" in out) == (0, False)


def test_settings_in_the_directory_of_the_agent_are_read_only_if_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ambient.toml").write_text('[agents]\nmine = "demo"\n')
    assert _trusted_config(None, tmp_path) == Path(os.devnull)
    assert "--config ambient.toml" in capsys.readouterr().err
    assert _trusted_config(Path("ambient.toml"), tmp_path) == Path("ambient.toml")
    assert _trusted_config(None, None) is None
    other = tmp_path / "project"
    other.mkdir()
    assert _trusted_config(None, other) is None
