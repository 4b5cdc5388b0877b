"""The text that the terminal shows for an interrupt, before `interrupt_form.py` prompts for its answer. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.cli.interrupt_form import objects_in, offered_options, requested_url
from ambient_runner.cli.text_format import compact_json, to_single_line

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Interrupt

__all__ = ["describe_interrupt"]

_HIDDEN_URL = "The agent names an address that is not shown: it is no valid http or https address."


def describe_interrupt(interrupt: Interrupt, call: str = "") -> str:
    """Return the text to show for an interrupt: its message, and its metadata as indented JSON if it has no message or no schema.

    `call` is the tool call it is about, as the terminal shows it. A URL is shown if a browser opens it as a page. Options of a command-line
    agent have numbers, and a request of LangChain's HumanInTheLoopMiddleware has an example answer.
    """
    options, url = offered_options(interrupt), requested_url(interrupt)
    request = interrupt.message or interrupt.reason if options or url else _describe_request(interrupt)
    lines = [f"  {number}  {_describe_option(option)}" for number, option in enumerate(options, 1)]
    return "\n".join([request, *_call_lines(interrupt, call), *([_describe_url(url)] if url else []), *lines])


def _call_lines(interrupt: Interrupt, call: str) -> list[str]:
    """Return the line that tells one call from another. Arguments that the interrupt has itself are newer than those of the call."""
    metadata = as_object(interrupt.metadata)
    if "arguments" in metadata and isinstance(metadata.get("tool"), str):
        call = f"{metadata['tool']} {compact_json(metadata['arguments'])}"
    return [f"  {to_single_line(call)}"] if call else []


def _describe_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return _HIDDEN_URL
    is_page = parts.scheme in ("http", "https") and bool(parts.hostname)
    return f"Open in your browser: {url}" if is_page and url.isprintable() and " " not in url else _HIDDEN_URL


def _describe_request(interrupt: Interrupt) -> str:
    value = (interrupt.metadata or {}).get("value", interrupt.metadata)
    if not value or value == interrupt.message or (interrupt.message and interrupt.response_schema is not None):
        return interrupt.message or interrupt.reason
    details = json.dumps(value, ensure_ascii=False, indent=2)
    example = _example_answer(value) if interrupt.response_schema is None else ""
    return "\n".join(part for part in (interrupt.message, details, example) if part)


def _describe_option(option: dict[str, Any]) -> str:
    """Return the option's name and, since an agent can name it anything, its kind."""
    kind = str(option.get("kind") or "").replace("_", " ")
    return " ".join(f"{option.get('name') or option['optionId']}{f' ({kind})' if kind else ''}".split())


def _example_answer(value: Any) -> str:
    """Return a line with an answer to a request with `action_requests`: one decision for each. Empty for any other value."""
    request = as_object(value)
    actions = objects_in(request.get("action_requests"))
    if not actions:
        return ""
    configs = objects_in(request.get("review_configs"))
    allowed = {str(config.get("action_name")): config.get("allowed_decisions") for config in configs}
    decisions = [_example_decision(action, allowed.get(str(action.get("name")))) for action in actions]
    return f"For example: {json.dumps({'decisions': decisions}, ensure_ascii=False)}"


def _example_decision(action: dict[str, Any], allowed: Any) -> dict[str, Any]:
    """Return the simplest decision among the `allowed` types, a list of names."""
    if not isinstance(allowed, list) or not allowed or "approve" in allowed:
        return {"type": "approve"}
    types = cast("list[Any]", allowed)
    if "reject" in types or "edit" not in types:
        return {"type": "reject" if "reject" in types else types[0], "message": "…"}
    arguments = action.get("args", action.get("arguments", {}))
    return {"type": "edit", "edited_action": {"name": action.get("name"), "args": arguments}}
