"""The examples, as a page would use them, with a model that plays a script."""

from __future__ import annotations

import json
from typing import Any

from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.strands.test_examples import BACKGROUND, Page, example, kinds
from tests.server.demo_server import SETTINGS, client_of, run_body
from tests.versions.marks import requires


def next_run(**body: Any) -> dict[str, Any]:
    return {"threadId": "t", "runId": "r2", "protocolVersion": "1.0", "messages": [], **body}


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def approved(answer: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]], dict[str, Any]]:
    """What the model saw last, the events after the answer, and the question."""
    model = ScriptedModel(calls(call("c1", "pay", '{"recipient": "Ada", "amount": 12}')), says("All right."))
    async with client_of(example("langgraph_approval").create(model, SETTINGS)) as client:
        page = Page(client)
        (question,) = (await page.post(run_body("pay Ada")))[-1]["outcome"]["interrupts"]
        events = await page.post(next_run(resume=[{"interruptId": question["id"], **answer}]))
    return model.saw[-1], events, question


@requires("langgraph", "1.2.15", "an interrupt has a response schema")
async def test_a_payment_waits_for_approval() -> None:
    saw, events, question = await approved({"status": "resolved", "payload": {"approved": True}})
    assert (question["reason"], question["message"]) == ("confirmation", "Pay 12.00 € to Ada?")
    assert question["responseSchema"]["required"] == ["approved"]
    assert "expiresAt" in question
    assert saw[-1] == "tool c1: Paid 12.00 € to Ada."
    assert text_of(events) == "All right."


@requires("langgraph", "1.2.15", "an interrupt has a response schema")
async def test_a_payment_that_is_declined_or_dismissed_is_not_made() -> None:
    for answer in ({"status": "resolved", "payload": {"approved": "yes"}}, {"status": "cancelled"}):
        saw, _, _ = await approved(answer)
        assert saw[-1] == "tool c1: The user declined. Nothing was paid."


async def test_the_page_changes_its_colour_and_the_graph_looks_up_the_weather() -> None:
    model = ScriptedModel(
        calls(
            call("f1", "change_background", '{"background": "teal"}'),
            call("c1", "get_weather", '{"city": "Rome"}', index=1),
        ),
        says("Teal, and sunny."),
    )
    async with client_of(example("langgraph_frontend_tools").create(model, SETTINGS)) as client:
        page = Page(client)
        context = [{"description": "page", "value": "home"}]
        first = await page.post(run_body("teal, and Rome?", tools=[BACKGROUND], context=context))
        assert first[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["f1"]}
        answer = {"id": "a1", "role": "tool", "toolCallId": "f1", "content": "done"}
        second = await page.post(next_run(messages=[answer], tools=[BACKGROUND]))
    assert text_of(second) == "Teal, and sunny."
    assert model.saw[0][0] == "system: Be brief. Use the page's tools when they help.\npage: home"
    assert sorted(model.saw[1][-2:]) == ["tool c1: It is sunny in Rome.", "tool f1: done"]


async def test_the_recipe_is_shared_both_ways_and_shown_while_it_is_written() -> None:
    recipe = {"title": "Soup with salt", "steps": ["boil", "salt"]}
    whole = json.dumps({"recipe": recipe})
    model = ScriptedModel(calls(call("c1", "write_recipe", whole[:32], whole[32:])), says("I added salt."))
    async with client_of(example("langgraph_shared_state").create(model, SETTINGS)) as client:
        mine = {"recipe": {"title": "Soup"}, "drafts": 99}
        events = await Page(client).post(run_body("more taste", state=mine))
        state = (await client.get("/state_snapshot/t")).json()["snapshot"]
    shown = [event["delta"][0]["value"] for event in events if event["type"] == "STATE_DELTA"]
    assert shown == [{"title": "Soup with "}, recipe]
    assert "CUSTOM" in kinds(events)
    assert state == {"recipe": recipe}
    assert model.saw[0][0].endswith('The current recipe: {"title": "Soup"}')
