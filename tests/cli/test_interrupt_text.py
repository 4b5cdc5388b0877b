"""The text that the terminal shows for an interrupt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ambient_runner.cli.interrupt_text import describe_interrupt
from ambient_runner.protocol.events import Interrupt


@pytest.mark.parametrize(
    ("interrupt", "shown"),
    [
        (Interrupt(id="i", reason="input_required", message="Who?"), "Who?"),
        (Interrupt(id="i", reason="input_required", metadata={"value": {"draft": "Hi"}}), '{\n  "draft": "Hi"\n}'),
        (Interrupt(id="i", reason="r", message="Send?", metadata={"value": {"to": "a"}}), 'Send?\n{\n  "to": "a"\n}'),
        (Interrupt(id="i", reason="r", message="Who?", metadata={"value": "Who?"}), "Who?"),
        (Interrupt(id="i", reason="input_required"), "input_required"),
    ],
)
def test_an_interrupt_without_a_schema_is_shown_with_its_value_as_indented_json(
    interrupt: Interrupt, shown: str
) -> None:
    assert describe_interrupt(interrupt) == shown


def reviewing(*names: str, allowed: list[str] | None = None) -> Interrupt:
    """An interrupt of LangChain's HumanInTheLoopMiddleware."""
    value: dict[str, Any] = {"action_requests": [{"name": name, "args": {"to": "a"}} for name in names]}
    if allowed:
        value["review_configs"] = [{"action_name": name, "allowed_decisions": allowed} for name in set(names)]
    return Interrupt(id="i", reason="input_required", metadata={"value": value})


@pytest.mark.parametrize(
    ("interrupt", "example"),
    [
        (reviewing("send"), {"decisions": [{"type": "approve"}]}),
        (reviewing("send", "send"), {"decisions": [{"type": "approve"}, {"type": "approve"}]}),
        (reviewing("send", allowed=["edit", "approve"]), {"decisions": [{"type": "approve"}]}),
        (reviewing("send", allowed=["edit", "reject"]), {"decisions": [{"type": "reject", "message": "…"}]}),
        (
            reviewing("send", allowed=["edit"]),
            {"decisions": [{"type": "edit", "edited_action": {"name": "send", "args": {"to": "a"}}}]},
        ),
    ],
)
def test_a_request_for_decisions_is_shown_with_an_example_answer(interrupt: Interrupt, example: object) -> None:
    line = describe_interrupt(interrupt).splitlines()[-1]
    assert line.startswith("For example: ")
    assert json.loads(line.removeprefix("For example: ")) == example


@pytest.mark.parametrize("config", [{"action_name": ["x"]}, {"action_name": "send", "allowed_decisions": 5}, 1])
def test_a_request_with_an_invalid_part_is_shown_with_the_usual_example(config: object) -> None:
    value: dict[str, Any] = {"action_requests": [{"name": "send"}, {"name": {}}], "review_configs": [config]}
    shown = describe_interrupt(Interrupt(id="i", reason="input_required", metadata={"value": value}))
    assert shown.splitlines()[-1] == 'For example: {"decisions": [{"type": "approve"}, {"type": "approve"}]}'


@pytest.mark.parametrize("value", [{"action_requests": []}, {"action_requests": "x"}, {"action_requests": [1]}, [1]])
def test_anything_else_has_no_example_answer(value: object) -> None:
    interrupt = Interrupt(id="i", reason="input_required", metadata={"value": value})
    assert "For example" not in describe_interrupt(interrupt)


_OPTIONS = Interrupt(
    id="i",
    reason="tool_call",
    message="Codex wants to use execute.",
    metadata={
        "options": [
            {"optionId": "allow_once", "name": "Yes, proceed", "kind": "allow_once"},
            {"optionId": "cancel", "name": "No", "kind": "reject_once"},
        ]
    },
)


def test_options_of_an_agent_are_listed_with_numbers() -> None:
    assert describe_interrupt(_OPTIONS).splitlines() == [
        "Codex wants to use execute.",
        "  1  Yes, proceed (allow once)",
        "  2  No (reject once)",
    ]


def test_a_permission_request_names_its_call() -> None:
    """Of several that were open together, nobody could tell which was about what."""
    assert describe_interrupt(_OPTIONS, 'execute {"command":"rm\n1"}').splitlines() == [
        "Codex wants to use execute.",
        '  execute {"command":"rm 1"}',
        "  1  Yes, proceed (allow once)",
        "  2  No (reject once)",
    ]


def test_arguments_of_the_interrupt_are_newer_than_those_of_its_call() -> None:
    metadata = {"tool": "execute", "arguments": {"command": "rm 2"}}
    interrupt = Interrupt(id="i", reason="tool_call", message="May I?", response_schema={}, metadata=metadata)
    assert describe_interrupt(interrupt, "execute {}").splitlines() == ["May I?", '  execute {"command": "rm 2"}']


def asking_at(url: object) -> Interrupt:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return Interrupt(id="i", reason="input_required", message="Sign in.", response_schema=schema, metadata={"url": url})


@pytest.mark.parametrize("url", ["https://example.com/sign-in?a=b#c", "http://127.0.0.1:80/", "HTTPS://example.com"])
def test_a_url_is_shown(url: str) -> None:
    assert describe_interrupt(asking_at(url)).splitlines() == ["Sign in.", f"Open in your browser: {url}"]


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "vscode://open",
        "https://",
        "https://[::1",
        "https://example.com/ then run rm",
        "https://example.com/\u202egpj",
    ],
)
def test_a_url_that_is_no_web_page_is_not_shown(url: str) -> None:
    shown = describe_interrupt(asking_at(url)).splitlines()
    assert (len(shown), url in "\n".join(shown)) == (2, False)
