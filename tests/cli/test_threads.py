"""`ambient threads`: whose threads are read, and that reading creates no store."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ambient_runner import Settings
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.ledger import open_ledger
from ambient_runner.ledger.records import RUNTIME, Checkpoint, Fact
from ambient_runner.projections.projectors import FEEDBACK_OWNER
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import Message, RunAgentInput, UserMessage
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Actor, StartRequest
from ambient_runner.runs.runner import Runner
from ambient_runner.services.feedback import FEEDBACK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STORE = "threads.db"
HOSTILE = "\x1b]0;owned\x07 \x9b2J [/x] [bold] \u202egnp.exe\u202c end"
"""Sets the title of a terminal, clears it with a C1 code, is rich markup, and reverses a name."""
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


async def run_once(store: Path, actor: Actor, thread: str, text: str = "say hello") -> None:
    """Run the demo agent once for an actor, as an app with `authorize=` would."""
    run_input = RunAgentInput(thread_id=thread, run_id="r", messages=[UserMessage(id="m", content=text)])
    settings = Settings(store=f"sqlite:///{store}")
    async with (
        open_ledger(settings.store) as ledger,
        Runner(ledger, {"demo": AgentHost("demo", DemoBridge())}, settings) as runner,
    ):
        started = await runner.start(StartRequest(agent="demo", actor=actor, input=run_input))
        async for _ in follow_run(ledger, started):
            pass


def test_reading_threads_and_the_doctor_create_no_store(ambient: Callable[..., Any], tmp_path: Path) -> None:
    for command in (["threads", "list"], ["threads", "show", "t1"], ["threads", "export", "t1"], ["doctor"]):
        ambient(*command)
    assert list(tmp_path.iterdir()) == []


def test_threads_of_other_owners_are_listed_and_shown_on_request(ambient: Callable[..., Any], tmp_path: Path) -> None:
    anyio.run(run_once, tmp_path / STORE, Actor(owner="alice"), "t1")
    anyio.run(run_once, tmp_path / STORE, Actor(tenant="acme", owner="bob"), "t2")
    ambient("run", "demo", "say hi", "--thread", "t3")

    def listed(*options: str) -> list[str]:
        return [line.split()[0] for line in ambient("threads", "list", *options)[1].splitlines()[1:]]

    assert listed() == ["t3"]
    assert listed("--owner", "alice") == ["t1"]
    assert listed("--all") == ["t3", "t2", "t1"]
    assert ambient("threads", "show", "t1", "--owner", "alice")[:2] == (0, "user: say hello\nassistant: hello\n")


def test_a_thread_that_is_not_found_names_the_owner_that_was_searched(
    ambient: Callable[..., Any], tmp_path: Path
) -> None:
    anyio.run(run_once, tmp_path / STORE, Actor(owner="alice"), "t1")
    code, _, err = ambient("threads", "show", "t1")
    assert (code, "local" in err, "--owner" in err) == (1, True, True)


def test_a_long_id_is_listed_whole_in_a_pipe(ambient: Callable[..., Any]) -> None:
    """A table of 80 columns ended ids with an ellipsis."""
    thread = "32435c90-48f7-498e-8645-5218" + "a" * 100
    ambient("run", "demo", "say hi", "--thread", thread)
    line = ambient("threads", "list")[1].splitlines()[1]
    assert line.split()[:3] == [thread, "local", "demo"]


@pytest.mark.parametrize("command", [["list"], ["list", "--all"], ["show", "t1"], ["tail", "t1"], ["export", "t1"]])
def test_a_store_that_does_not_exist_is_refused_as_by_the_backup(
    ambient: Callable[..., Any], command: list[str]
) -> None:
    store = ["--store", "sqlite:///nope.db"]
    code, out, err = ambient("threads", *command, *store)
    assert (code, out, err) == ambient("backup", "copy.db", *store)
    assert (code, "nope.db does not exist" in err) == (2, True)


def test_an_id_that_looks_like_markup_is_listed_as_it_is(ambient: Callable[..., Any]) -> None:
    """`[/foo]` as a thread id ended `threads list` with a MarkupError, and `[bold]` was left out."""
    for thread in ("[/foo]", "[bold]x", "\\[red]"):
        ambient("run", "demo", "say hi", "--thread", thread)
    code, out, _ = ambient("threads", "list")
    assert (code, [line.split()[0] for line in out.splitlines()[1:]]) == (0, ["\\[red]", "[bold]x", "[/foo]"])


def test_a_limit_that_no_store_can_count_to_is_refused(ambient: Callable[..., Any]) -> None:
    """`--limit 99999999999999999999` was an OverflowError, and `--limit -1` listed everything."""
    ambient("run", "demo", "say hi")
    for limit in ("99999999999999999999", "0", "-1"):
        assert ambient("threads", "list", "--limit", limit)[0] == 2


def test_owner_and_all_exclude_each_other(ambient: Callable[..., Any]) -> None:
    """`--owner alice --all` listed the threads of everyone."""
    ambient("run", "demo", "say hi")
    code, out, err = ambient("threads", "list", "--owner", "alice", "--all")
    assert (code, out, "--owner" in err, "--all" in err) == (2, "", True, True)


def test_an_owner_is_printed_without_control_characters(ambient: Callable[..., Any]) -> None:
    ambient("run", "demo", "say hi")
    for command in (["list"], ["show", "t"]):
        _, out, err = ambient("threads", *command, "--owner", "\x1b[31mred")
        assert ("\x1b" in out + err, "[31mred" in out + err) == (False, True)


@pytest.mark.parametrize(
    "command",
    [["list", "--all"], ["show"], ["tail", "--until-idle"], ["export"], ["export", "--audience", "safe"]],
)
def test_hostile_ids_owners_and_texts_reach_the_terminal_as_plain_text(
    ambient: Callable[..., Any], tmp_path: Path, command: list[str]
) -> None:
    """C1 codes of a text passed through `tail` and `export`, and bidirectional overrides through every command."""
    actor, thread = Actor(owner="eve\nlocal  demo"), "[/x] \u202egnp.exe"
    anyio.run(run_once, tmp_path / STORE, actor, thread, f"say {HOSTILE}")
    named = [] if command[0] == "list" else [thread, "--owner", actor.owner]
    code, out, _ = ambient("threads", *command, *named)
    assert (code, UNSAFE.findall(out)) == (0, [])
    assert ("[/x]" in out, "gnp.exe" in out) == (True, True)


def test_an_owner_cannot_add_a_row_to_the_list(ambient: Callable[..., Any], tmp_path: Path) -> None:
    anyio.run(run_once, tmp_path / STORE, Actor(owner="eve\nt9  local"), "t1")
    lines = ambient("threads", "list", "--all")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["thread", "t1"]


@pytest.mark.parametrize("audience", ["open", "safe"])
def test_an_export_keeps_the_meaning_of_what_it_escapes(
    ambient: Callable[..., Any], tmp_path: Path, audience: str
) -> None:
    anyio.run(run_once, tmp_path / STORE, Actor(), "t1", f"say {HOSTILE}")
    lines = ambient("threads", "export", "t1", "--audience", audience)[1].splitlines()
    entries = [json.loads(line) for line in lines]
    bodies = [entry["body"] for entry in entries]
    said = "".join(body["delta"] for body in bodies if body["type"] == "TEXT_MESSAGE_CONTENT")
    assert said == HOSTILE


@pytest.mark.parametrize("command", ["export", "tail"])
def test_only_facts_that_clients_may_receive_are_written(
    ambient: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    """The full run input was written, with everything a client had sent along."""

    async def run_and_add_facts() -> None:
        await run_once(tmp_path / STORE, Actor(), "t1")
        async with open_ledger(f"sqlite:///{tmp_path / STORE}") as ledger:
            facts = [
                Fact(owner="acme.billing", kind="charged", body=b'{"cents":4200}'),
                Fact(owner=FEEDBACK_OWNER, kind=FEEDBACK, body=b'{"metaType":"thumbs_up"}'),
            ]
            for fact in facts:
                await ledger.append_facts(Actor().thread_key("t1"), [fact])

    anyio.run(run_and_add_facts)
    out = ambient("threads", command, "t1", *(["--until-idle"] if command == "tail" else []))[1]
    assert ("thumbs_up" in out, "RUN_FINISHED" in out) == (True, True)
    assert ("forwardedProps" in out, "cents" in out) == (False, False)
    if command == "export":
        assert {json.loads(line)["owner"] for line in out.splitlines()} == {RUNTIME, FEEDBACK_OWNER}


def test_an_export_for_the_audience_safe_has_what_its_clients_see(ambient: Callable[..., Any], tmp_path: Path) -> None:
    ambient("run", "demo", "weather Lisbon", "--thread", "t1")
    entries = [json.loads(line) for line in ambient("threads", "export", "t1", "--audience", "safe")[1].splitlines()]
    whole = [json.loads(line) for line in ambient("threads", "export", "t1")[1].splitlines()]

    def content(exported: list[Any], kind: str) -> str:
        found = [entry["body"] for entry in exported if entry["kind"] == kind]
        return "".join(body.get("delta", body.get("content", "")) for body in found)

    assert {entry["owner"] for entry in entries} == {"runtime"}
    assert content(entries, "TEXT_MESSAGE_CONTENT") == content(whole, "TEXT_MESSAGE_CONTENT")
    assert "Lisbon" in content(whole, "TOOL_CALL_ARGS")
    for kind in ("TOOL_CALL_ARGS", "TOOL_CALL_RESULT"):
        assert json.loads(content(entries, kind))["redacted"] is True
    assert [entry["seq"] for entry in entries] == sorted(entry["seq"] for entry in entries)


async def fork_once(store: Path, thread: str, source: str) -> None:
    """Fork a thread of two runs before its second message."""
    settings = Settings(store=f"sqlite:///{store}")
    async with (
        open_ledger(settings.store) as ledger,
        Runner(ledger, {"demo": AgentHost("demo", DemoBridge())}, settings) as runner,
    ):
        for id_, message, point in (
            (source, "m2", None),
            (thread, "n", ForkOrigin(thread_id=source, message_id="m2")),
        ):
            messages: list[Message] = [UserMessage(id=message, content=f"say {message}")]
            run_input = RunAgentInput(thread_id=id_, run_id="r", messages=messages)
            request = StartRequest(agent="demo", actor=Actor(), input=run_input, fork=point)
            async for _ in follow_run(ledger, await runner.start(request)):
                pass


@pytest.mark.parametrize(("audience", "kind"), [("open", "forked"), ("safe", "MESSAGES_SNAPSHOT")])
def test_an_export_of_a_fork_has_the_messages_that_were_copied(
    ambient: Callable[..., Any], tmp_path: Path, audience: str, kind: str
) -> None:
    anyio.run(run_once, tmp_path / STORE, Actor(), "t1")
    anyio.run(fork_once, tmp_path / STORE, "t2", "t1")
    lines = ambient("threads", "export", "t2", "--audience", audience)[1].splitlines()
    first = next(entry for entry in map(json.loads, lines) if entry["kind"] == kind)
    assert [message["content"] for message in first["body"]["messages"]] == ["say hello", "hello"]


@pytest.mark.parametrize("audience", ["open", "safe"])
def test_an_export_to_a_file_says_what_it_wrote(ambient: Callable[..., Any], tmp_path: Path, audience: str) -> None:
    ambient("run", "demo", "weather Lisbon", "--thread", "t1")
    target = tmp_path / "t1.jsonl"
    code, out, err = ambient("threads", "export", "t1", "-o", str(target), "--audience", audience)
    count = len(target.read_text().splitlines())
    assert (code, out, err) == (0, "", f"Wrote {count} entries of thread t1 to {target}.\n")
    assert count > 10


def test_an_export_to_standard_output_has_nothing_else_to_say(ambient: Callable[..., Any]) -> None:
    ambient("run", "demo", "hello", "--thread", "t1")
    code, out, err = ambient("threads", "export", "t1")
    assert (code, err, json.loads(out.splitlines()[0])["kind"]) == (0, "", "RUN_STARTED")


def test_a_terminal_shows_the_progress_of_an_export(
    ambient: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ambient("run", "demo", "weather Lisbon", "--thread", "t1")
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich takes it for a terminal.
    _, out, err = ambient("threads", "export", "t1", "-o", str(tmp_path / "t1.jsonl"))
    assert (out, "Exporting" in err, err.count("Wrote")) == ("", True, 1)


def test_a_tail_names_the_entries_that_are_no_longer_retained(ambient: Callable[..., Any], tmp_path: Path) -> None:
    async def run_and_trim() -> str:
        for _ in range(2):
            await run_once(tmp_path / STORE, Actor(), "t1")
        async with open_ledger(f"sqlite:///{tmp_path / STORE}") as ledger:
            key = Actor().thread_key("t1")
            info = await ledger.get_thread(key)
            assert info is not None
            await ledger.trim_thread(key, Checkpoint(seq=info.last - 1, body=ThreadView().to_checkpoint()))
            return info.epoch

    epoch = anyio.run(run_and_trim)
    code, out, err = ambient("threads", "tail", "t1", "--after", f"{epoch}.2", "--until-idle")
    assert (code, "RUN_FINISHED" in out, out.count("\n")) == (0, True, 1)
    assert re.search(r"Entries 3 to \d+ of thread t1", err)


def test_an_export_to_a_full_disk_says_what_to_do(ambient: Callable[..., Any]) -> None:
    """It printed a traceback."""
    ambient("run", "demo", "say hello", "--thread", "t1")
    code, out, err = ambient("threads", "export", "t1", "-o", "/dev/full")
    assert (code, out, "/dev/full" in err, "-o" in err, "Traceback" in err) == (2, "", True, True, False)
    assert len(err.splitlines()) == 1
