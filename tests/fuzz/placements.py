"""Placements of a planted secret: a field of an event or of an input, an exception, a log line, a patch, feedback; and how it is split."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ambient_runner.protocol.events import RunAgentInput
from tests.fuzz.event_slots import EVENT_TEMPLATES, SLOT, fill_template, slot_name, struct_templates
from tests.fuzz.planted_secrets import CLASSES, Planted, plant_secret

__all__ = ["MODEL_FIELDS", "Placement", "place_secret", "split_text"]

_PLACES = {
    "demo": ("demo", "demo", "input", "patch", "feedback"),
    "agui": (*("event",) * 12, "log", "exception", "input", "input", "input", "patch", "feedback"),
}
MODEL_FIELDS = ("text", "reasoning", "arguments", "result", "state")
"""What the model of a framework puts a text into."""
_CHUNK_FIELDS = {
    "TEXT_MESSAGE_CHUNK": {"messageId": "chunked", "delta": "word "},
    "REASONING_MESSAGE_CHUNK": {"messageId": "chunked", "delta": "word "},
    "TOOL_CALL_CHUNK": {"toolCallId": "chunked", "toolCallName": "search", "delta": "word "},
}
"""Fields without which a chunk is dropped, although each of them is optional."""
_MODEL_PLACES = ("model", "model", "model", "input")
_POINTER = re.compile(r"(?:[^/~]|~[01])*")
_INPUT_TEMPLATES = struct_templates(RunAgentInput)
_DEMO_COMMANDS = ("say", "split", "weather", "approve", "color")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One secret in one place."""

    index: int
    agent: str
    planted: Planted
    source: str
    """`env`, `granted` or `rotated`: how the server knows the value; empty for a pattern."""
    place: str
    detail: str
    """The field, for the report."""
    is_split: bool = False
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What the agent sends."""
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the client sends besides a message."""


def place_secret(seed: int, agent: str, index: int) -> Placement:
    """Return the placement of this number. It depends on nothing else."""
    rng = Random(f"{seed}/{agent}/{index}")
    while True:
        secret_class, place = rng.choice(CLASSES), rng.choice(_PLACES.get(agent, _MODEL_PLACES))
        planted = plant_secret(rng, secret_class)
        if placement := _place(rng, index, agent, planted, _source_of(rng, secret_class), place):
            return placement


def _source_of(rng: Random, secret_class: str) -> str:
    match secret_class:
        case "pattern":
            return ""
        case "structured":
            return rng.choice(["env", "granted"])
        case _:
            return secret_class


def _place(rng: Random, index: int, agent: str, planted: Planted, source: str, place: str) -> Placement | None:
    common: dict[str, Any] = {"index": index, "agent": agent, "planted": planted, "source": source, "place": place}
    match place:
        case "event":
            return _place_in_event(rng, common)
        case "input":
            return _place_in_input(rng, common)
        case "demo":
            command = rng.choice(_DEMO_COMMANDS)
            return Placement(**common, detail=command, is_split=True, body=_message_body(f"{command} {planted.text}"))
        case "patch":
            operation = rng.choice(_patches(planted.text))
            return Placement(**common, detail="patch", body={"patch": [operation]}) if operation else None
        case "model":
            model_field = rng.choice(MODEL_FIELDS)
            is_split = model_field in {"text", "reasoning", "arguments", "state"}
            return Placement(**common, detail=model_field, is_split=is_split)
        case _:
            return Placement(**common, detail=place)


def _message_body(content: str) -> dict[str, Any]:
    return {"messages": [{"id": "planted", "role": "user", "content": content}]}


def _patches(text: str) -> list[dict[str, Any] | None]:
    return [
        {"op": "add", "path": "/planted", "value": {"note": text}},
        {"op": "add", "path": f"/{text}", "value": 1} if _POINTER.fullmatch(text) else None,
    ]


def _place_in_input(rng: Random, common: dict[str, Any]) -> Placement:
    template = rng.choice(_INPUT_TEMPLATES)
    name = slot_name(template)
    body = {name: fill_template(template[name], common["planted"].text)}
    return Placement(**common, detail=f"input {name}", body=body)


