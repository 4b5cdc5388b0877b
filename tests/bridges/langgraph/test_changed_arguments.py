"""An approval of a graph's call is for the arguments that were shown, with LangChain's middleware and with `interrupt()`."""

from __future__ import annotations

import dataclasses
import json
import operator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState
from langgraph.types import interrupt

from ambient_runner.errors import ArgumentsChanged, ArgumentsWithheld, InterruptNotOpen
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.test_approvals import MAIL, SENT, ask, mailer, one_call
from tests.bridges.langgraph.world import Thread, in_a_row, langgraph, no, yes
from tests.world import KEY, SETTINGS

APPROVED = {"approved": True}
SECRET = "s3cret-value-of-the-server"


async def shown(thread: Thread) -> e.Interrupt:
    """The open question as clients get it."""
    (pending,) = (await thread.runner.view_thread(KEY)).open_interrupts.values()
    return pending.interrupt


def digest_of(question: e.Interrupt) -> str:
    return (question.metadata or {})["argumentsDigest"]


def change_call(graph: Any, **arguments: Any) -> None:
    """Change the arguments of the waiting call in the graph's own checkpoint, as another writer of its database could."""
    saver: InMemorySaver = graph.checkpointer
    (thread_id,) = saver.storage
    for stored in list(saver.list({"configurable": {"thread_id": thread_id}})):
        messages = stored.checkpoint["channel_values"].get("messages", [])
        if messages and isinstance(messages[-1], AIMessage):
            messages[-1].tool_calls[0]["args"] = arguments
            version = stored.checkpoint["channel_versions"]["messages"]
            saver.blobs[thread_id, "", "messages", version] = saver.serde.dumps_typed(messages)


async def test_an_approved_call_shows_its_digest_and_runs() -> None:
    graph, _ = mailer(*one_call())
    async with langgraph(graph) as thread:
        await ask(thread)
        question = await shown(thread)
        entry = e.ResumeEntry(
            interrupt_id=question.id,
            status="resolved",
            payload=APPROVED,
            metadata={"argumentsDigest": digest_of(question)},
        )
        await thread.resume(entry)
    assert SENT == ["ann"]


async def test_a_call_that_was_changed_in_the_checkpoint_is_asked_about_again() -> None:
    graph, _ = mailer(*one_call())
    async with langgraph(graph) as thread:
        first = await ask(thread)
        before = await shown(thread)
        change_call(graph, to="eve")
        assert (await thread.resume(yes(first, APPROVED)))[-1] == "RF asks tool_call"
        assert SENT == []
        after = await shown(thread)
        assert (after.metadata or {})["toolCalls"][0]["arguments"] == {"to": "eve"}
        assert digest_of(after) != digest_of(before)
        assert after.id != before.id
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(before, APPROVED))
        await thread.resume(yes(after, APPROVED))
        assert thread.text() == "Done."
    assert SENT == ["eve"]


@pytest.mark.parametrize("decline", [{"approved": False}, None], ids=["declined", "cancelled"])
async def test_a_changed_call_can_be_declined(decline: Any) -> None:
    graph, _ = mailer(*one_call())
    async with langgraph(graph) as thread:
        first = await ask(thread)
        change_call(graph, to="eve")
        await thread.resume(no(first) if decline is None else yes(first, decline))
        assert thread.text() == "Done."
    assert SENT == []


async def test_an_edit_is_stored_with_who_made_it() -> None:
    graph, _ = mailer(*one_call())
    async with langgraph(graph) as thread:
        await ask(thread)
        question = await shown(thread)
        await thread.resume(yes(question, {"approved": True, "editedArgs": {"to": "bob"}}))
        edits = [event.value for event in thread.seen if isinstance(event, e.Custom)]
    assert SENT == ["bob"]
    assert [(edit["interruptId"], edit["previousDigest"], edit["editedBy"]) for edit in edits] == [
        (question.id, digest_of(question), {"tenant": "default", "owner": "local"})
    ]


