"""What the CLI is handed in files as it starts: what must not stand on its command line, and what is too long for one.

Everyone can read a command line, and the headers of MCP servers hold tokens. The files are its owner's alone, and gone when it has started.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions

__all__ = ["Handed"]

_LONGEST_ARGUMENT = 100_000
"""Bytes. Linux takes no argument above 128 KiB."""


class Handed:
    """The files of one process. `put` may fail half-way; `take_back` is right at any time."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def put(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """The options with paths in the place of what is now in files. Raises: OSError."""
        return self._long_prompt(self._servers(options))

    def take_back(self) -> None:
        """Delete the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _servers(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        servers = options.mcp_servers
        if not isinstance(servers, dict) or not servers:
            return options
        plain = {name: _without_instance(config) for name, config in servers.items()}
        return replace(options, mcp_servers=self._write("mcp.json", json.dumps({"mcpServers": plain})))

    def _long_prompt(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        match options.system_prompt:
            case {"type": "preset", "append": str(text)} if len(text.encode()) > _LONGEST_ARGUMENT:
                path = self._write("prompt.txt", text)
                return replace(
                    options,
                    system_prompt={"type": "preset", "preset": "claude_code"},
                    extra_args={**options.extra_args, "append-system-prompt-file": path},
                )
            case _:
                return options

    def _write(self, name: str, text: str) -> str:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ambient-cli-"))
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)


def _without_instance(config: Any) -> dict[str, Any]:
    return {key: value for key, value in cast("dict[str, Any]", config).items() if key != "instance"}
