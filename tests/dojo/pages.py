"""The pages of the AG-UI dojo: the tools and the state that each sends, and a check of what each reads."""

from __future__ import annotations

import json
from typing import Any

from tests.dojo.conversation import Conversation, require
from tests.dojo.script import Call

Json = dict[str, Any]


def page_tool(name: str, description: str, **properties: Any) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "parameters": parameters}


STRING = {"type": "string"}
STRINGS = {"type": "array", "items": STRING}

BACKGROUND = page_tool("change_background", "Change the background of the chat.", background=STRING)
TEAL = Call(name="change_background", arguments={"background": "linear-gradient(teal, navy)"})
CHANGED = '{"status": "success", "message": "Background changed"}'


def check_agentic_chat(conversation: Conversation) -> None:
    asked, answered = conversation.turns
    require(
        asked.open_calls == [("change_background", dict(TEAL.arguments))],
        "the page's tool is called and left to the page",
    )
    require(answered.text == "It is teal now, Bob. I saw it.", "the model gets the page's answer and context")
    require(answered.text_deltas > 1, "text arrives word by word")
    require(answered.results == {"change_background": CHANGED}, "the page's answer is kept")


WEATHER = {"temperature": 20, "conditions": "sunny", "humidity": 50, "wind_speed": 10, "feels_like": 25}


def check_backend_tool_rendering(conversation: Conversation) -> None:
    (turn,) = conversation.turns
    require(turn.calls == [("get_weather", {"location": "Lisbon"})], "the call has its name and arguments")
    require(json_or_none(turn.results.get("get_weather")) == WEATHER, "the result is the tool's JSON")
    require(turn.text == "It is sunny.", "the answer follows")


STEPS = [{"description": "Dig a hole", "status": "enabled"}, {"description": "Plant the tree", "status": "enabled"}]
PLAN_STEPS = page_tool(
    "generate_task_steps",
    "Generates a list of steps for the user to perform",
    steps={"type": "array", "items": {"type": "object", "properties": {"description": STRING, "status": STRING}}},
)
ACCEPTED = json.dumps({"accepted": True, "steps": STEPS[:1]})
SELECTED = "The user selected the following steps: Dig a hole"


def check_human_in_the_loop(conversation: Conversation) -> None:
    asked, answered = conversation.turns
    question = asked.question if asked.question is not None else dict(asked.open_calls).get("generate_task_steps", {})
    require(question.get("steps") == STEPS, "the page gets the steps to choose from")
    require(answered.text == "I dug a hole. I saw it.", "the model gets the choice")


TASKS = ("Digging a hole", "Planting the tree")


def tasks(*statuses: str) -> list[Json]:
    return [{"description": task, "status": status} for task, status in zip(TASKS, statuses, strict=True)]


def check_agentic_generative_ui(conversation: Conversation) -> None:
    (turn,) = conversation.turns
    seen = [state.get("steps") for state in turn.states]
    require(tasks("pending", "pending") in seen, "the steps are shown before they are done")
    require(tasks("completed", "pending") in seen, "progress is shown step by step")
    require(seen[-1] == tasks("completed", "completed"), "all steps are done in the end")
    require(turn.text == "Done.", "the answer follows")


HAIKU = {
    "japanese": ["古池や", "蛙飛び込む", "水の音"],
    "english": ["An old pond", "A frog leaps in", "The sound of water"],
    "image_name": "Bonsai_Tree_Potted_Japanese_Art_Green_Foliage.jpeg",
    "gradient": "linear-gradient(green, white)",
}
WRITE_HAIKU = page_tool(
    "generate_haiku", "Show a haiku.", japanese=STRINGS, english=STRINGS, image_name=STRING, gradient=STRING
)


def check_tool_based_generative_ui(conversation: Conversation) -> None:
    asked, thanked = conversation.turns
    require(asked.open_calls == [("generate_haiku", HAIKU)], "the card gets all arguments")
    require(thanked.results == {"generate_haiku": "Haiku generated!"}, "the page's answer is kept")
    require(thanked.text.endswith("You are welcome. I saw it."), "the model gets it with the next message")


