"""Two replicas on one store, each with a Runner, a ledger and a bridge of its own; and threads that wait for days (D22, D24)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions import DatabaseSessionService
from google.adk.tools import FunctionTool, LongRunningFunctionTool

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import RunnerConfig
from ambient_runner.errors import InterruptNotOpen, InvalidInput, RunnerError, ThreadBusy
from ambient_runner.ledger import open_ledger
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.protocol import events as e
from tests.bridges.adk.scripted import Scripted, Seen, call
from tests.bridges.adk.world import Talk, questions, served, short, yes
from tests.bridges.held import held_by, still_there
from tests.machine_speed import unless_hung
from tests.world import user

STORES = ["memory", "database"]
"""Where ADK keeps its sessions: in each replica's own memory, or in a database both have."""
PAINT = e.Tool(name="paint", description="Paint.", parameters={"type": "object"})


def ask(question: str) -> None:
    """Ask a person."""


def pay(amount: int) -> dict[str, Any]:
    """Pay."""
    return {"paid": amount}


def answer(llm_request: Any) -> list[Any]:
    """What the model says: it depends on the last word alone, so it does not matter which replica asks."""
    last = llm_request.contents[-1].parts[-1]
    if last.function_response is not None:
        return [f"Got {last.function_response.response}"]
    verb, _, rest = last.text.partition(" ")
    match verb:
        case "ask":
            return [call("ask", f"l-{rest}", question=rest)]
        case "pay":
            return [call("pay", f"p-{rest}", amount=1)]
        case "paint":
            return [call("paint", f"f-{rest}")]
        case _:
            return [f"Heard {last.text}"]


def made() -> tuple[LlmAgent, Scripted]:
    model = Scripted.of(answer, loop=True)
    tools = [LongRunningFunctionTool(ask), FunctionTool(pay, require_confirmation=True)]
    return LlmAgent(name="root", model=model, tools=tools), model


class Replica(NamedTuple):
    talk: Talk
    model: Scripted


@asynccontextmanager
async def replica(directory: Path, store: str = "memory") -> AsyncGenerator[Replica, None]:
    """A server on the files of this directory. Whatever is not in them it does not share."""
    root, model = made()
    async with AsyncExitStack() as stack:
        config = RunnerConfig()
        if store == "database":
            config.session_service = DatabaseSessionService(f"sqlite+aiosqlite:///{directory / 'adk.db'}")
            stack.push_async_callback(config.session_service.close)
        ledger = await stack.enter_async_context(open_ledger(f"sqlite:///{directory / 'ledger.db'}"))
        runner = await stack.enter_async_context(served(ADKBridge(root, runner_config=config), ledger))
        yield Replica(Talk(runner), model)


async def ended(run: Any) -> str:
    """How a request ended: in its last word, or with the code of the refusal."""
    try:
        return str((await run)[-1])
    except RunnerError as error:
        return error.code


async def both(first: Any, second: Any) -> list[str]:
    """Two requests at once."""
    with unless_hung():
        return sorted(await asyncio.gather(ended(first), ended(second)))


HEARD: list[Seen] = [
    ("user", "one"),
    ("model", "Heard one"),
    ("user", "two"),
    ("model", "Heard two"),
    ("user", "ask blue?"),
    ("model", ("call", "ask", {"question": "blue?"})),
    ("user", ("result", "ask", {"result": "yes"})),
    ("model", "Got {'result': 'yes'}"),
    ("user", "pay 1"),
    ("model", ("call", "pay", {"amount": 1})),
    ("user", ("result", "pay", {"paid": 1})),
    ("model", "Got {'paid': 1}"),
    ("user", "three"),
]


@pytest.mark.parametrize("store", STORES)
async def test_two_replicas_alternate_on_one_thread(store: str, tmp_path: Path) -> None:
    """Neither answers what the other has answered, both have the same history, and the model gets all of it in either process."""
    async with replica(tmp_path, store) as a, replica(tmp_path, store) as b:
        words = [await a.talk.say("u1", "one"), await b.talk.say("u2", "two"), await a.talk.say("u3", "ask blue?")]
        words.append(await b.talk.answer(("l-blue?", "yes")))
        first = await a.talk.run(user("u4", "pay 1"))
        words += [short(first), await b.talk.resume(yes(*questions(first)))]
        words.append(await a.talk.say("u5", "three"))
        assert await a.talk.messages() == await b.talk.messages()
    assert words == [
        ["RS", "TS m1", "TC Heard one", "TE", "RF"],
        ["RS", "TS m1", "TC Heard two", "TE", "RF"],
        ["RS", "CS l-blue? ask", 'CA l-blue? {"question":"blue?"}', "CE l-blue?", "RF waits for l-blue?"],
        ["RS", "TS m1", "TC Got {'result': 'yes'}", "TE", "RF"],
        ["RS", "CS p-1 pay", 'CA p-1 {"amount":1}', "CE p-1", "RF asks confirmation:p-1"],
        ["RS", 'CR p-1 {"paid":1}', "TS m1", "TC Got {'paid': 1}", "TE", "RF"],
        ["RS", "TS m1", "TC Heard three", "TE", "RF"],
    ]
    assert a.model.saw == [HEARD[:length] for length in (1, 5, 9, 13)]
    assert b.model.saw == [HEARD[:length] for length in (3, 7, 11)]


