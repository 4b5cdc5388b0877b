"""What can be set for Claude: one value that travels from the bridge to whoever needs a part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from claude_agent_sdk import ClaudeAgentOptions
    from claude_agent_sdk.types import PermissionMode, SettingSource

__all__ = ["PASSED", "ClaudeConfig"]

PASSED = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "SSL_CERT_FILE",
)
"""What the CLI needs of the server's own variables to reach the model, where they are set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaudeConfig:
    """The settings of a ClaudeBridge. Durations are seconds."""

    permission_mode: PermissionMode = "acceptEdits"
    tools: Sequence[str] | None = None
    """The CLI's own tools that exist at all; None for all of them."""
    allowed_tools: Sequence[str] = ()
    """Tools, or rules such as `Bash(git status)`, that are used without asking."""
    disallowed_tools: Sequence[str] = ()
    setting_sources: Sequence[SettingSource] = ()
    """Which settings files count. A workspace's own can run commands, so none does unless it is named."""
    models: Collection[str] | None = None
    """What `forwardedProps.model` may name; None for anything, empty for nothing."""
    verbatim: bool = True
    """Whether what people write is taken as it is: `@file` is not read and `/command` is not run."""
    start_timeout: float = 30.0
    """How long the CLI may take to start."""
    turn_timeout: float = 600.0
    """The longest silence of the CLI while it works."""
    answer_timeout: float = 600.0
    """How long a question to a person stays open."""
    parked: int = 8
    """How many processes may wait for a person at a time."""
    cli_path: str | Path | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables for every CLI process, besides what is granted to a run."""
    pass_env: Sequence[str] = ()
    """Names of the server's own variables that the CLI gets too, besides those it needs to reach the model."""
    options: ClaudeAgentOptions | None = field(default=None, repr=False)
    """Whatever else the SDK can be told: agents, hooks, thinking, a sandbox. What is set elsewhere here wins."""