RECIPE = {
    "title": "Make Your Recipe",
    "skill_level": "Intermediate",
    "cooking_time": "45 min",
    "special_preferences": [],
    "ingredients": [{"icon": "🥕", "name": "Carrots", "amount": "3 large, grated"}],
    "instructions": ["Preheat the oven"],
}
PASTA = {**RECIPE, "title": "Pasta", "instructions": ["Preheat the oven", "Boil the pasta"]}
EDITED = {"recipe": {**PASTA, "title": "Pasta al forno"}}


def check_shared_state(conversation: Conversation) -> None:
    changed, edited = conversation.turns
    require(changed.state.get("recipe") == PASTA, "the agent's change reaches the page")
    require(changed.text == "Let me see. I saw it.\nIt is Italian now.", "the model knows the page's state")
    require(edited.text == "A good name. I saw it.", "the model knows what the page changed")
    require(edited.state.get("recipe") == EDITED["recipe"], "the page's change is kept")


DOCUMENT = "Candy Beard was a pirate. He sailed the seven seas, and he never told a lie."
WRITE = page_tool("write_document", "Present the proposed changes to the user for review", document=STRING)
CONFIRM = {"name": "confirm_changes", "description": "", "parameters": {"type": "object", "properties": {}}}
WRITTEN = Call(name="write_document", arguments={"document": DOCUMENT})
YES = '{"accepted": true}'


def check_predictive_state_updates(conversation: Conversation) -> None:
    wrote, confirmed = conversation.turns
    documents = [state.get("document") or "" for state in wrote.states]
    require(all(DOCUMENT.startswith(one) for one in documents), "the document only grows")
    require(len({one for one in documents if one}) > 2, "the document appears while it is written")
    require(wrote.state.get("document") == DOCUMENT, "the document stays when the run ends")
    require(len(wrote.open_calls) == 1, "the page is asked to confirm")
    require(confirmed.text == "Written. I saw it.", "the model gets the confirmation")
    require(confirmed.state.get("document") == DOCUMENT, "the document stays when it is confirmed")


FLIGHTS = [
    {"airline": "KLM", "departure": "AMS", "arrival": "SFO", "price": "$650", "duration": "11h"},
    {"airline": "United", "departure": "AMS", "arrival": "SFO", "price": "$720", "duration": "12h"},
]
HOTELS = [
    {"name": "Zephyr", "location": "Wharf", "price_per_night": "$280", "rating": "4.2"},
    {"name": "Zoe", "location": "Union Square", "price_per_night": "$320", "rating": "4.4"},
]
EXPERIENCES = [{"name": "Pier 39", "type": "activity", "description": "Sea lions", "location": "Wharf"}]
TRIP = {
    "itinerary": {},
    "experiences": [],
    "flights": [],
    "hotels": [],
    "planning_step": "start",
    "active_agent": "supervisor",
}


def check_subgraphs(conversation: Conversation) -> None:
    flights, hotels, planned = conversation.turns
    for turn, agent, options in ((flights, "flights", FLIGHTS), (hotels, "hotels", HOTELS)):
        question = turn.question or {}
        require(question.get("agent") == agent, f"the page learns which agent asks: {agent}")
        require(question.get("options") == options, "the page gets the options")
        require(question.get("recommendation") == options[0], "the page gets the recommendation")
        require(bool(question.get("message")), "the page gets the question")
    require(
        planned.state.get("itinerary") == {"flight": FLIGHTS[1], "hotel": HOTELS[0]}, "the choices are in the state"
    )
    require(planned.state.get("experiences") == EXPERIENCES, "the experiences are in the state")
    require(planned.text.endswith("Enjoy your trip."), "the last agent's text arrives")


def check_reasoning(conversation: Conversation) -> None:
    (turn,) = conversation.turns
    require(turn.roles == ["user", "reasoning", "assistant"], "the thoughts come before the answer")
    require(turn.reasoning == "Two and two make four.", "the thoughts are complete")
    require(turn.text == "Four. I saw it.", "the model is the one the page chose")


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"}}
LEGACY_PICTURE = {"type": "binary", "mimeType": "image/png", "data": PIXEL}


def check_multimodal(conversation: Conversation) -> None:
    (turn,) = conversation.turns
    require(turn.text == "A single pixel. I saw it.", "the model gets the picture")
    require(PIXEL in json.dumps(turn.messages[0]), "the page still has the picture")


def json_or_none(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None
