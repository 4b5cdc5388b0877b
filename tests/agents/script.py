"""What the scripted model says, by unusual words in the newest user message. The shell has another name in every agent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.scripted_api import Fixture

HELLO = "Hello from the scripted model."
LONG = " ".join(f"word{number}" for number in range(400))
PICK_NUMBER = "pick_number"
"""The client's tool that the model calls."""
TOUCH = "echo hi-from-tool && touch touched.txt"
LINGER = "touch begun.txt && sleep 300"
CREATE_HELLO = "create hello.txt"
"""What the README asks its agent for."""
HELLO_PATCH = "*** Begin Patch\n*** Add File: hello.txt\n+Hello.\n*** End Patch\n"
"""The file as Codex' own models create it."""


def shell_calls(command: str) -> list[tuple[str, dict[str, Any]]]:
    """The call of a shell command in each agent: Claude, Gemini, OpenCode, Codex."""
    escalated = {"sandbox_permissions": "require_escalated", "justification": "It is needed."}
    return [
        ("Bash", {"command": command, "description": "a command"}),
        ("run_shell_command", {"command": command, "description": "a command"}),
        ("bash", {"command": command, "description": "a command"}),
        ("exec_command", {"cmd": command, **escalated}),
        ("shell_command", {"command": command, **escalated}),
    ]


def client_tool_calls(arguments: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The call of the client's tool in each agent but Codex, whose calls have a namespace: see `codex_front.py`."""
    names = (f"mcp__ambient__{PICK_NUMBER}", f"mcp_ambient_{PICK_NUMBER}", f"ambient_{PICK_NUMBER}")
    return [(name, arguments) for name in names]


def says(words: str, text: str, **more: Any) -> Fixture:
    return {"match": {"userMessage": words}, "response": {"content": text}, **more}


def calls(words: str, text: str, tools: Iterable[tuple[str, dict[str, Any]]], then: str) -> list[Fixture]:
    """The model calls whichever of the tools it has, and says something when the result is there."""
    return [
        *(
            {
                "match": {"userMessage": words, "hasToolResult": False, "toolName": name},
                "response": {"content": text, "toolCalls": [{"name": name, "arguments": json.dumps(arguments)}]},
            }
            for name, arguments in tools
        ),
        {"match": {"userMessage": words, "hasToolResult": True}, "response": {"content": then}},
    ]


def build_script(commands: dict[str, str] | None = None) -> list[Fixture]:
    """Return the script. `commands` adds shell commands by the words that ask for them.

    The first that fits wins, so what may be sent again as part of an earlier conversation comes last.
    """
    shell = {
        "otter touches": TOUCH,
        "otter lingers": LINGER,
        CREATE_HELLO: "echo Hello. > hello.txt",
        **(commands or {}),
    }
    return [
        says("otter remembers", "I remember."),
        {"match": {"userMessage": "otter thinks"}, "response": {"reasoning": "Two and two.", "content": "Four."}},
        {"match": {"userMessage": "otter fails"}, "response": {"error": {"message": "overloaded"}, "status": 529}},
        *(
            fixture
            for words, command in shell.items()
            for fixture in calls(words, "Running a command.", shell_calls(command), "The command has ended.")
        ),
        *calls("otter picks", "I ask the page.", client_tool_calls({"max": 10}), "The page has answered."),
        says(CREATE_HELLO, "The command has ended."),  # aimock does not know the result of Codex' JavaScript.
        says("otter greets", HELLO),
        says("otter counts", LONG, latency=40, chunkSize=12),
        # What an agent asks its model on its own: a title for the conversation.
        {"match": {}, "response": {"content": "A title"}},
    ]