def _place_in_event(rng: Random, common: dict[str, Any]) -> Placement | None:
    text = common["planted"].text
    kind = rng.choice(list(EVENT_TEMPLATES))
    name = rng.choice(list(EVENT_TEMPLATES[kind]))
    template = _CHUNK_FIELDS.get(kind, {}) | rng.choice(EVENT_TEMPLATES[kind][name])
    if template[name] == SLOT and name == "delta" and rng.random() < 0.8:
        filled = [{**template, "delta": piece} for piece in split_text(rng, text)]
        events = [*_opening_events(filled[0]), *_with_noise(rng, filled, is_chunk=kind in _CHUNK_FIELDS)]
        return Placement(**common, detail=f"{kind} split", is_split=True, events=events)
    if f"/{SLOT}" in json.dumps(template, ensure_ascii=False) and not _POINTER.fullmatch(text):
        return None  # No JSON pointer: the patch would be refused.
    event = fill_template(template, text)
    return Placement(**common, detail=f"{kind} {name}", events=[*_opening_events(event), event])


def split_text(rng: Random, text: str) -> Iterator[str]:
    """Yield the text in pieces: single characters, words, random lengths, or two halves."""
    longest = rng.choice([1, 3, 8, 40, max(1, len(text) - 1)])
    at = 0
    while at < len(text):
        length = rng.randint(1, longest)
        yield text[at : at + length]
        at += length


def _with_noise(rng: Random, events: list[dict[str, Any]], *, is_chunk: bool) -> Iterator[dict[str, Any]]:
    """Yield the events with others in between. Nothing comes between chunks: another event may end their message."""
    rate = 0.0 if is_chunk else rng.choice([0.0, 0.1, 0.6])
    for number, event in enumerate(events):
        yield event
        if rng.random() < rate:
            yield from rng.choice(_noise(number))


def _noise(number: int) -> list[list[dict[str, Any]]]:
    return [
        [{"type": "CUSTOM", "name": "progress", "value": number}],
        [{"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/progress", "value": number}]}],
        [{"type": "STATE_SNAPSHOT", "snapshot": {"progress": number}}],
        [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "noise", "delta": f"word{number} "}],
        [{"type": "REASONING_MESSAGE_CONTENT", "messageId": "noise-thought", "delta": "hm"}],
        [
            {"type": "TOOL_CALL_START", "toolCallId": f"noise-{number}", "toolCallName": "look"},
            {"type": "TOOL_CALL_ARGS", "toolCallId": f"noise-{number}", "delta": "{}"},
            {"type": "TOOL_CALL_END", "toolCallId": f"noise-{number}"},
        ],
        [{"type": "STEP_STARTED", "stepName": f"s{number}"}, {"type": "STEP_FINISHED", "stepName": f"s{number}"}],
        [{"type": "MESSAGES_SNAPSHOT", "messages": []}],
    ]


def _opening_events(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events without which this one would be dropped."""
    kind, subagent = event["type"], event.get("subagentRunId")
    owner = {"subagentRunId": subagent} if subagent is not None else {}
    if owner and kind != "SUBAGENT_STARTED":
        yield {"type": "SUBAGENT_STARTED", "name": "helper", **owner}
    if "toolCallId" in event and kind in {"TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"}:
        yield {"type": "TOOL_CALL_START", "toolCallId": event["toolCallId"], "toolCallName": "search", **owner}
    match kind:
        case "SUBAGENT_STARTED" if parent := event.get("parentSubagentRunId"):
            yield {"type": "SUBAGENT_STARTED", "name": "parent", "subagentRunId": parent}
        case "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_END":
            yield {"type": "TEXT_MESSAGE_START", "role": "assistant", "messageId": event["messageId"], **owner}
        case "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_END" | "REASONING_END":
            yield {"type": "REASONING_START", "messageId": event["messageId"], **owner}
            yield {"type": "REASONING_MESSAGE_START", "role": "reasoning", "messageId": event["messageId"], **owner}
        case "TOOL_CALL_RESULT":
            yield {"type": "TOOL_CALL_END", "toolCallId": event["toolCallId"], **owner}
        case "STEP_FINISHED":
            yield {"type": "STEP_STARTED", "stepName": event["stepName"], **owner}
        case "ACTIVITY_DELTA":
            about = {"messageId": event["messageId"], "activityType": event["activityType"]}
            yield {"type": "ACTIVITY_SNAPSHOT", "content": {}, **about, **owner}
        case _:
            return
