"""The graph's own messages are authoritative. What it removes, replaces or never keeps leaves the thread, and models do not get it."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware, SummarizationMiddleware
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.projections.frames import snapshot_seqs
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.runs.view_cache import load_view
from tests.bridges.langgraph.scripted import ScriptedModel, blocks, call, calls, says
from tests.bridges.langgraph.world import Thread, agent_graph, get_weather, in_a_row, langgraph, yes
from tests.world import KEY, structs_of, user

SAVERS = pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])


def copy_all(old: Any, new: Any) -> Any:
    """A reducer that gives all messages ids of its own."""
    return [each.model_copy(update={"id": f"copy-{at}"}) for at, each in enumerate(add_messages(old, new))]


class CopiedState(TypedDict):
    messages: Annotated[list[AnyMessage], copy_all]


def answering(model: Any) -> Any:
    async def answer(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return answer


async def last_snapshot(thread: Thread) -> list[Any]:
    """The contents of the messages in the last MESSAGES_SNAPSHOT that a reader of the whole thread gets."""
    seqs = [seq for batch in await thread.runner.ledger.read_batches(KEY, 0) for seq in snapshot_seqs(batch)]
    view = await load_view(thread.runner.ledger, KEY, until=seqs[-1])
    return [message.content for message in view.transcript.messages()]


@SAVERS
async def test_text_that_a_guard_replaces_is_replaced_for_clients_and_models(saver: Any) -> None:
    model = ScriptedModel(says("The code is 1234."), says("Fine."))

    def guard(state: MessagesState) -> Any:
        last = state["messages"][-1]
        return {"messages": [AIMessage("[blocked]", id=last.id)]} if "1234" in str(last.content) else {}

    async with langgraph(in_a_row(answering(model), guard, checkpointer=saver())) as thread:
        await thread.say("hi")
        assert await thread.messages() == ["user: hi", "assistant: [blocked]"]
        assert await last_snapshot(thread) == ["hi", "[blocked]"]
        await thread.say("and now?")
        assert await thread.messages() == ["user: hi", "assistant: [blocked]", "user: and now?", "assistant: Fine."]
    assert model.saw[1] == ["user: hi", "ai: [blocked]", "user: and now?"]


@SAVERS
async def test_a_message_that_a_guard_removes_goes_with_its_reasoning(saver: Any) -> None:
    thinks = blocks({"type": "thinking", "thinking": "The code is 1234."})
    model = ScriptedModel(calls(thinks, says("The code is 1234.")), says("Fine."))

    def guard(state: MessagesState) -> Any:
        last = state["messages"][-1]
        removed = [RemoveMessage(id=str(last.id)), AIMessage("I cannot say.")]
        return {"messages": removed if "1234" in str(last.content) else []}

    async with langgraph(in_a_row(answering(model), guard, checkpointer=saver())) as thread:
        await thread.say("hi")
        assert await thread.messages() == ["user: hi", "assistant: I cannot say."]
        assert await last_snapshot(thread) == ["hi", "I cannot say."]
        await thread.say("and now?")
    assert model.saw[1] == ["user: hi", "ai: I cannot say.", "user: and now?"]


@SAVERS
async def test_calls_and_text_that_no_node_keeps_leave_the_thread(saver: Any) -> None:
    router = ScriptedModel(*[calls(call(f"r{turn}", "Route", '{"to":"sales"}')) for turn in range(2)])
    model = ScriptedModel(says("Hello from sales."), says("Again."))

    async def route(state: MessagesState) -> Any:
        await router.ainvoke(state["messages"])

    async with langgraph(in_a_row(route, answering(model), checkpointer=saver())) as thread:
        assert "CS r0 Route < m1" in await thread.say("hi")
        assert await thread.messages() == ["user: hi", "assistant: Hello from sales."]
        await thread.say("bye")
        assert (await thread.messages())[-2:] == ["user: bye", "assistant: Again."]
    assert router.saw[1] == model.saw[1] == ["user: hi", "ai: Hello from sales.", "user: bye"]


async def test_an_answer_stays_if_the_graph_keeps_its_answers_elsewhere() -> None:
    class State(MessagesState):
        answer: str

    model = ScriptedModel(says("Forty-two."))

    async def answer(state: State) -> Any:
        return {"answer": (await model.ainvoke(state["messages"])).content}

    async with langgraph(in_a_row(answer, schema=State)) as thread:
        await thread.say("hi")
        assert await thread.messages() == ["user: hi", "assistant: Forty-two."]


@SAVERS
async def test_input_that_pii_middleware_masks_is_masked_in_the_thread(saver: Any) -> None:
    model = ScriptedModel(says("Noted."), says("No."))
    agent = create_agent(model, middleware=[PIIMiddleware("email", strategy="redact")], checkpointer=saver())
    async with langgraph(agent) as thread:
        await thread.say("I am ann@example.com")
        masked = "I am [REDACTED_EMAIL]"
        assert await thread.messages() == [f"user: {masked}", "assistant: Noted."]
        assert await last_snapshot(thread) == [masked, "Noted."]
        await thread.say("Who am I?")
    assert model.saw == [[f"user: {masked}"], [f"user: {masked}", "ai: Noted.", "user: Who am I?"]]


async def test_a_client_that_posts_the_unmasked_message_again_does_not_bring_it_back() -> None:
    model = ScriptedModel(says("Noted."), says("No."))
    agent = create_agent(model, middleware=[PIIMiddleware("email", strategy="redact")])
    async with langgraph(agent) as thread:
        await thread.run(e.UserMessage(id="u1", content="I am ann@example.com"))
        await thread.run(e.UserMessage(id="u1", content="I am ann@example.com"), e.UserMessage(id="u2", content="Hm?"))
        assert (await thread.messages())[::2] == ["user: I am [REDACTED_EMAIL]", "user: Hm?"]


def summarizing(model: ScriptedModel, summarizer: ScriptedModel, saver: Any) -> Any:
    middleware = SummarizationMiddleware(summarizer, trigger=("messages", 3), keep=("messages", 1))
    return create_agent(model, middleware=[middleware], checkpointer=saver)


async def test_a_summary_compacts_the_thread_and_its_text_is_not_shown() -> None:
    model = ScriptedModel(says("One."), says("Two."))
    graph = summarizing(model, ScriptedModel(says("They counted.")), InMemorySaver())
    async with langgraph(graph) as thread:
        await thread.say("first")
        await thread.say("second")
        assert await thread.messages() == ["user: second", "assistant: Two."]
    assert "They counted." in model.saw[1][0]


async def test_without_a_checkpointer_a_summary_removes_nothing_that_the_next_run_needs() -> None:
    model = ScriptedModel(says("One."), says("Two."), says("Three."))
    summarizer = ScriptedModel(says("They counted to one."), says("They counted to two."))
    async with langgraph(summarizing(model, summarizer, None)) as thread:
        for text in ("first", "second", "third"):
            await thread.say(text)
        assert [line for line in await thread.messages() if line.startswith("assistant")] == [
            "assistant: One.",
            "assistant: Two.",
            "assistant: Three.",
        ]
    assert "to two" in model.saw[2][0]


@SAVERS
async def test_earlier_messages_that_a_node_removes_leave_the_thread_with_their_calls_and_results(saver: Any) -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", '{"city":"Rome"}')), says("Sunny."), says("Forgotten."))

    def forget(state: MessagesState) -> Any:
        wants = state["messages"][-1].content == "forget it"
        return {"messages": [RemoveMessage(id=str(each.id)) for each in state["messages"][:-1]] if wants else []}

    inner = agent_graph(model, get_weather)

    async def agent(state: MessagesState) -> Any:
        return {"messages": (await inner.ainvoke({"messages": state["messages"]}))["messages"]}

    async with langgraph(in_a_row(forget, agent, checkpointer=saver())) as thread:
        await thread.say("weather?")
        assert "tool: sunny in Rome" in await thread.messages()
        await thread.say("forget it")
        shown = (await thread.runner.view_thread(KEY)).transcript.messages()
        assert [message.content for message in shown] == ["forget it", "Forgotten."]


@SAVERS
async def test_a_graph_that_empties_its_conversation_empties_the_thread(saver: Any) -> None:
    def reset(state: MessagesState) -> Any:
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}

    async with langgraph(in_a_row(reset, checkpointer=saver())) as thread:
        await thread.say("reset")
        assert await thread.messages() == []
        await thread.say("again")
        assert await thread.messages() == []


@SAVERS
@pytest.mark.parametrize("with_id", [True, False])
async def test_a_graph_that_begins_anew_with_another_message_leaves_only_that(saver: Any, with_id: bool) -> None:
    """Nothing was removed, and the new message was taken back."""
    model = ScriptedModel(says("One."), says("Two."), says("Three."))

    def reset(state: MessagesState) -> Any:
        if "reset" not in str(state["messages"][-2].content):
            return {}
        cleared = AIMessage("Cleared.", id="cleared" if with_id else None)
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), cleared]}

    async with langgraph(in_a_row(answering(model), reset, checkpointer=saver())) as thread:
        await thread.say("hi")
        await thread.say("reset")
        assert await thread.messages() == ["assistant: Cleared."]
        assert await last_snapshot(thread) == ["Cleared."]
        await thread.say("and now?")
        assert await thread.messages() == ["assistant: Cleared.", "user: and now?", "assistant: Three."]
    assert model.saw[2] == ["ai: Cleared.", "user: and now?"]


async def test_an_unkept_call_of_a_run_that_waits_leaves_the_thread_when_the_graph_has_answered() -> None:
    """It stayed for good without a result: the run had no output yet that showed that the graph keeps its answers."""
    router = ScriptedModel(*[calls(call(f"r{turn}", "Route", '{"to":"sales"}')) for turn in range(2)])
    model = ScriptedModel(says("Hello from sales."), says("Again."))

    async def route(state: MessagesState) -> Any:
        await router.ainvoke(state["messages"])

    def ask(state: MessagesState) -> Any:
        interrupt("Really?")

    async with langgraph(in_a_row(route, ask, answering(model), checkpointer=InMemorySaver())) as thread:
        await thread.say("hi")
        await thread.resume(yes(thread.interrupts[0]))
        assert await thread.messages() == ["user: hi", "assistant: Hello from sales."]
        await thread.say("bye")
        assert (await thread.messages())[-1] == "user: bye"
        await thread.resume(yes(thread.interrupts[0]))
        assert (await thread.messages())[-2:] == ["user: bye", "assistant: Again."]


@SAVERS
async def test_messages_in_several_forms_are_stored_in_the_order_of_the_graph(saver: Any) -> None:
    """Objects are streamed when their node ends, dicts and tuples after them."""
    model = ScriptedModel(says("two"))

    async def answer(state: MessagesState) -> Any:
        written = await model.ainvoke(state["messages"])
        return {"messages": [{"role": "assistant", "content": "one"}, written, ("ai", "three"), AIMessage("four")]}

    async with langgraph(in_a_row(answer, checkpointer=saver())) as thread:
        await thread.say("count")
        assert await thread.messages() == ["user: count", *(f"assistant: {n}" for n in ("one", "two", "three", "four"))]


async def test_arguments_and_results_that_a_node_changes_change_in_the_thread() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", '{"city":', '"Rome"}')), says("Done."))

    def edit(state: MessagesState) -> Any:
        last: Any = state["messages"][-1]
        edited = [{**each, "args": {"city": "Oslo"}} for each in last.tool_calls]
        return {"messages": [AIMessage(last.content, id=last.id, tool_calls=edited)]}

    def shorten(state: MessagesState) -> Any:
        last: Any = state["messages"][-1]
        return {"messages": [ToolMessage("[long]", id=last.id, tool_call_id=last.tool_call_id)]}

    graph = in_a_row(answering(model), edit, ToolNode([get_weather]), shorten, answering(model))
    async with langgraph(graph) as thread:
        await thread.say("hi")
        assert await thread.messages() == [
            "user: hi",
            "assistant:",
            'call: c1 get_weather {"city":"Oslo"}',
            "tool: [long]",
            "assistant: Done.",
        ]


@SAVERS
async def test_output_that_is_hidden_stays_hidden_when_the_graph_changes_it(saver: Any) -> None:
    model = ScriptedModel(says("secret plan"), says("secret plan 2"))
    hidden = model.with_config(metadata={"emit-messages": False})

    def shout(state: MessagesState) -> Any:
        last = state["messages"][-1]
        return {"messages": [AIMessage(str(last.content).upper(), id=last.id), AIMessage("Done.")]}

    async with langgraph(in_a_row(answering(hidden), shout, checkpointer=saver())) as thread:
        await thread.say("hi")
        await thread.say("bye")
        assert await thread.messages() == ["user: hi", "assistant: Done.", "user: bye", "assistant: Done."]


async def test_a_message_of_a_node_that_waits_for_an_answer_stays() -> None:
    model = ScriptedModel(says("Shall I?"), says("Shall I?"), says("Done."))

    async def ask(state: MessagesState) -> Any:
        question = await model.ainvoke(state["messages"])
        interrupt("Really?")
        return {"messages": [question]}

    async with langgraph(in_a_row(ask, answering(model), checkpointer=InMemorySaver())) as thread:
        await thread.say("hi")
        assert await thread.messages() == ["user: hi", "assistant: Shall I?"]
        await thread.resume(yes(thread.interrupts[0]))
        assert await thread.messages() == ["user: hi", "assistant: Shall I?", "assistant: Done."]


@SAVERS
@pytest.mark.parametrize("form", ["object", "dict"])
async def test_a_copy_under_another_id_is_the_message_that_was_streamed(saver: Any, form: str) -> None:
    model = ScriptedModel(says("One", "."), says("Two."))

    async def answer(state: MessagesState) -> Any:
        text = (await model.ainvoke(state["messages"])).content
        return {"messages": [AIMessage(text) if form == "object" else {"role": "assistant", "content": text}]}

    async with langgraph(in_a_row(answer, checkpointer=saver())) as thread:
        assert [line[:2] for line in await thread.say("hi")] == ["TS", "TC", "TC", "TE", "MS", "RF"]
        await thread.say("bye")
        assert await thread.messages() == ["user: hi", "assistant: One.", "user: bye", "assistant: Two."]
    assert model.saw[1] == ["user: hi", "ai: One.", "user: bye"]


async def test_a_copy_can_be_removed_in_a_later_run() -> None:
    model = ScriptedModel(says("One."), says("Two."))

    async def answer(state: MessagesState) -> Any:
        removed = [RemoveMessage(id=str(each.id)) for each in state["messages"][:-1]]
        return {"messages": [*removed, AIMessage((await model.ainvoke(state["messages"])).content)]}

    async with langgraph(in_a_row(answer, checkpointer=InMemorySaver())) as thread:
        await thread.say("hi")
        await thread.say("bye")
        assert await thread.messages() == ["user: bye", "assistant: Two."]


async def test_a_state_whose_messages_are_replaced_and_not_a_conversation_restates_nothing() -> None:
    class State(TypedDict):
        messages: list[AnyMessage]

    model = ScriptedModel(says("One."), says("Two."))
    async with langgraph(in_a_row(answering(model), schema=State)) as thread:
        await thread.say("hi")
        await thread.say("bye")
        assert await thread.messages() == ["user: hi", "assistant: One.", "user: bye", "assistant: Two."]


async def test_a_reducer_that_gives_messages_new_ids_restates_nothing() -> None:
    async with langgraph(in_a_row(lambda state: {"messages": [AIMessage("One.")]}, schema=CopiedState)) as thread:
        await thread.say("hi")
        assert (await thread.messages())[0] == "user: hi"


async def test_what_was_taken_back_before_a_failure_is_taken_back() -> None:
    model = ScriptedModel(says("The code is 1234."))

    def guard(state: MessagesState) -> Any:
        return {"messages": [AIMessage("[blocked]", id=state["messages"][-1].id)]}

    def fail(state: MessagesState) -> Any:
        raise RuntimeError("no")

    async with langgraph(in_a_row(answering(model), guard, fail)) as thread:
        await thread.say("hi")
        assert thread.error == "langgraph_error"
        assert await thread.messages() == ["user: hi", "assistant: [blocked]"]


async def test_without_a_server_the_caller_gets_a_snapshot_of_what_is_left() -> None:
    model = ScriptedModel(says("The code is 1234."))

    def guard(state: MessagesState) -> Any:
        return {"messages": [AIMessage("[blocked]", id=state["messages"][-1].id)]}

    adapter = LangGraphBridge(in_a_row(answering(model), guard)).create_adapter(PlatformContext())
    run_input = input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=[user("u", "hi")]))
    *events, snapshot, _ = [event async for event in structs_of(adapter.run(run_input))]
    assert isinstance(snapshot, e.MessagesSnapshot)
    assert [message.content for message in snapshot.messages] == ["hi", "[blocked]"]
    assert not any(isinstance(event, e.Custom) for event in events)
