"""Two replicas on one store, each with a Runner, a ledger and a bridge of its own; and threads that wait for days (D22, D24)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions import DatabaseSessionService, Session
from google.adk.tools import FunctionTool, LongRunningFunctionTool

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import RunnerConfig
from ambient_runner.bridges.adk.errors import SessionConflict
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
"""The store of ADK's sessions: the memory of each replica, or a database that both share."""
PAINT = e.Tool(name="paint", description="Paint.", parameters={"type": "object"})


def ask(question: str) -> None:
    """Ask a person."""


def pay(amount: int) -> dict[str, Any]:
    """Pay."""
    return {"paid": amount}


def answer(llm_request: Any) -> list[Any]:
    """Return the model's answer. It depends on the last word alone, so both replicas get the same one."""
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


Pauses = dict[str, tuple[asyncio.Event, asyncio.Event]]
"""Before a message is answered: an event to set, and one to wait for."""


def made(pauses: Pauses | None = None) -> tuple[LlmAgent, Scripted]:
    model = Scripted.of(answer, loop=True)
    tools = [LongRunningFunctionTool(ask), FunctionTool(pay, require_confirmation=True)]

    async def pause(callback_context: Any, llm_request: Any) -> None:
        entered, go_on = (pauses or {}).pop(llm_request.contents[-1].parts[-1].text, (None, None))
        if entered is not None and go_on is not None:
            entered.set()
            await go_on.wait()

    return LlmAgent(name="root", model=model, tools=tools, before_model_callback=pause), model


class Replica(NamedTuple):
    talk: Talk
    model: Scripted
    pauses: Pauses


def shared_sessions(directory: Path) -> str:
    return f"sqlite+aiosqlite:///{directory / 'adk.db'}"


class SlowToCreate(DatabaseSessionService):
    """Creates a session after `before_create`."""

    before_create: Callable[[], Awaitable[Any]] | None = None

    async def create_session(self, **options: Any) -> Session:  # type: ignore[override]
        before, self.before_create = self.before_create, None
        if before is not None:
            await before()
        return await super().create_session(**options)


@asynccontextmanager
async def replica(
    directory: Path,
    store: str = "memory",
    ledger_file: str = "ledger.db",
    service: DatabaseSessionService | None = None,
) -> AsyncGenerator[Replica, None]:
    """A server on the files of this directory. Whatever is not in them it does not share."""
    pauses: Pauses = {}
    root, model = made(pauses)
    async with AsyncExitStack() as stack:
        config = RunnerConfig()
        if store == "database":
            config.session_service = service or DatabaseSessionService(shared_sessions(directory))
            stack.push_async_callback(config.session_service.close)
        ledger = await stack.enter_async_context(open_ledger(f"sqlite:///{directory / ledger_file}"))
        runner = await stack.enter_async_context(served(ADKBridge(root, runner_config=config), ledger))
        yield Replica(Talk(runner), model, pauses)


async def ended(run: Any) -> str:
    """Return the last word of a request's stream, or the code of its refusal."""
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
        ["RS", "TS m1", "TC Heard ", "TC one", "TE", "RF"],
        ["RS", "TS m1", "TC Heard ", "TC two", "TE", "RF"],
        ["RS", "CS l-blue? ask", 'CA l-blue? {"question":"blue?"}', "CE l-blue?", "RF waits for l-blue?"],
        ["RS", "TS m1", "TC Got {'result': 'yes'}", "TE", "RF"],
        ["RS", "CS p-1 pay", 'CA p-1 {"amount":1}', "CE p-1", "RF asks confirmation:p-1"],
        ["RS", 'CR p-1 {"paid":1}', "TS m1", "TC Got {'paid': 1}", "TE", "RF"],
        ["RS", "TS m1", "TC Heard ", "TC three", "TE", "RF"],
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
        assert await b.talk.say("u2", "never mind") == ["RS", "TS m1", "TC Heard never ", "TC mind", "TE", "RF"]
        with pytest.raises(InvalidInput):
            await a.talk.answer(("l-red?", "yes"))
        assert await a.talk.say("u3", "more") == ["RS", "TS m1", "TC Heard ", "TC more", "TE", "RF"]
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


@asynccontextmanager
async def apart(directory: Path) -> AsyncGenerator[tuple[Replica, Replica], None]:
    """Two servers that share ADK's sessions and nothing else, as two pods of the ADK AGUI Middleware do."""
    async with replica(directory, "database", "a.db") as a, replica(directory, "database", "b.db") as b:
        yield a, b


def texts(messages: list[e.Message]) -> list[tuple[str, Any]]:
    return [(message.id if isinstance(message, e.UserMessage) else "-", message.content) for message in messages]


