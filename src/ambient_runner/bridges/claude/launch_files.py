"""Files that pass data to the CLI at its start: secrets, which must not be on its command line, and text too long for one.

Anyone can read a command line, and headers of MCP servers hold tokens. Only the owner can read the files; they are deleted after the start.
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

__all__ = ["LaunchFiles"]

_MAX_ARGUMENT_BYTES = 100_000
"""Linux accepts no argument above 128 KiB."""


class LaunchFiles:
    """The files of one process. `write` may fail half-way; `delete` is safe at any time."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def write(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Write the files. Return the options with their paths. Raises: OSError."""
        return self._move_long_prompt(self._move_servers(options))

    def delete(self) -> None:
        """Delete the files."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _move_servers(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        servers = options.mcp_servers
        if not isinstance(servers, dict) or not servers:
            return options
        plain = {name: _without_instance(config) for name, config in servers.items()}
        return replace(options, mcp_servers=self._write_file("mcp.json", json.dumps({"mcpServers": plain})))

    def _move_long_prompt(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        match options.system_prompt:
            case {"type": "preset", "append": str(text)} if len(text.encode()) > _MAX_ARGUMENT_BYTES:
                path = self._write_file("prompt.txt", text)
                return replace(
                    options,
                    system_prompt={"type": "preset", "preset": "claude_code"},
                    extra_args={**options.extra_args, "append-system-prompt-file": path},
                )
            case _:
                return options

    def _write_file(self, name: str, text: str) -> str:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="ambient-cli-"))
        path = self._directory / name
        path.write_text(text, encoding="utf-8")
        return str(path)


def _without_instance(config: Any) -> dict[str, Any]:
    return {key: value for key, value in cast("dict[str, Any]", config).items() if key != "instance"}
