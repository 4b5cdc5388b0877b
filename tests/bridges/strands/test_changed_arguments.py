"""An approval of a Strands agent's call is for the arguments that were shown; with a redacted copy of them nothing is executed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from strands import ToolContext, tool

from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.errors import InterruptNotOpen
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.protocol import events as e
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says
from tests.bridges.strands.test_multiagent import graph_of
from tests.bridges.strands.test_threads import sessions
from tests.bridges.strands.world import Thread, agent_of, no, strands, yes
from tests.world import KEY, SETTINGS, events_of, request

SECRET = "s3cret-value-of-the-server"
REDACTING = dataclasses.replace(SETTINGS, secrets=(SECRET,))
APPROVAL = StrandsAgentConfig(tool_behaviors={"send": ToolBehavior(interrupt_on_call=True)})
APPROVED = {"approved": True}
SENT: list[str] = []


@tool
def send(text: str) -> str:
    """Sends a text."""
    SENT.append(text)
    return "sent"


@tool(context=True)
def confirm(text: str, tool_context: ToolContext) -> str:
    """Sends a text after asking."""
    answer = tool_context.interrupt("confirm")
    SENT.append(f"{text}: {answer}")
    return "sent"


def sender(name: str = "send", text: str = "hello", model: ScriptedModel | None = None) -> Any:
    SENT.clear()
    turns = [calls(call("c1", name, json.dumps({"text": text}))), says("Done.")]
    return agent_of(model or ScriptedModel(*turns), send, confirm)


async def shown(thread: Thread) -> e.Interrupt:
    """The open question as clients get it."""
    (pending,) = (await thread.runner.view_thread(KEY)).open_interrupts.values()
    return pending.interrupt


def digest_of(question: e.Interrupt) -> str:
    return (question.metadata or {})["argumentsDigest"]


async def error_of(thread: Thread, *entries: e.ResumeEntry) -> str | None:
    """Answer, and return the code of the run's error."""
    end = (await events_of(thread.runner, await thread.runner.start(request(resume=list(entries)))))[-1]
    return end.code if isinstance(end, e.RunError) else None


@pytest.mark.parametrize(("name", "answer", "sent"), [("send", APPROVED, "hello"), ("confirm", "yes", "hello: yes")])
async def test_a_question_about_a_call_shows_its_digest_and_the_approved_call_runs(
    name: str, answer: Any, sent: str
) -> None:
    async with strands(sender(name), APPROVAL) as thread:
        await thread.say("go")
        question = await shown(thread)
        assert digest_of(question)
        await thread.resume(yes(question, answer))
    assert [sent] == SENT


def change_session(directory: Path, text: str) -> None:
    """Change the arguments of the waiting call in the files of the SDK's session, as another writer of them could."""
    for path in directory.rglob("*.json"):
        path.write_text(path.read_text().replace('"text": "hello"', f'"text": "{text}"'))


@pytest.mark.parametrize(("name", "answer", "sent"), [("send", APPROVED, "evil"), ("confirm", "yes", "evil: yes")])
async def test_a_call_that_was_changed_in_the_session_is_asked_about_again(
    tmp_path: Path, name: str, answer: Any, sent: str
) -> None:
    config = dataclasses.replace(sessions(tmp_path / "sessions"), tool_behaviors=APPROVAL.tool_behaviors)
    agent, store = sender(name), tmp_path / "ledger.db"
    async with strands(agent, config, store=store) as thread:
        await thread.say("go")
        first = await shown(thread)
    change_session(tmp_path / "sessions", "evil")
    async with strands(agent, config, store=store) as thread:
        assert (await thread.resume(yes(first, answer)))[-1].startswith("RF asks")
        again = await shown(thread)
        assert SENT == []
        assert (again.metadata or {})["tool_input"] == {"text": "evil"}
        assert digest_of(again) != digest_of(first)
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(first, answer))
        assert (await thread.resume(yes(again, answer)))[-1] == "RF success"
    assert [sent] == SENT


