"""What the scripted model answers, by unusual words in the last user message: the CLI adds reminders of its own to it.

The first that fits wins, so what may be sent again as part of an earlier conversation comes last.
"""

from __future__ import annotations

import json
from typing import Any

Fixture = dict[str, Any]


def says(words: str, text: str, **more: Any) -> Fixture:
    return {"match": {"userMessage": words}, "response": {"content": text}, **more}


def calls(
    words: str, *made: tuple[str, str, dict[str, Any]], text: str = "", then: str = "Done.", **more: Any
) -> list[Fixture]:
    """The model calls tools (id, name, arguments), and says something when their results are there."""
    wanted = [{"id": call, "name": name, "arguments": json.dumps(arguments)} for call, name, arguments in made]
    return [
        {
            "match": {"userMessage": words, "hasToolResult": False},
            "response": {"content": text, "toolCalls": wanted},
            **more,
        },
        {"match": {"userMessage": words, "hasToolResult": True}, "response": {"content": then}},
    ]


def bash(call: str, command: str) -> tuple[str, str, dict[str, Any]]:
    return call, "Bash", {"command": command, "description": "a command"}


FETCH = {"url": "http://127.0.0.1:9/", "prompt": "what is there"}
ASKED = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
            "multiSelect": False,
        }
    ]
}
ENDLESS = "call_" + "x" * 300
"""An id that no client could send back."""
USED = {"input_tokens": 11, "output_tokens": 7}

SCRIPT: list[Fixture] = [
    says("say hello there", "Hello there."),
    {"match": {"userMessage": "gnu crashes"}, "response": {"error": {"message": "secret reason"}, "status": 400}},
    {"match": {"userMessage": "gnu is unpaid"}, "response": {"error": {"message": "secret reason"}, "status": 401}},
    {"match": {"userMessage": "walrus thinks"}, "response": {"reasoning": "Two and two.", "content": "Four."}},
    {"match": {"userMessage": "walrus counts"}, "response": {"content": "Counted.", "usage": USED}},
    says("walrus remembers", "I remember."),
    says("walrus sums up", "All told."),
    says("walrus begins", "I begin."),
    says("walrus middle", "In the middle."),
    says("walrus differs", "Something else."),
    *calls("otter reads", ("call_read", "Read", {"file_path": "note.txt"})),
    *calls("otter looks", bash("call_look", "cat note.txt"), text="Let me look.", then="It says tulip."),
    *calls("otter touches", bash("call_touch", "touch made.txt")),
    *calls("otter prints", bash("call_print", "env")),
    *calls("otter lingers", bash("call_linger", "nohup sleep 300 >/dev/null 2>&1 & sleep 300")),
    *calls("otter asks the tide", ("call_tide", "mcp__ambient__tides", {"town": "Lisbon"}), then="Twice a day."),
    *calls("otter cooks", ("call_cook", "mcp__ambient__update_state", {"changes": {"recipe": "pasta"}})),
    *calls("otter burns", ("call_burn", "mcp__ambient__update_state", {"changes": "a lot"})),
    *calls("otter checks the sky", ("call_up", "mcp__weather__get_weather", {"location": "Lisbon"}), then="Sunny."),
    *calls("otter adds", ("call_add", "mcp__ambient__add", {"a": 2, "b": 3}), then="Five."),
    *calls("otter paints", ("call_paint", "mcp__ambient__change_background", {"color": "teal"}), then="Painted."),
    *calls("otter names it at length", (ENDLESS, "mcp__ambient__change_background", {"color": "teal"}), then="Long."),
    *calls(
        "otter strains",
        ("call_strain", "mcp__ambient__change_background", {"color": "a" * 40 + "!", "a" * 40 + "!": 1}),
        then="So.",
    ),
    *calls("otter misuses", ("call_misuse", "mcp__ambient__change_background", {"color": 5}), then="Oh."),
    *calls(
        "otter doubles",
        ("call_one", "mcp__ambient__change_background", {"color": "red"}),
        ("call_two", "mcp__ambient__change_background", {"color": "blue"}),
        then="Painted twice.",
    ),
    *calls(
        "otter takes its time",
        ("call_early", "mcp__ambient__change_background", {"color": "red"}),
        ("call_late", "mcp__ambient__change_background", {"color": "a very long name of a blue"}),
        then="Painted slowly.",
        latency=150,
    ),
    *calls(
        "otter delegates",
        ("call_task", "Task", {"description": "look", "prompt": "heron works", "subagent_type": "general-purpose"}),
    ),
    *calls("heron works", bash("call_inner", "cat note.txt"), text="I will look.", then="The note says tulip."),
    *calls(
        "otter sends away",
        ("call_away", "Task", {"description": "ask", "prompt": "heron asks", "subagent_type": "general-purpose"}),
    ),
    *calls(
        "otter juggles",
        ("call_first", "Task", {"description": "ask", "prompt": "heron asks", "subagent_type": "general-purpose"}),
        bash("call_slow", f"echo {'slowly ' * 28}"),
        latency=250,
    ),
    *calls("heron asks", ("call_deep", "WebFetch", FETCH), then="Nothing there."),
    *calls("otter plants", ("call_plant", "Write", {"file_path": "opencode.json", "content": "{}"}), then="Planted."),
    *calls("otter sows", ("call_sow", "Write", {"file_path": "plain.json", "content": "{}"}), then="Sown."),
    *calls("otter copies", bash("call_copy", "cp note.txt .envrc"), then="Copied."),
    *calls("lynx fetches", ("call_fetch", "WebFetch", FETCH), then="I have seen it."),
    *calls("lynx wonders", ("call_ask", "AskUserQuestion", ASKED), then="Thanks."),
    *calls("lynx runs", bash("call_run", "curl --version > ran.txt"), then="It ran."),
    *calls("lynx repeats", bash("call_again", "curl --version > ran.txt"), then="It ran again."),
    *calls("lynx writes", ("call_write", "Write", {"file_path": "/etc/ambient-test", "content": "x"}), then="Wrote."),
    # What the CLI makes of a call whose id it has seen before: the model reads that it was interrupted.
    says("(no content)", "So it is."),
    says("gnu goes on", "word " * 2000, latency=50, chunkSize=5),
]