async def test_a_redacted_call_runs_with_the_arguments_of_the_checkpoint() -> None:
    graph, _ = mailer(calls(call("c1", "send_mail", json.dumps({"to": SECRET}))), says("Done."))
    async with langgraph(graph, settings=dataclasses.replace(SETTINGS, secrets=(SECRET,))) as thread:
        await ask(thread)
        question = await shown(thread)
        assert (question.metadata or {})["toolCalls"][0]["arguments"] == {"to": REDACTED}
        with pytest.raises(ArgumentsWithheld):
            await thread.resume(yes(question, {"approved": True, "editedArgs": {"to": REDACTED}}))
        await thread.resume(yes(question, APPROVED))
    assert SENT == [SECRET]


async def test_the_value_of_an_interrupt_has_a_digest_that_survives_the_checkpointer() -> None:
    done: list[Any] = []

    async def step(state: Any) -> Any:
        value = {"action": "delete", "paths": {"b", "a"}, "share": 1.0, "pair": (1, 2)}
        done.append(interrupt(value))
        return {}

    async with langgraph(in_a_row(step, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        question = await shown(thread)
        assert digest_of(question)
        other = e.ResumeEntry(interrupt_id=question.id, status="resolved", metadata={"argumentsDigest": "another"})
        with pytest.raises(ArgumentsChanged):
            await thread.resume(other)
        assert (await thread.resume(yes(question, "go")))[-1] == "RF success"
    assert done == ["go"]


async def test_a_plain_question_has_no_digest() -> None:
    async def step(state: Any) -> Any:
        interrupt("Your name?")
        return {}

    async with langgraph(in_a_row(step, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        assert "argumentsDigest" not in ((await shown(thread)).metadata or {})


class AccountState(AgentState):
    account: Annotated[list[str], operator.add]


@tool
def transfer(amount: int, account: Annotated[list[str], InjectedState("account")]) -> str:
    """Transfers money."""
    SENT.append(f"{amount} from {account}")
    return "done"


def banker() -> Any:
    SENT.clear()
    model = ScriptedModel(calls(call("c1", "transfer", '{"amount": 3}')), says("Done."))
    review = HumanInTheLoopMiddleware(interrupt_on={"transfer": True})
    return create_agent(model, [transfer], middleware=[review], state_schema=AccountState, checkpointer=InMemorySaver())


async def test_the_digest_covers_the_state_that_a_tool_is_given() -> None:
    digests = list[str]()
    graph = banker()
    async with langgraph(graph) as thread:
        await thread.say("go", state={"account": ["a"]})
        question = await shown(thread)
        digests.append(digest_of(question))
        saver: InMemorySaver = graph.checkpointer
        for key in [key for key in saver.blobs if key[2] == "account"]:
            saver.blobs[key] = saver.serde.dumps_typed(["b"])
        assert (await thread.resume(yes(question, APPROVED)))[-1] == "RF asks tool_call"
        again = await shown(thread)
        assert digest_of(again) not in digests
        assert SENT == []
        await thread.resume(yes(again, APPROVED))
    assert SENT == ["3 from ['b']"]


async def test_a_state_that_comes_with_the_answer_is_used_by_the_tool() -> None:
    async with langgraph(banker()) as thread:
        await thread.say("go", state={"account": ["a"]})
        await thread.resume(yes(await shown(thread), APPROVED), state={"account": ["mine"]})
        assert thread.error is None
    assert SENT == ["3 from ['mine']"]


async def test_an_approval_is_found_again_after_a_restart(tmp_path: Path) -> None:
    graph, _ = mailer(*one_call())
    store = tmp_path / "ledger.db"
    async with langgraph(graph, store=store) as thread:
        await ask(thread)
        question = await shown(thread)
    async with langgraph(graph, store=store) as thread:
        await thread.resume(yes(question, APPROVED))
    assert [json.loads(MAIL)["to"]] == SENT