async def test_a_changed_call_can_be_declined(tmp_path: Path) -> None:
    config = dataclasses.replace(sessions(tmp_path / "sessions"), tool_behaviors=APPROVAL.tool_behaviors)
    agent, store = sender(), tmp_path / "ledger.db"
    async with strands(agent, config, store=store) as thread:
        await thread.say("go")
        question = await shown(thread)
    change_session(tmp_path / "sessions", "evil")
    async with strands(agent, config, store=store) as thread:
        assert (await thread.resume(yes(question, {"approved": False})))[-1] == "RF success"
    assert SENT == []


@pytest.mark.parametrize(("name", "answer", "sent"), [("send", APPROVED, SECRET), ("confirm", "yes", f"{SECRET}: yes")])
async def test_a_redacted_call_runs_with_the_arguments_that_the_agent_still_has(
    name: str, answer: Any, sent: str
) -> None:
    async with strands(sender(name, SECRET), APPROVAL, settings=REDACTING) as thread:
        await thread.say("go")
        question = await shown(thread)
        assert (question.metadata or {})["tool_input"] == {"text": REDACTED}
        assert (await thread.resume(yes(question, answer)))[-1] == "RF success"
    assert [sent] == SENT


async def test_a_redacted_call_runs_with_the_arguments_of_a_stored_session(tmp_path: Path) -> None:
    config = dataclasses.replace(sessions(tmp_path / "sessions"), tool_behaviors=APPROVAL.tool_behaviors)
    agent, store = sender("send", SECRET), tmp_path / "ledger.db"
    async with strands(agent, config, store=store, settings=REDACTING) as thread:
        await thread.say("go")
        question = await shown(thread)
    async with strands(agent, config, store=store, settings=REDACTING) as thread:
        assert (await thread.resume(yes(question, APPROVED)))[-1] == "RF success"
    assert SENT == [SECRET]


@pytest.mark.parametrize(("name", "answer"), [("send", APPROVED), ("confirm", "yes")])
async def test_a_redacted_call_of_which_only_the_stored_copy_is_left_is_withheld(
    tmp_path: Path, name: str, answer: Any
) -> None:
    agent, store = sender(name, SECRET), tmp_path / "ledger.db"
    async with strands(agent, APPROVAL, store=store, settings=REDACTING) as thread:
        await thread.say("go")
        question = await shown(thread)
    async with strands(agent, APPROVAL, store=store, settings=REDACTING) as thread:
        assert await error_of(thread, yes(question, answer)) == "arguments_withheld"
        assert (await shown(thread)).id == question.id
        assert SENT == []
        assert await error_of(thread, no(question)) is None
    assert SENT == []


async def test_a_cancelled_call_that_is_withheld_is_given_up(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("c1", "confirm", json.dumps({"text": SECRET}))), says("Then not."))
    agent, store = sender(model=model), tmp_path / "ledger.db"
    async with strands(agent, store=store, settings=REDACTING) as thread:
        await thread.say("go")
        question = await shown(thread)
    async with strands(agent, store=store, settings=REDACTING) as thread:
        thread.count = 1
        words = await thread.say("never mind", resume=[no(question)])
    assert words[-1] == "RF success"
    assert SENT == []
    assert "never mind" in repr(model.saw[1][-1])


async def test_a_redacted_call_inside_a_graph_runs_or_is_withheld(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    turns = [calls(call("c1", "send", json.dumps({"text": SECRET}))), says("Done.")] * 2
    model = ScriptedModel(*turns)

    def build() -> Any:
        return graph_of(a=agent_of(model, send))

    SENT.clear()
    async with strands(build, APPROVAL, store=store, settings=REDACTING) as thread:
        await thread.say("go")
        assert (await thread.resume(yes(await shown(thread), APPROVED)))[-1] == "RF success"
        assert SENT == [SECRET]
        await thread.say("again")
        question = await shown(thread)
    async with strands(build, APPROVAL, store=store, settings=REDACTING) as thread:
        assert await error_of(thread, yes(question, APPROVED)) == "arguments_withheld"
    assert SENT == [SECRET]