async def test_a_server_with_a_store_of_its_own_adopts_the_turns_of_another(tmp_path: Path) -> None:
    """Each server rewound the turns of the other."""
    async with apart(tmp_path) as (a, b):
        await a.talk.say("u1", "one")
        assert await b.talk.say("u2", "two") == ["RS", "TS m1", "TC Heard ", "TC two", "TE", "RF"]
        events = await a.talk.run(user("u3", "three"))
        assert short(events) == ["RS", "TS m1", "TC Heard ", "TC three", "TE", "RF"]
        await b.talk.say("u4", "four")
        await b.talk.say("u5", "five")
        await a.talk.say("u6", "six")
        mine, theirs = await a.talk.messages(), await b.talk.messages()
    turns = [(f"u{n}", word) for n, word in enumerate(("one", "two", "three", "four", "five", "six"), start=1)]
    expected = [pair for name, word in turns for pair in ((name, word), ("-", f"Heard {word}"))]
    assert texts(mine) == expected
    assert texts(theirs) == expected[:-2]
    assert mine[:-2] == theirs
    seen = [pair for _, word in turns for pair in (("user", word), ("model", f"Heard {word}"))]
    assert a.model.saw == [seen[:1], seen[:5], seen[:11]]
    assert b.model.saw == [seen[:3], seen[:7], seen[:9]]


async def test_a_client_that_talks_to_both_servers_finds_each_message_once(tmp_path: Path) -> None:
    """A client sends all its messages, including those that the other server answered."""
    async with apart(tmp_path) as (a, b):
        await a.talk.run(user("u1", "one"))
        for server, other, number in ((b, a, 2), (a, b, 3), (b, a, 4)):
            known = await other.talk.messages()
            assert short(await server.talk.run(*known, user(f"u{number}", str(number))))[-1] == "RF"
            messages = await server.talk.messages()
            assert messages[:-2] == known
            assert texts(messages)[-2:] == [(f"u{number}", str(number)), ("-", f"Heard {number}")]
    assert b.model.saw[-1][-1] == ("user", "4")
    assert len(b.model.saw[-1]) == 7


async def test_the_calls_and_the_state_of_another_server_are_adopted(tmp_path: Path) -> None:
    async with apart(tmp_path) as (a, b):
        await a.talk.say("u1", "one", state={"kept": 1, "changed": 1})
        [question] = questions(await b.talk.run(user("u2", "pay 1"), state={"kept": 1, "changed": 2, "added": 3}))
        await b.talk.resume(yes(question))
        events = await a.talk.run(user("u3", "three"))
        messages = await a.talk.messages()
        state = (await a.talk.runner.view_thread(ThreadKey("default", "local", "t"))).state.value
    assert short(events) == [
        *("RS", "SS {'kept': 1, 'changed': 2, 'added': 3}", "TS m1", "TC Heard ", "TC three", "TE", "RF"),
    ]
    assert state == {"kept": 1, "changed": 2, "added": 3}
    assert [type(message).__name__ for message in messages] == [
        *("UserMessage", "AssistantMessage"),
        *("UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage"),
        *("UserMessage", "AssistantMessage"),
    ]
    assert a.model.saw[-1][2:] == [
        ("user", "pay 1"),
        ("model", ("call", "pay", {"amount": 1})),
        ("user", ("result", "pay", {"paid": 1})),
        ("model", "Got {'paid': 1}"),
        ("user", "three"),
    ]


async def test_a_run_during_which_another_server_writes_is_refused_with_a_reason(tmp_path: Path) -> None:
    """Two servers run the same session at the same time. No message of the other server is lost."""
    async with apart(tmp_path) as (a, b):
        await a.talk.say("u1", "one")
        entered, go_on = asyncio.Event(), asyncio.Event()
        a.pauses["wait"] = (entered, go_on)
        with unless_hung():
            async with asyncio.TaskGroup() as tasks:
                late = tasks.create_task(a.talk.say("u2", "wait"))
                await entered.wait()
                await b.talk.say("u3", "three")
                go_on.set()
        assert late.result()[-1] == f"RE {SessionConflict.code}"
        assert await a.talk.say("u4", "four") == ["RS", "TS m1", "TC Heard ", "TC four", "TE", "RF"]
        messages = await a.talk.messages()
    assert {("u3", "three"), ("-", "Heard three")} < {*texts(messages)}
    assert [said for said in a.model.saw[-1] if said[1] in {"three", "Heard three", "four"}] == [
        ("user", "three"),
        ("model", "Heard three"),
        ("user", "four"),
    ]


async def test_a_session_that_another_server_creates_at_the_same_moment_is_opened(tmp_path: Path) -> None:
    """The slower of two first runs ended with adk_error: the session existed when it came to create it."""
    slow = SlowToCreate(shared_sessions(tmp_path))
    async with (
        replica(tmp_path, "database", "a.db", slow) as a,
        replica(tmp_path, "database", "b.db") as b,
    ):
        slow.before_create = lambda: b.talk.say("u2", "two")
        with unless_hung():
            assert (await a.talk.say("u1", "one"))[-1] == "RF"
        assert slow.before_create is None
        assert texts(await a.talk.messages()) == [("u2", "two"), ("-", "Heard two"), ("u1", "one"), ("-", "Heard one")]


async def test_rewinding_a_thread_rewinds_turns_that_it_has_adopted(tmp_path: Path) -> None:
    async with apart(tmp_path) as (a, b):
        await a.talk.say("u1", "one")
        await b.talk.say("u2", "two")
        await a.talk.say("u3", "three")
        [first, *_] = await a.talk.messages()
        await a.talk.run(first)
        assert texts(await a.talk.messages()) == [("u1", "one"), ("-", "Heard one")]
    assert a.model.saw[-1] == [("user", "one")]


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
            assert await Talk(runner, "free").say("u1", "x") == ["RS", "TS m1", "TC Heard ", "TC x", "TE", "RF"]
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
