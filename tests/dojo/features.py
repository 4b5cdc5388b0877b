"""The features of the AG-UI dojo: for each the conversation of its page, what the page reads, and the replies of the model.

`tests/e2e/clients/dojo.mjs` runs the conversation as the page's components do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.dojo.conversation import Conversation
from tests.dojo.pages import (
    ACCEPTED,
    BACKGROUND,
    CHANGED,
    CONFIRM,
    EDITED,
    FLIGHTS,
    HAIKU,
    HOTELS,
    LEGACY_PICTURE,
    PASTA,
    PICTURE,
    PIXEL,
    PLAN_STEPS,
    RECIPE,
    SELECTED,
    STEPS,
    TEAL,
    TRIP,
    WRITE,
    WRITE_HAIKU,
    WRITTEN,
    YES,
    check_agentic_chat,
    check_agentic_generative_ui,
    check_backend_tool_rendering,
    check_human_in_the_loop,
    check_multimodal,
    check_predictive_state_updates,
    check_reasoning,
    check_shared_state,
    check_subgraphs,
    check_tool_based_generative_ui,
)
from tests.dojo.script import Call, Reply, Script

__all__ = ["FEATURES", "Feature"]

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One page: its name in the dojo's addresses, what it reads (for the table in the docs), what it sends, and the model's script."""

    name: str
    reads: str
    turns: Sequence[Json]
    check: Callable[[Conversation], None]
    script: Script
    tools: Sequence[Json] = ()
    context: Sequence[Json] = ()
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize().replace(" ui", " UI")

    @property
    def conversation(self) -> Json:
        """The conversation as `dojo.mjs` reads it."""
        return {"tools": self.tools, "context": self.context, "state": self.state, "turns": self.turns}


def accept(answers: Json, choice: str) -> Json:
    """A turn in which the page answers what it is asked: the calls of its tools, or an interrupt with this value."""
    return {"answer": answers, "choose": choice}


FEATURES = [
    Feature(
        name="agentic_chat",
        reads="streamed text; a call of the page's `change_background`, answered in the next run; the model knows the page's context",
        tools=[BACKGROUND],
        context=[{"description": "Name of the user", "value": "Bob"}],
        turns=[{"say": "Make it teal"}, {"answer": {"change_background": CHANGED}}],
        script={"Make it teal": [Reply(call=TEAL), Reply(text="It is teal now, Bob.", saw="Bob")]},
        check=check_agentic_chat,
    ),
    Feature(
        name="backend_tool_rendering",
        reads="a call of the agent's `get_weather` with `location`, and its result as JSON",
        turns=[{"say": "How is the weather in Lisbon?"}],
        script={
            "weather": [
                Reply(call=Call(name="get_weather", arguments={"location": "Lisbon"})),
                Reply(text="It is sunny."),
            ]
        },
        check=check_backend_tool_rendering,
    ),
    Feature(
        name="human_in_the_loop",
        reads="`steps` of a call of the page's `generate_task_steps`, or of a LangGraph interrupt's value; the user's choice goes back",
        tools=[PLAN_STEPS],
        turns=[{"say": "Plan a garden"}, accept({"generate_task_steps": ACCEPTED}, SELECTED)],
        script={
            "Plan a garden": [
                Reply(call=Call(name="generate_task_steps", arguments={"steps": STEPS})),
                Reply(text="I dug a hole.", saw="accepted"),
            ]
        },
        check=check_human_in_the_loop,
    ),
    Feature(
        name="agentic_generative_ui",
        reads="`state.steps`, each with `description` and `status`, at every change during the run",
        turns=[{"say": "Plant a tree"}],
        script={"Plant a tree": []},
        check=check_agentic_generative_ui,
    ),
    Feature(
        name="tool_based_generative_ui",
        reads="all arguments of a call of the page's `generate_haiku`; its answer comes with the next message",
        tools=[WRITE_HAIKU],
        turns=[{"say": "Write a haiku"}, {"answer": {"generate_haiku": "Haiku generated!"}, "say": "Thank you"}],
        script={
            # Claude takes up the answer before the next message; the others get both at once.
            "Write a haiku": [Reply(call=Call(name="generate_haiku", arguments=HAIKU)), Reply(text="It is there.")],
            "Thank you": [Reply(text="You are welcome.", saw="Haiku generated!")],
        },
        check=check_tool_based_generative_ui,
    ),
    Feature(
        name="shared_state",
        reads="`state.recipe` after the agent changed it; what the user changes there is known to the model",
        state={"recipe": RECIPE},
        turns=[{"say": "Make it Italian"}, {"state": EDITED, "say": "How do you like the name?"}],
        script={
            "Make it Italian": [
                Reply(
                    text="Let me see.",
                    saw="Make Your Recipe",
                    call=Call(name="generate_recipe", arguments={"recipe": PASTA}),
                ),
                Reply(text="It is Italian now."),
            ],
            "How do you like": [Reply(text="A good name.", saw="Pasta al forno")],
        },
        check=check_shared_state,
    ),
    Feature(
        name="predictive_state_updates",
        reads="`state.document` while the model writes it (`PredictState` and the arguments of the call), then a call to confirm it",
        tools=[CONFIRM, WRITE],
        state={"document": ""},
        turns=[{"say": "Write about a pirate"}, accept({"write_document": YES, "confirm_changes": YES}, YES)],
        script={"Write about a pirate": [Reply(call=WRITTEN), Reply(text="Written.", saw="accepted")]},
        check=check_predictive_state_updates,
    ),
    Feature(
        name="subgraphs",
        reads="`message`, `options`, `recommendation` and `agent` of a LangGraph interrupt's value; `state.itinerary` and `experiences`",
        state=TRIP,
        turns=[
            {"say": "Plan a trip"},
            {"choose": json.dumps(FLIGHTS[1])},
            {"choose": json.dumps(HOTELS[0])},
        ],
        script={"Plan a trip": [Reply(text="Enjoy your trip.")]},
        check=check_subgraphs,
    ),
    Feature(
        name="agentic_chat_reasoning",
        reads="a reasoning message before the text; `state.model` is known to the agent",
        tools=[BACKGROUND],
        state={"model": "Gemini"},
        turns=[{"say": "What is two and two?"}],
        script={"two and two": [Reply(thought="Two and two make four.", text="Four.", saw="Gemini")]},
        check=check_reasoning,
    ),
    Feature(
        name="agentic_chat_multimodal",
        reads="text about a picture that the user attached; the picture stays in the user's message",
        tools=[BACKGROUND],
        turns=[
            {
                "say": [{"type": "text", "text": "What is in it?"}, PICTURE],
                "legacy": [{"type": "text", "text": "What is in it?"}, LEGACY_PICTURE],
            }
        ],
        script={"What is in it?": [Reply(text="A single pixel.", saw=PIXEL)]},
        check=check_multimodal,
    ),
]