@pytest.mark.parametrize("store", STORES)
async def test_a_result_is_answered_once_whichever_replica_gets_it(store: str, tmp_path: Path) -> None:
    async with replica(tmp_path, store) as a, replica(tmp_path, store) as b:
        await a.talk.say("u1", "ask red?")
        received = ("l-red?", "yes")
        endings = await both(a.talk.answer(received), b.talk.answer(received))
        assert "RF" in endings
        assert {*endings} - {"RF"} <= {InvalidInput.code, ThreadBusy.code}
        with pytest.raises(InvalidInput):
            await a.talk.answer((received[0], "no"))
        with pytest.raises(InvalidInput):
            await b.talk.answer((received[0], "no"))
        messages = await b.talk.messages()
        assert await a.talk.messages() == messages
    assert len([message for message in messages if isinstance(message, e.ToolMessage)]) == 1
    conversation = [("user", "ask red?"), ("model", ("call", "ask", {"question": "red?"}))]
    answered = [*conversation, ("user", ("result", "ask", {"result": "yes"}))]
    assert sorted(a.model.saw + b.model.saw, key=len) == [conversation[:1], answered]


@pytest.mark.parametrize("store", STORES)
async def test_an_interrupt_is_answered_once_whichever_replica_gets_the_answer(store: str, tmp_path: Path) -> None:
    async with replica(tmp_path, store) as a, replica(tmp_path, store) as b:
        [question] = questions(await a.talk.run(user("u1", "pay 1")))
        endings = await both(a.talk.resume(yes(question)), b.talk.resume(yes(question)))
        assert "RF" in endings
        assert {*endings} - {"RF"} <= {InterruptNotOpen.code, ThreadBusy.code}
        with pytest.raises(InterruptNotOpen):
            await b.talk.resume(yes(question))
        messages = await b.talk.messages()
        assert await a.talk.messages() == messages
    assert [m.content for m in messages if isinstance(m, e.ToolMessage)] == ['{"paid":1}']
    conversation = [("user", "pay 1"), ("model", ("call", "pay", {"amount": 1}))]
    paid = [*conversation, ("user", ("result", "pay", {"paid": 1}))]
    assert sorted(a.model.saw + b.model.saw, key=len) == [conversation[:1], paid]


@pytest.mark.parametrize("store", STORES)
async def test_a_call_abandoned_at_one_replica_is_abandoned_at_the_other(store: str, tmp_path: Path) -> None:
    async with replica(tmp_path, store) as a, replica(tmp_path, store) as b:
        await a.talk.say("u1", "ask red?")
        assert await b.talk.say("u2", "never mind") == ["RS", "TS m1", "TC Heard never mind", "TE", "RF"]
        with pytest.raises(InvalidInput):
            await a.talk.answer(("l-red?", "yes"))
        assert await a.talk.say("u3", "more") == ["RS", "TS m1", "TC Heard more", "TE", "RF"]
    seen = [
        ("user", "ask red?"),
        ("model", ("call", "ask", {"question": "red?"})),
        ("user", ("result", "ask", {"error": "This call was cancelled: it was never answered."})),
        ("user", "never mind"),
        ("model", "Heard never mind"),
        ("user", "more"),
    ]
    assert b.model.saw == [seen[:4]]
    assert a.model.saw == [seen[:1], seen]


async def test_two_hundred_threads_wait_hold_nothing_and_are_answered_after_a_restart(tmp_path: Path) -> None:
    names = [f"{('pay', 'paint', 'ask')[n % 3]} {n}" for n in range(200)]
    interrupts: dict[str, e.Interrupt] = {}
    with unless_hung():
        async with replica(tmp_path) as first:
            runner, before = first.talk.runner, asyncio.all_tasks()
            for name in names:
                events = await Talk(runner, name).run(user("u1", name), tools=[PAINT])
                if name.startswith("pay"):
                    interrupts[name] = questions(events)[0]
                else:
                    assert short(events)[-1] == f"RF waits for {waits(name)}"
            assert await still_there(asyncio.all_tasks() - before) == set()
            assert await held_by(runner) == []
            assert await Talk(runner, "free").say("u1", "x") == ["RS", "TS m1", "TC Heard x", "TE", "RF"]
        assert first.model.calls == 201
        async with replica(tmp_path) as second:
            runner, before = second.talk.runner, asyncio.all_tasks()
            for name in names:
                talk = Talk(runner, name)
                if name in interrupts:
                    words, shown = await talk.resume(yes(interrupts[name])), [f'CR p-{name.split()[1]} {{"paid":1}}']
                else:
                    words, shown = await talk.answer((waits(name), "done"), tools=[PAINT]), []
                got = {"paid": 1} if name in interrupts else {"result": "done"}
                assert words == ["RS", *shown, "TS m1", f"TC Got {got}", "TE", "RF"]
            assert await still_there(asyncio.all_tasks() - before) == set()
            assert await held_by(runner) == []
            thread = ThreadKey("default", "local", names[-1])
            assert not (await runner.view_thread(thread)).open_interrupts
        assert second.model.calls == 200
        assert [len(seen) for seen in second.model.saw] == [3] * 200


def waits(name: str) -> str:
    """The call that waits in a thread."""
    verb, _, rest = name.partition(" ")
    return f"{'f' if verb == 'paint' else 'l'}-{rest}"
