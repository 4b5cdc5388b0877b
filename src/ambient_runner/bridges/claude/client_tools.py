"""The tools we give Claude besides the CLI's own: those of the developer and those of the client, as one MCP server in this process.

A tool of the client is not executed here. Its call waits, the run ends with the call open, and the next run brings the result.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server

from ambient_runner.bridges.toolkit.content import unreadable
from ambient_runner.bridges.toolkit.tool_schemas import clean_schema
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT
from ambient_runner.protocol.events import DataSource, ImagePart, TextPart
from ambient_runner.runs.run import enter_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from claude_agent_sdk import McpSdkServerConfig

    from ambient_runner.bridges.claude.translate import Made
    from ambient_runner.bridges.toolkit.turns import Result
    from ambient_runner.protocol.events import Content, ContentPart, Tool
    from ambient_runner.runs.run import Run

__all__ = ["PREFIX", "SERVER", "Calls", "Waiting", "callable_tools", "server_of", "shown_name"]

logger = logging.getLogger(__name__)

SERVER = "ambient"
PREFIX = f"mcp__{SERVER}__"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""The provider allows 64 characters, and the CLI puts its prefix before them."""

_NATIVE = frozenset(
    {
        *("Agent", "AskUserQuestion", "Bash", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "NotebookEdit"),
        *("Read", "Skill", "Task", "TodoWrite", "WebFetch", "WebSearch", "Write"),
    }
)
"""Names of the CLI's own tools: one of the client's under such a name could not be told from them."""
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


@dataclass(kw_only=True, slots=True, eq=False)
class Waiting:
    """A call of a client's tool that waits for its result."""

    tool: str
    arguments: dict[str, Any]
    answer: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    call: str | None = None
    """The call's id for clients, once it is known which one this is."""


class Calls:
    """The calls of client tools that wait in one process, and what they wait for."""

    def __init__(self, tell: Callable[[Waiting], None]) -> None:
        self._tell = tell
        self._waiting: list[Waiting] = []
        self._given: dict[str, Result] = {}

    @property
    def open(self) -> list[Waiting]:
        return [one for one in self._waiting if not one.answer.done()]

    async def wait(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Called for the CLI: the result, when the client has sent it."""
        waiting = Waiting(tool=tool, arguments=arguments)
        self._waiting.append(waiting)
        self._tell(waiting)
        try:
            return await waiting.answer
        finally:
            self._waiting.remove(waiting)

    def recognise(self, made: Mapping[str, Made]) -> None:
        """Say which call each waiting one is: by tool and arguments, then by tool alone, in the order they were made.

        The CLI makes some calls one after another, so the result of one may be there before it waits.
        """
        taken = {one.call for one in self._waiting}
        free = {one.call: one for one in made.values() if one.call not in taken}
        for exact in (True, False):
            for waiting in self.open:
                if waiting.call is None:
                    waiting.call = next(
                        (call for call, one in free.items() if _matches(waiting, one, exact=exact)), None
                    )
                    free.pop(waiting.call or "", None)
        self._settle()

    def deliver(self, results: Iterable[Result]) -> None:
        """Give the calls their results: those that wait, and those that will."""
        self._given |= {result.call_id: result for result in results}
        self._settle()

    def _settle(self) -> None:
        for one in self.open:
            result = self._given.pop(one.call or "", None)
            if result is not None:
                one.answer.set_result({"content": _blocks(result.content), "is_error": result.is_error})


def _matches(waiting: Waiting, made: Made, *, exact: bool) -> bool:
    return shown_name(made.name) == waiting.tool and (not exact or made.input == waiting.arguments)


def callable_tools(tools: Sequence[Tool], custom: Iterable[SdkMcpTool[Any]]) -> list[Tool]:
    """Those of the client's tools that can be offered. The log names the others."""
    taken = _NATIVE | {tool.name for tool in custom}
    fit = [tool for tool in tools if _NAME.fullmatch(tool.name) and tool.name not in taken]
    unfit = [tool.name[:64] for tool in tools if tool not in fit]
    if unfit:
        logger.warning(
            "Tools of a client were left out: a name is 1 to 48 letters, digits, _ or -, and free: %r", unfit[:10]
        )
    return fit


def shown_name(native: str) -> str:
    """A tool's name as clients know it."""
    return native.removeprefix(PREFIX)


def server_of(
    custom: Sequence[SdkMcpTool[Any]], frontend: Sequence[Tool], calls: Calls, run: Callable[[], Run | None]
) -> McpSdkServerConfig | None:
    """The MCP server with these tools; None when there are none. `run` gives the run that goes on, for tools that ask for it."""
    offered = [_offered(tool, calls) for tool in frontend]
    tools = [*(_within(tool, run) for tool in custom), *offered]
    served = create_sdk_mcp_server(SERVER, tools=tools) if tools else None
    for tool in offered:
        _ease(cast("dict[str, Any]", tool.input_schema))
    return served


def _within(tool: SdkMcpTool[Any], run: Callable[[], Run | None]) -> SdkMcpTool[Any]:
    """The tool, with `current_run()` as it is when it is called: the process may have been started by an earlier run."""

    async def handle(arguments: Any) -> dict[str, Any]:
        current = run()
        if current is not None:
            enter_run(current)
        return await tool.handler(arguments)

    return SdkMcpTool(tool.name, tool.description, tool.input_schema, handle, tool.annotations)


def _offered(tool: Tool, calls: Calls) -> SdkMcpTool[Any]:
    async def handle(arguments: Any) -> dict[str, Any]:
        return await calls.wait(tool.name, cast("dict[str, Any]", arguments))

    schema = clean_schema(tool.parameters, dialect="json")
    return SdkMcpTool(tool.name, tool.description or tool.name, schema, handle)


def _ease(schema: dict[str, Any]) -> None:
    """Leave of a client's schema what is safe to check calls with: which arguments there must be, and of what type.

    The model has been given all of it. The SDK checks calls with this very dict, in the server's event loop, where a pattern or
    references that double at every level would hold up everyone.
    """
    required, properties = schema.get("required", []), schema["properties"]
    schema.clear()
    schema |= {
        "type": "object",
        "properties": {name: _type(part) for name, part in properties.items()},
        "required": list(dict.fromkeys(required)),
    }


def _type(part: Any) -> dict[str, Any]:
    said: Any = cast("dict[str, Any]", part).get("type") if isinstance(part, dict) else None
    names = cast("list[Any]", said) if isinstance(said, list) else [said]
    return (
        {"type": [name for name in _TYPES if name in names]} if names and all(name in _TYPES for name in names) else {}
    )


def _blocks(content: Content) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content or EMPTY_RESULT}]
    return [_block(part) for part in content] or [{"type": "text", "text": EMPTY_RESULT}]


def _block(part: ContentPart) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(source=DataSource(value=data, mime_type=kind)):
            return {"type": "image", "data": data, "mimeType": kind}
        case _:
            return {"type": "text", "text": unreadable(part)}
